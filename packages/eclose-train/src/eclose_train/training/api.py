"""Train, select and test from Python as ``eclose train``, ``eclose select`` and ``eclose switch`` do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from eclose.calls.adapters import agree_on_recipe_setting, read_adapter_recipe, same_weights
from eclose.calls.local.vllm_model import check_engine_settings
from eclose.errors import SettingError, UserError
from eclose.files.families import FamilySource, scan_families
from eclose.files.jsonl import read_records
from eclose.files.outcome_counts import RecordCounter, RecordCounts
from eclose.files.run_folder import DEVELOPMENT, FAMILIES_FILE
from eclose.files.step import PipelineStep, companion_file_path
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt
from eclose.values.response import UNTUNED_METHOD, ResponseSource
from eclose_train.families.comparisons import Edge
from eclose_train.families.files import FamilyInput, FamilySplit, open_families, write_family_lines
from eclose_train.training.switch_test import (
    SWITCH_SEED,
    FamilySwitchScores,
    PooledSwitchRates,
    SwitchContrast,
    SwitchRates,
    compare_switch_rates,
    default_torch_device,
    has_pooled_methods,
    pool_switch_rates,
    score_family_switches,
    summarize_switch_rates,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eclose.files.jsonl import ReadRecord
    from eclose.progress import ProgressOption
    from eclose.values.family import Family
    from eclose_train.training.run import TrainingPlan, TrainingResult, TrainingRunForecast
    from eclose_train.training.select import AdaptableModel, Selection, TrainingOrigin


def require_torch(purpose: str) -> None:
    """Raise where torch, Transformers or PEFT is not installed, with the command that installs them."""
    if missing := [name for name in ("torch", "transformers", "peft") if find_spec(name) is None]:
        raise UserError(f"{purpose} needs {', '.join(missing)}. Run: pip install 'eclose[train]'")


def train(
    families: FamilyInput,
    *,
    out: Path | str,
    recipe: Path | str | None = None,
    development: FamilyInput | None = None,
    hub: bool = False,
    tick: Callable[[], None] = lambda: None,
    progress: ProgressOption = True,
    **settings: Any,
) -> TrainingResult:
    """Train an adapter on counterfactual families.

    Stopped at any moment, the same call continues from the last complete checkpoint; once finished, it does nothing.

    Families may be a file (JSON Lines or Parquet), a folder, an address on a hub, ``Family`` values, or rows of a table
    such as ``datasets.Dataset``. All but JSON Lines are written to ``families.jsonl`` in ``out``, with a manifest of
    where they come from. The same families are the same run in every form.

    Args:
        families: Families to train on; of a folder or a dataset the split ``train``.
        out: Folder of the run.
        recipe: File of settings (YAML); ``settings`` take precedence.
        development: Families to evaluate on with every checkpoint; of a folder or a dataset the split ``validation``.
        hub: Whether an address such as ``hf://datasets/owner/name`` may be fetched.
        tick: Called for every family that is read.
        progress: Whether to show phases and updates in a terminal or a notebook, or a function that is called with
            them.
        **settings: Any setting of ``docs/train-settings.md`` and any field of Transformers' ``TrainingArguments``:
            ``model``, ``method``, ``learning_rate``, ``max_steps`` and so on.

    Returns:
        The adapter's folder, counts of families, and the last figures of the log.

    Raises:
        UserError: The families cannot be read, or the folder holds another run.
        SettingError: A setting is unknown or wrong.
    """
    plan = _plan_training(families, development, Path(out), recipe, settings, hub=hub)
    return replace(plan, tick=tick, progress=progress).run()


def forecast_training(
    families: FamilyInput,
    *,
    out: Path | str,
    recipe: Path | str | None = None,
    development: FamilyInput | None = None,
    hub: bool = False,
    tick: Callable[[], None] = lambda: None,
    **settings: Any,
) -> TrainingRunForecast:
    """Return what ``train`` would do with the same arguments; load no weights and write nothing in ``out``.

    The folder ``out`` is read, so that a finished or another run in it is noticed.

    Returns:
        Families in and out with reasons, updates, tokens of an epoch, and trained parameters.

    Raises:
        UserError: The families cannot be read, or the folder holds another run.
        SettingError: A setting is unknown or wrong.
    """
    # Families of tables are written as lines, under the name that they have in a run, which its identity depends on.
    with TemporaryDirectory() as folder:
        plan = _plan_training(families, development, Path(folder), recipe, settings, hub=hub)
        return replace(plan, out=Path(out), tick=tick).forecast()


def _plan_training(
    families: FamilyInput,
    development: FamilyInput | None,
    folder: Path,
    recipe: Path | str | None,
    settings: Mapping[str, Any],
    *,
    hub: bool,
) -> TrainingPlan:
    """Return the run of a folder; families that are no JSON Lines are written there."""
    from eclose_train.training.recipe import read_recipe  # noqa: PLC0415 - needs PyYAML
    from eclose_train.training.run import TrainingPlan  # noqa: PLC0415 - imports torch

    training_recipe = read_recipe(None if recipe is None else Path(recipe), settings)
    # A run is identified by the hash of its files, and its workers read families from them by offset.
    training = write_family_lines(open_families(families, FamilySplit.TRAIN, hub=hub), folder / FAMILIES_FILE)
    held_out = None
    if development is not None:
        source = open_families(development, FamilySplit.HELD_OUT, hub=hub)
        held_out = write_family_lines(source, folder / DEVELOPMENT)
    return TrainingPlan(training, training_recipe, folder, held_out)


def read_families(families: FamilyInput, *, hub: bool = False) -> tuple[list[Family], RecordCounts]:
    """Read held-out families, with the counts of their records.

    Raises:
        UserError: There is no usable family.
    """
    source = open_families(families, FamilySplit.HELD_OUT, hub=hub)
    counter, values = RecordCounter(), []
    for record in scan_families(source):
        counter.add(record)
        if record.value is not None:
            values.append(record.value)
    if not values:
        raise UserError(f"{source.name}: there is no family to select on ({counter.counts()}).")
    return values, counter.counts()


def select(
    run: Path | str,
    families: FamilyInput,
    *,
    out: Path | str | None = None,
    hub: bool = False,
    model: str | None = None,
    engine: Literal["transformers", "vllm"] = "transformers",
    engine_settings: Mapping[str, Any] | None = None,
    max_new_tokens: int = 512,
    batch_tokens: int = 32_768,
    force: bool = False,
    on_checkpoint: Callable[[str], None] = lambda _name: None,
    on_replies: Callable[[int, int], None] = lambda _count, _total: None,
) -> Selection:
    """Select the checkpoint of a training run that answers held-out families best.

    Args:
        run: Folder of a training run.
        families: Held-out families, in any form that ``train`` takes; of a folder or a dataset the split
            ``validation``.
        out: Folder for the selection; the folder of the run by default.
        hub: Whether an address on a hub may be fetched.
        model: Where the weights are, if not where the recipe says.
        engine: What runs the model.
        engine_settings: Settings of vLLM that change no reply, such as ``tensor_parallel_size``.
        max_new_tokens: Longest reply in tokens; a truncated reply counts as wrong.
        batch_tokens: Tokens of a batch, prompts and replies; Transformers only. Changes no result.
        force: Select again although it was done with other settings.
        on_checkpoint: Called with the name of each checkpoint whose replies are generated.
        on_replies: Called with the number of replies so far and in total; Transformers only.

    Returns:
        The accuracy of every checkpoint, and the one selected.

    Raises:
        UserError: The folder holds no finished run, or there is no family.
    """
    from eclose_train.training.select import CheckpointReplySettings, read_training_origin, select_checkpoint  # noqa: PLC0415 - imports torch

    folder, engine_settings = Path(run), engine_settings or {}
    check_engine_settings(engine_settings, engine)
    origin = read_training_origin(folder, model)
    values, _ = read_families(families, hub=hub)
    return select_checkpoint(
        folder,
        values,
        CheckpointReplySettings(origin, engine, max_new_tokens),
        lambda: _load(origin, engine, engine_settings, folder, batch_tokens, on_replies),
        out=None if out is None else Path(out),
        force=force,
        on_checkpoint=on_checkpoint,
    )


def _load(
    origin: TrainingOrigin,
    engine: str,
    engine_settings: Mapping[str, Any],
    run: Path,
    batch_tokens: int,
    on_replies: Callable[[int, int], None],
) -> AdaptableModel:
    """Load the base model once; checkpoints are put on it as adapters."""
    if engine == "vllm":
        from eclose.calls.local.vllm_model import VllmModel, read_adapter_rank  # noqa: PLC0415 - an extra
        from eclose_train.training.checkpoints import find_checkpoints  # noqa: PLC0415

        # vLLM reserves memory for the largest rank when it starts, and all checkpoints run on one engine.
        rank = max(read_adapter_rank(checkpoint.folder) for checkpoint in find_checkpoints(run)[0])
        return VllmModel.load(origin.model, revision=origin.revision, dtype=origin.dtype, rank=rank, **engine_settings)
    require_torch("generating")
    from eclose.calls.local.transformers_model import TransformersModel  # noqa: PLC0415 - imports torch

    return TransformersModel.load(
        origin.model, revision=origin.revision, dtype=origin.dtype, batch_tokens=batch_tokens, progress=on_replies
    )


@dataclass(frozen=True, kw_only=True)
class SwitchSettings:
    """Settings of a switch test: the model, its adapters, and how families are scored.

    Attributes:
        model: Weights by name, folder or GGUF file; by default those that the adapters' recipes name, which may differ.
        adapters: Folders of adapters, each tested on the model.
        revision: Commit of the model on the hub; an adapter's recipe may name it.
        backbone: Whether the model is also tested without an adapter.
        demonstrations: Worked examples in the prompt; None for as trained, or 2.
        order: What comes first in the prompt; None for as trained, or evidence first.
        max_length: Longest path in tokens; longer families are rejected.
        tokens_per_forward: Most tokens of one forward. Changes no result.
        dtype: Precision of the weights.
        device: ``cpu``, ``cuda:1`` and so on; a GPU where there is one by default.
    """

    model: str | None = None
    revision: str | None = None
    adapters: Sequence[Path] = ()
    backbone: bool = False
    demonstrations: int | None = None
    order: PromptOrder | None = None
    max_length: int = 8_192
    tokens_per_forward: int = 16_384
    dtype: str = "auto"
    device: str | None = None


@dataclass(frozen=True)
class SwitchResult:
    """Scores and rates of a switch test.

    Attributes:
        rows: Scores, margins and preferences of every family under every model.
        counts: Numbers of families by outcome.
        rates: O, CF and SW of each dependency, by model and dataset.
        contrasts: SW of each model, with its gain over the first one.
        pooled: SW of each method over its backbones and seeds, with its gain over the first one; None where no method
            has several models, or where they cannot be pooled.
        not_pooled: Why they cannot be pooled.
        settings: Settings that the scores depend on.
        step: The step that wrote the rows; None where none were written.
        again: Whether the step had been finished before this call.
    """

    rows: list[FamilySwitchScores]
    counts: RecordCounts
    rates: Sequence[SwitchRates]
    contrasts: Mapping[str, Mapping[Edge, SwitchContrast]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    step: PipelineStep | None = None
    again: bool = False
    pooled: PooledSwitchRates | None = None
    not_pooled: str | None = None


def switch_test(
    families: FamilyInput,
    *,
    settings: SwitchSettings,
    out: Path | str | None = None,
    hub: bool = False,
    seed: int = SWITCH_SEED,
    resamples: int = 10_000,
    force: bool = False,
    notify: Callable[[str], None] = lambda _message: None,
    wrap: Callable[[Iterable[ReadRecord[Family]], str], Iterable[ReadRecord[Family]]] = lambda records, _name: records,
) -> SwitchResult:
    """Test whether a model's preferences follow the evidence, the question and the trace (appendix D.7).

    No response is generated: a preference is a difference of mean token log-likelihoods. Adapters of one method on
    several backbones or with several training seeds, as their recipes say, are also pooled.

    Args:
        families: Families in any form that ``train`` takes; of a folder or a dataset the split ``validation``.
        settings: The model, its adapters, and how families are scored.
        out: File for the scores and margins of every family; nothing is written by default.
        hub: Whether an address on a hub may be fetched.
        seed: Seed of the resampling.
        resamples: Number of bootstrap resamples of families.
        force: Replace a file that other settings wrote.
        notify: Called with a message about the scoring strategy.
        wrap: Wraps the families of each model, for a progress bar.

    Returns:
        Scores, rates with intervals, and gains over the first model.

    Raises:
        UserError: The file holds no family, or the weights cannot be loaded.
        SettingError: A setting contradicts an adapter's recipe.
    """
    from eclose.calls.local.weights import ADAPTER_WEIGHTS  # noqa: PLC0415

    if out is None and force:
        raise SettingError("--force: nothing is written without --out. Leave it out, or name a file.")
    source = open_families(families, FamilySplit.HELD_OUT, hub=hub)
    systems = _Systems.of(settings)
    identity = systems.identity | {"max_length": settings.max_length, "dtype": settings.dtype}
    records = _score(source, systems, settings, notify, wrap)
    step = None
    if out is None:
        again, counter, rows = False, RecordCounter(), list[FamilySwitchScores]()
        for record in records:
            counter.add(record)
            rows += [] if record.value is None else [record.value]
        counts = counter.counts()
    else:
        # As lines, so that the same families are the same work whatever form they came in.
        path = write_family_lines(source, companion_file_path(Path(out), FAMILIES_FILE))
        # The weights are inputs, so another adapter in the same folder is other work.
        weights = (folder / ADAPTER_WEIGHTS for folder in systems.adapters)
        step = PipelineStep("switch", identity, (path, *weights), Path(out))
        # The records are a generator: for a finished step it is never started, and no model is loaded.
        manifest = step.claim(force=force)
        counts, again = manifest.counts if manifest else step.write(records), manifest is not None
        rows = list(read_records(step.out, FamilySwitchScores))
    if not counts.received:
        raise UserError(f"{source.name}: holds no family. Check that this is the file you meant.")
    recorded = identity | {"resamples": resamples, "seed": seed}
    return SwitchResult(
        rows,
        counts,
        summarize_switch_rates(rows),
        settings=recorded,
        step=step,
        again=again,
        **_compare(rows, seed, resamples),
    )


def _compare(rows: Sequence[FamilySwitchScores], seed: int, resamples: int) -> dict[str, Any]:
    """Return the comparisons of a result: model by model, and methods over their backbones and seeds."""
    import numpy as np  # noqa: PLC0415 - slow, and not needed without rows

    if not rows:
        return {"contrasts": {}}
    contrasts = compare_switch_rates(rows, rng=np.random.default_rng(seed), resamples=resamples)
    if not has_pooled_methods(rows):
        return {"contrasts": contrasts}
    try:
        pooled = pool_switch_rates(rows, rng=np.random.default_rng(seed), resamples=resamples)
    except UserError as error:
        # The models themselves are compared all the same.
        return {"contrasts": contrasts, "not_pooled": str(error)}
    return {"contrasts": contrasts, "pooled": pooled}


@dataclass(frozen=True)
class _Backbone:
    """Weights, and the adapters on them with their recipes."""

    model: str
    revision: str | None
    recipes: dict[Path, dict[str, Any]]


@dataclass(frozen=True)
class _Systems:
    """The models of a switch test by backbone, and the prompt they are scored with."""

    backbones: tuple[_Backbone, ...]
    prompt: ResponsePrompt
    untuned: bool
    """Whether the backbones are tested without an adapter too."""

    @classmethod
    def of(cls, settings: SwitchSettings) -> _Systems:
        """Resolve the models and the prompt from the settings and the adapters' recipes; raise where these differ."""
        from eclose.calls.local.weights import require_adapter_weights  # noqa: PLC0415

        for folder in settings.adapters:
            require_adapter_weights(folder)
        if len({folder.resolve() for folder in settings.adapters}) < len(settings.adapters):
            raise SettingError("--adapter: the same folder is given twice. Give each once.")
        folders = {folder: read_adapter_recipe(folder) for folder in settings.adapters}
        recipes = {str(folder): recipe for folder, recipe in folders.items()}
        backbones = tuple(_group_by_backbone(settings, folders))
        count = agree_on_recipe_setting("demonstrations", settings.demonstrations, recipes)
        order = agree_on_recipe_setting("order", settings.order.value if settings.order else None, recipes)
        prompt = ResponsePrompt(2 if count is None else count, PromptOrder(order or PromptOrder.EVIDENCE_FIRST))
        return cls(backbones, prompt, settings.backbone or not settings.adapters)

    def systems(self, backbone: _Backbone) -> dict[str, tuple[Path | None, ResponseSource]]:
        """Return the adapter and the source of each model on a backbone by its name, in order."""
        from eclose.calls.local.weights import describe_adapter_source, model_table_name  # noqa: PLC0415

        name = model_table_name(backbone.model)
        systems: dict[str, tuple[Path | None, ResponseSource]] = {}
        if self.untuned:
            systems[UNTUNED_METHOD if len(self.backbones) == 1 else f"{UNTUNED_METHOD} {name}"] = (
                None,
                ResponseSource(name),
            )
        for path, recipe in backbone.recipes.items():
            systems[str(path)] = path, describe_adapter_source(name, recipe, path.name)
        return systems

    @property
    def adapters(self) -> list[Path]:
        """Folders of all adapters."""
        return [folder for backbone in self.backbones for folder in backbone.recipes]

    @property
    def identity(self) -> dict[str, Any]:
        """Settings that determine the scores, for the manifest."""
        models = [backbone.model for backbone in self.backbones]
        revisions = [backbone.revision for backbone in self.backbones]
        systems = {
            system: asdict(source)
            for backbone in self.backbones
            for system, (_, source) in self.systems(backbone).items()
        }
        return {
            "model": models[0] if len(models) == 1 else models,
            "revision": revisions[0] if len(models) == 1 else revisions,
            "systems": systems,
            "demonstrations": self.prompt.demonstrations,
            "order": self.prompt.order.value,
            "prompt": self.prompt.hash,
        }


def _group_by_backbone(settings: SwitchSettings, folders: Mapping[Path, dict[str, Any]]) -> Iterator[_Backbone]:
    """Yield the backbones in order of appearance; one for all adapters where a setting names the weights."""
    recipe_models = [recipe["model"] for recipe in folders.values() if recipe.get("model") is not None]
    models = list(dict.fromkeys(recipe_models)) if settings.model is None else [settings.model]
    # A copy of the weights in another folder is the same backbone.
    models = [
        model for index, model in enumerate(models) if not any(same_weights(model, other) for other in models[:index])
    ]
    if not models:
        raise SettingError("--model: is missing, and no adapter's recipe names one. Say which weights to test.")
    if len(models) > 1 and len(recipe_models) < len(folders):
        adapter = next(folder for folder, recipe in folders.items() if recipe.get("model") is None)
        raise SettingError(
            f"--adapter {adapter}: its recipe names no model, and the others name several. Test it alone."
        )
    for model in models:
        members = {
            folder: recipe
            for folder, recipe in folders.items()
            if len(models) == 1 or same_weights(recipe["model"], model)
        }
        recipes = {str(folder): recipe for folder, recipe in members.items()}
        # With one model, this also refuses a recipe that names other weights than the setting.
        agree_on_recipe_setting("model", settings.model, recipes, same=same_weights)
        revision = agree_on_recipe_setting("revision", settings.revision, recipes)
        yield _Backbone(model, revision, members)


def _score(
    families: FamilySource,
    systems: _Systems,
    settings: SwitchSettings,
    notify: Callable[[str], None],
    wrap: Callable[[Iterable[ReadRecord[Family]], str], Iterable[ReadRecord[Family]]],
) -> Iterator[ReadRecord[FamilySwitchScores]]:
    require_torch("scoring")
    from eclose.calls.local.weights import load_adapter, load_causal_model, load_tokenizer  # noqa: PLC0415
    from eclose_train.likelihood.exactness_check import choose_scoring_strategy  # noqa: PLC0415 - imports torch
    from eclose_train.likelihood.render import TokenPathRenderer  # noqa: PLC0415

    device = settings.device or default_torch_device()
    for backbone in systems.backbones:
        tokenizer = load_tokenizer(backbone.model, backbone.revision)
        base = load_causal_model(backbone.model, revision=backbone.revision, dtype=settings.dtype, device=device)
        # Nothing is trained, so the check need not compare gradients.
        choice = choose_scoring_strategy(base.requires_grad_(False), max_length=settings.max_length)
        if choice.message:
            notify(choice.message)
        for system, (adapter, source) in systems.systems(backbone).items():
            model = base if adapter is None else load_adapter(base, adapter)
            yield from score_family_switches(
                wrap(scan_families(families), f"{system}: {Path(families.name).name}"),
                model,
                TokenPathRenderer(tokenizer, systems.prompt, settings.max_length),
                choice,
                tokens_per_forward=settings.tokens_per_forward,
                system=system,
                source=source,
            )
            if model is not base:
                base = model.unload()  # an adapter lives inside the model it was put on
        del base, model  # before the next backbone is loaded
