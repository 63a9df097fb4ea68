"""Generation of responses: a model answers questions over passages, each with a trace, an answer and a raw completion.

The protocol of appendix A.2: the structured prompt, greedy decoding, one completion for each input, inputs in the order
of their ids. A completion without an answer is kept and counted, not requested again. A run may be killed at any
moment; the same call continues it, and no completion is requested or paid for twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.calls.adapters import agree_on_recipe_setting, same_weights
from eclose.calls.budget import CostEstimate, estimate_cost
from eclose.calls.client import CallSettings
from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.local.weights import find_package_version
from eclose.calls.model import ChatModel, Decoding, FinishReason, Reply, Request
from eclose.calls.record_loop import RecordJob, RecordRejection, decode_job_result
from eclose.calls.resolve import LocalModelRef, ModelRef, ServedModelRef, find_model_ref
from eclose.calls.run import ModelRun, RunOptions, RunResult, find_forecast_price, run_models_on_records
from eclose.errors import SettingError
from eclose.files.id_set import SortedSpool
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.files.step import PipelineStep
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt
from eclose.readers.import_settings import ImportSettings
from eclose.readers.layouts import RecordLayout
from eclose.readers.load import resolve_import_settings, scan_instances
from eclose.values.identity import content_hash
from eclose.values.instance import Instance
from eclose.values.response import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.calls.http.endpoint import ServerAddress
    from eclose.calls.ledger.ledger import Ledger
    from eclose.values.response import ResponseSource

GENERATION_JOB = "generate"
REFUSAL_REASON = "refusal"
_INCOMPLETE_KINDS = frozenset({CallFailureKind.LENGTH, CallFailureKind.EMPTY})
"""Failures that are incomplete completions: the model replied, and the reply is kept without an answer."""


@dataclass(frozen=True, kw_only=True)
class GenerateSettings:
    """Settings of the prompt and of decoding: everything that determines the responses besides model and questions.

    The defaults are the paper's.

    Attributes:
        demonstrations: Worked examples in the prompt; None for as many as the adapter was trained with, or 2.
        order: What comes first in the prompt; None for the order of the adapter's training, or evidence first.
        max_new_tokens: Longest reply in tokens.
        max_length: Most tokens of prompt and reply together, for weights in this process; servers have their own limit.
        thinking: Whether a model that can think does so; None is off on your own servers, else the provider's default.
        limit: Number of questions to answer, the first by id; None for all.
        format: Layout of the file of questions.

    Examples:
        >>> eclose.GenerateSettings(max_new_tokens=512).prompt.demonstrations
        2
    """

    demonstrations: int | None = None
    order: PromptOrder | None = None
    max_new_tokens: int = 1_024
    max_length: int = 8_192
    thinking: bool | None = None
    limit: int | None = None
    format: RecordLayout = RecordLayout.AUTO

    @property
    def prompt(self) -> ResponsePrompt:
        """The prompt before a question."""
        demonstrations = 2 if self.demonstrations is None else self.demonstrations
        return ResponsePrompt(demonstrations, self.order or PromptOrder.EVIDENCE_FIRST)

    def as_trained(self, recipes: Mapping[str, Mapping[str, Any]]) -> GenerateSettings:
        """Return the settings with demonstrations and order of the adapters' recipes.

        Raises:
            SettingError: The settings contradict a recipe, or two recipes contradict each other.
        """
        order = agree_on_recipe_setting("order", self.order.value if self.order else None, recipes)
        return replace(
            self,
            demonstrations=agree_on_recipe_setting("demonstrations", self.demonstrations, recipes),
            order=None if order is None else PromptOrder(order),
        )


@dataclass(frozen=True)
class GenerationRun(ModelRun[Instance]):
    """A run that requests one completion for every question of a file."""

    model: ModelRef
    settings: GenerateSettings
    _system: str = field(init=False)

    def __post_init__(self) -> None:
        """Derive the part of the ids that all responses of one system share, for any file of questions."""
        # The first twelve hexadecimal digits behind "sha256:". The dataclass is frozen, so the field is set this way.
        object.__setattr__(self, "_system", content_hash(_system_identity(self.model, self.settings))[7:19])

    @property
    def model_refs(self) -> tuple[ModelRef]:
        """The model that answers."""
        return (self.model,)

    @property
    def jobs(self) -> list[RecordJob]:
        """One job: the completion for a question."""
        return [RecordJob(GENERATION_JOB, self._respond, Response)]

    async def _respond(self, instance: Instance, model: ChatModel) -> Response | RecordRejection:
        # A truncated or empty completion is a response without an answer.
        try:
            reply = await model.complete(self.request(instance))
        except CallFailure as failure:
            # A refusal has no trace to judge; it is counted and written beside the responses.
            if failure.kind is CallFailureKind.REFUSAL:
                return RecordRejection(REFUSAL_REASON, RefusedCompletion(failure.problem, failure.raw))
            if failure.kind not in _INCOMPLETE_KINDS or failure.reply is None:
                raise
            reply = failure.reply
        return self.response(instance, reply)

    @property
    def decoding(self) -> Decoding:
        """Decoding settings of a completion."""
        return _decoding(self.model, self.settings)

    def open_records(self) -> SortedSpool:
        """Open the questions in the order of their ids."""
        settings = ImportSettings(format=RecordLayout(self.stage.settings["format"]))
        return SortedSpool(scan_instances(self.stage.inputs[0], settings=settings), limit=self.settings.limit)

    async def collect_notes(self, ledger: Ledger) -> dict[str, Any]:
        """Count responses without an answer, and describe the engine."""
        return {"incomplete": await _incomplete(ledger), "engine": _describe_engine(self.model)}

    def write_inputs(self, *, force: bool) -> None:
        """Copy the questions beside the responses before the first request, so that judging needs the folder alone.

        The copy is of the file as it is at the start: a change during the run is refused when responses are written.
        """
        settings = {"limit": self.settings.limit, "format": self.stage.settings["format"]}
        copy = PipelineStep("generate instances", settings, self.stage.inputs, self.stage.out.with_name(INSTANCES_FILE))
        # The questions may be those of the folder itself; a file is not copied onto itself.
        if copy.out.resolve() == self.stage.inputs[0].resolve() or copy.claim(force=force) is not None:
            return
        with self.open_records() as records:
            copy.write(records)

    def request(self, instance: Instance) -> Request:
        """Return the request for one question."""
        prompt = self.settings.prompt
        return Request(tuple(prompt.messages(instance.question, instance.evidence)), self.decoding)

    def response(self, instance: Instance, reply: Reply) -> Response:
        """Return the response that a reply is parsed into."""
        source: ResponseSource = self.model.source
        return Response.from_completion(
            f"{instance.id}-{self._system}",
            instance.id,
            reply.text,
            source,
            cut_off=reply.finish is not FinishReason.STOP,
        )


@dataclass(frozen=True, slots=True)
class RefusedCompletion:
    """A refusal of the model, as written beside the responses."""

    problem: str
    raw: str | None


@dataclass(frozen=True, slots=True)
class SourceLabels:
    """Backbone, training method and training seed that responses name as their source, where the caller gives them."""

    backbone: str | None = None
    method: str | None = None
    training_seed: int | None = None


def find_generator_model(
    name: str,
    *,
    adapter: Path | None = None,
    base_model: str | None = None,
    revision: str | None = None,
    dtype: str = "auto",
    recipes: Mapping[str, dict[str, Any]] | None = None,
    labels: SourceLabels | None = None,
    base_url: str | ServerAddress | None = None,
    keyless: bool = False,
    engine_settings: Mapping[str, Any] | None = None,
) -> ModelRef:
    """Find the model that generates, with the source that its responses name; the arguments are those of ``generate``.

    ``recipes`` holds the adapter's recipe by the path it was read from. With ``keyless`` nothing will be sent, so no
    API key is needed.

    Raises:
        SettingError: The labels contradict the recipe.
    """
    recipes, labels = recipes or {}, labels or SourceLabels()
    if adapter is not None:
        # A recipe names the weights; the prefix names the engine, which may differ from that of training.
        weights = name.removeprefix("vllm:").removeprefix("transformers:")
        agree_on_recipe_setting("model", weights, recipes, same=same_weights)
    model = find_model_ref(
        name,
        base_url=base_url,
        keyless=keyless,
        adapter=adapter,
        recipe=next(iter(recipes.values()), {}),
        base_model=base_model,
        revision=revision,
        dtype=dtype,
        engine_settings=engine_settings,
    )
    if isinstance(model, ServedModelRef | LocalModelRef) and labels != SourceLabels():
        model = replace(model, known_source=_labelled_source(model.source, labels, recipes))
    return model


def _labelled_source(
    source: ResponseSource, labels: SourceLabels, recipes: Mapping[str, dict[str, Any]]
) -> ResponseSource:
    if labels.training_seed is not None and (labels.method or source.method) is None:
        raise SettingError("training_seed: an untrained model has none. Name the training method too: method.")
    trained = {
        path: {"method": source.method, "training_seed": source.seed} for path, recipe in recipes.items() if recipe
    }
    seed = labels.training_seed
    return replace(
        source,
        model=labels.backbone or source.model,
        method=agree_on_recipe_setting("method", labels.method, trained) or source.method,
        seed=source.seed if seed is None else agree_on_recipe_setting("training_seed", seed, trained),
    )


async def plan_generation(
    instances: Path | str,
    model: ModelRef | str,
    out: Path | str,
    settings: GenerateSettings | None = None,
    *,
    deadline: float = 120.0,
    replay: bool = False,
) -> GenerationRun:
    """Plan a run; where only the address of a server is given, the server is asked for the name of its model."""
    settings = settings or GenerateSettings()
    model = find_model_ref(model) if isinstance(model, str) else model
    if isinstance(model, ServedModelRef):
        # The name is part of every key, so without it no reply can be found in the ledger.
        if replay and not model.route.model:
            raise SettingError(
                "a replay sends nothing, not even to learn the name of a model. Name the model beside the base URL."
            )
        model = await model.with_model_name(deadline)
    elif settings.thinking:
        raise SettingError("thinking: weights in this process are prompted without it. Use a server.")
    elif isinstance(model, LocalModelRef):
        model = replace(model, context=settings.max_length)
    path = Path(instances)
    layout = resolve_import_settings(path, ImportSettings(format=settings.format)).format
    # What identifies the run but not the system: a response keeps its id in a run over more questions.
    identity = _system_identity(model, settings) | {
        "source": asdict(model.source),
        "limit": settings.limit,
        "format": layout.value,
    }
    return GenerationRun(PipelineStep("generate", identity, (path,), Path(out) / RESPONSES_FILE), model, settings)


def _system_identity(model: ModelRef, settings: GenerateSettings) -> dict[str, Any]:
    """Return what determines the responses of a system: model, prompt and decoding."""
    return {
        **model.identity,
        "prompt": settings.prompt.hash,
        "demonstrations": settings.prompt.demonstrations,
        "order": settings.prompt.order.value,
        "decoding": _decoding(model, settings).plain,
    }


def _decoding(model: ModelRef, settings: GenerateSettings) -> Decoding:
    thinking = model.thinking if settings.thinking is None else settings.thinking
    # Temperature 0 by default: greedy decoding (appendix A.2).
    return Decoding(max_tokens=settings.max_new_tokens, thinking=thinking)


def forecast_generation(run: GenerationRun, calls: CallSettings | None = None) -> CostEstimate:
    """Estimate calls, tokens and cost before anything is sent; replies in the ledger are not deducted."""
    price = find_forecast_price(run.model, calls or CallSettings())
    with run.open_records() as records:
        return estimate_cost((run.request(record.value) for record in records if record.value is not None), price)


async def generate_responses(
    instances: Path | str,
    model: ModelRef | str,
    out: Path | str,
    settings: GenerateSettings | None = None,
    calls: CallSettings | None = None,
    options: RunOptions | None = None,
) -> RunResult:
    """Write ``responses.jsonl`` into a folder, with its manifest, rejected records and the questions."""
    calls, options = allow_one_attempt(calls), options or RunOptions()
    run = await plan_generation(instances, model, out, settings, deadline=calls.deadline, replay=options.replay)
    return await run_models_on_records(run, calls, options)


def allow_one_attempt(calls: CallSettings | None) -> CallSettings:
    """Return the call settings with one completion for each input: a malformed completion is a response."""
    return replace(calls or CallSettings(), semantic_attempts=1)


async def build_generation_run(
    instances: Path,
    model: str,
    base_url: str | ServerAddress | None,
    out: Path,
    settings: GenerateSettings,
    deadline: float,
) -> GenerationRun:
    """Build the run from values that can be sent to a worker on another machine."""
    return await plan_generation(instances, find_model_ref(model, base_url=base_url), out, settings, deadline=deadline)


async def _incomplete(ledger: Ledger) -> dict[str, int]:
    # Read from the ledger and not counted along the way: a resumed run includes the responses of its earlier sessions.
    reasons: Counter[str] = Counter()
    async for outcome in ledger.read_outcomes(GENERATION_JOB):
        if outcome.kind == "accepted" and (why := decode_job_result(Response, outcome).incomplete) is not None:
            reasons[why.value] += 1
    return dict(sorted(reasons.items()))


_PACKAGES = ("torch", "transformers", "tokenizers", "peft", "vllm")


def _describe_engine(model: ModelRef) -> dict[str, Any]:
    """Return what computed the replies, for the manifest: engine, its versions, precision and device.

    A server does not report its engine: note engine and versions beside the run.
    """
    if not isinstance(model, LocalModelRef):
        return {"engine": "server"}
    versions = {name: find_package_version(name) for name in _PACKAGES if find_spec(name) is not None}
    return {"engine": model.engine, "versions": versions, "dtype": _dtype(model), "device": _device()}


def _dtype(model: LocalModelRef) -> str:
    """Return the precision of the weights: the requested one, or, for ``auto``, that of the published weights."""
    if model.dtype != "auto" or model.weights.endswith(".gguf"):
        return model.dtype
    from eclose.calls.local.weights import load_model_config  # noqa: PLC0415 - heavy

    published = getattr(load_model_config(model.weights, model.revision).get_text_config(), "dtype", None)
    return model.dtype if published is None else str(published).removeprefix("torch.")


def _device() -> str:
    import torch  # noqa: PLC0415 - heavy, and loaded by now

    if torch.cuda.is_available():
        return ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if accelerator is None else accelerator.type
