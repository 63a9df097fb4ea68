"""``eclose switch``: do a model's preferences follow evidence, question and trace?"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from eclose.cli.shared.output import QUARANTINED, counted, printable
from eclose.cli.switch_tables import document, print_contrasts, print_rates, say_counts, say_unjudged
from eclose.models.adapter_recipe import agree_on_setting, read_recipe, same_weights
from eclose.protocol.response_prompt import Order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.core.response import Source
    from eclose.store.records.counts import Counts
    from eclose.store.records.jsonl import ReadRecord
    from eclose.store.runs.step import RunStep
    from eclose.training.switch_test import FamilySwitch


def switch(
    families: Annotated[Path, typer.Argument(help="Families, one JSON object a line.", show_default=False)],
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="Weights by name, folder or GGUF file; an adapter's recipe may name them.", show_default=False
        ),
    ] = None,
    adapter: Annotated[
        list[Path] | None, typer.Option(help="An adapter's folder; may be given several times.", show_default=False)
    ] = None,
    backbone: Annotated[bool, typer.Option("--backbone", help="Also the model as it is, before its adapters.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write every family's scores and margins.")
    ] = None,
    demonstrations: Annotated[
        int | None, typer.Option(min=0, help="Worked examples in the prompt.  [default: as trained, or 2]")
    ] = None,
    order: Annotated[
        Order | None, typer.Option(help="What comes first in the prompt.  [default: as trained, or evidence_first]")
    ] = None,
    max_length: Annotated[
        int, typer.Option(min=1, help="Longest path in tokens; what is longer is set aside.")
    ] = 8_192,
    tokens_per_forward: Annotated[
        int, typer.Option(min=1, help="Tokens of one forward at most. Changes no result.")
    ] = 16_384,
    dtype: Annotated[str, typer.Option(help="Precision of the weights: auto, float32, bfloat16.")] = "auto",
    device: Annotated[
        str | None, typer.Option(help="Such as cpu or cuda:1.  [default: a GPU if there is one]", show_default=False)
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples of families.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling.")] = 42,
    force: Annotated[bool, typer.Option("--force", help="Replace what other work has written.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Twelve scores a family: does the preferred step, trace and answer switch with its input?

    Nothing is generated and nobody judges: a preference is a difference of mean token log-likelihoods. Where a family
    has several evidence edits, the first by passage and content is taken, the same for every model.

    \b
    S   evidence to step: another passage, another first affected step
    T   question to trace: another question, another trace
    C   trace to answer: another trace, another answer, the evidence as it was
    O   the preference is right under the original input
    CF  under the counterfactual input
    SW  under both: the preference switches; a tie fails
    margin o, c   the mean difference under either input

    With several models, gain is SW minus that of the first row, families resampled within datasets, datasets of equal
    weight. An adapter is asked as it was trained: its recipe.json gives model, demonstrations and order.
    """
    import numpy as np

    from eclose.errors import SettingError, UserError
    from eclose.models.weights import ADAPTER_WEIGHTS
    from eclose.store.runs.step import RunStep
    from eclose.training.switch_test import contrasts, switch_rates

    asked = _asked(model, adapter or [], backbone, demonstrations, order)
    settings = asked.settings | {"max_length": max_length, "dtype": dtype}
    inputs = (families, *(folder / ADAPTER_WEIGHTS for folder in asked.adapters))
    stage = RunStep("switch", settings, inputs, out or families.with_name("switches.jsonl"))
    if out is None and force:
        raise SettingError("--force: nothing is written without --out. Leave it out, or name a file.")
    run = _Run(stage, asked, max_length, tokens_per_forward, dtype, device)
    rows, counts, again = run.written(force=force) if out is not None else run.kept()
    if not counts.received:
        raise UserError(f"{families}: holds no family. Check that this is the file you meant.")
    tables = switch_rates(rows)
    compared = contrasts(rows, rng=np.random.default_rng(seed), resamples=resamples) if rows else {}
    if as_json:
        typer.echo(json.dumps(document(settings | {"resamples": resamples, "seed": seed}, counts, tables, compared)))
    else:
        say_counts(stage if out is not None else None, families, counts, again=again)
        if rows:
            print_contrasts(compared, tables)
            print_rates(tables)
            say_unjudged(rows)
    raise typer.Exit(QUARANTINED if counts.quarantined else 0)


# What is asked, and what an adapter says it was trained with.


@dataclass(frozen=True)
class _Asked:
    """The model, what is put on it, and the prompt."""

    model: str
    revision: str | None
    demonstrations: int
    order: Order
    recipes: dict[Path, dict[str, Any]]
    """Adapters in the order given, each with the content of its recipe.json."""
    backbone: bool

    @property
    def adapters(self) -> tuple[Path, ...]:
        """The folders of the adapters, in the order given."""
        return tuple(self.recipes)

    @property
    def sources(self) -> dict[str, Source]:
        """Backbone, method and seed of each system, in order."""
        from eclose.core.response import Source
        from eclose.models.weights import adapter_source, backbone_name
        from eclose.training.switch_test import BACKBONE

        name = backbone_name(self.model)
        adapters = {str(path): adapter_source(name, recipe, path.name) for path, recipe in self.recipes.items()}
        return ({BACKBONE: Source(name)} if self.backbone else {}) | adapters

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the scores, for the manifest."""
        from eclose.protocol.response_prompt import ResponsePrompt

        return {
            "model": self.model,
            "revision": self.revision,
            "systems": {system: asdict(source) for system, source in self.sources.items()},
            "demonstrations": self.demonstrations,
            "order": self.order.value,
            "prompt": ResponsePrompt(self.demonstrations, self.order).hash,
        }


def _asked(
    model: str | None, adapters: list[Path], backbone: bool, demonstrations: int | None, order: Order | None
) -> _Asked:
    """Flags first, then what the adapters' recipes say; where two of them disagree, neither is taken."""
    from eclose.errors import SettingError
    from eclose.models.weights import require_adapter

    for folder in adapters:
        require_adapter(folder)
    if len({folder.resolve() for folder in adapters}) < len(adapters):
        raise SettingError("--adapter: the same folder is given twice. Give each once.")
    folders = {folder: read_recipe(folder) for folder in adapters}
    recipes = {str(folder): recipe for folder, recipe in folders.items()}
    name = agree_on_setting("model", model, recipes, same=same_weights)
    if name is None:
        raise SettingError("--model: is missing, and no adapter's recipe names one. Say which weights to test.")
    count = agree_on_setting("demonstrations", demonstrations, recipes)
    first = agree_on_setting("order", order.value if order else None, recipes)
    return _Asked(
        name,
        agree_on_setting("revision", None, recipes),
        2 if count is None else count,
        Order(first or Order.EVIDENCE_FIRST),
        folders,
        backbone or not adapters,
    )


# The run.


class _Run(NamedTuple):
    """Everything it takes to score."""

    stage: RunStep
    asked: _Asked
    max_length: int
    tokens_per_forward: int
    dtype: str
    device: str | None

    def written(self, *, force: bool) -> tuple[list[FamilySwitch], Counts, bool]:
        """Rows by way of their file; read from it when the same was done before."""
        from eclose.store.records.jsonl import read_records
        from eclose.training.switch_test import FamilySwitch

        manifest = self.stage.claim(force=force)
        counts = manifest.counts if manifest else self.stage.write(self.records())
        return list(read_records(self.stage.out, FamilySwitch)), counts, manifest is not None

    def kept(self) -> tuple[list[FamilySwitch], Counts, bool]:
        """Rows in memory alone."""
        from eclose.store.records.counts import RecordCounter
        from eclose.store.records.json_reader import require_file

        require_file(self.stage.inputs[0])
        tally, rows = RecordCounter(), []
        for record in self.records():
            tally.add(record)
            if record.value is not None:
                rows.append(record.value)
        return rows, tally.counts(), False

    def records(self) -> Iterator[ReadRecord[FamilySwitch]]:
        """Every family under every model."""
        from eclose.likelihood.render import Renderer
        from eclose.protocol.response_prompt import ResponsePrompt
        from eclose.store.records.families import scan_families
        from eclose.training.switch_test import BACKBONE, default_device
        from eclose.training.switch_test import switch as test

        asked, path = self.asked, self.stage.inputs[0]
        _require_torch()
        from eclose.likelihood.exactness_check import choose_scoring
        from eclose.models.weights import load_adapter, load_model, load_tokenizer

        tokenizer = load_tokenizer(asked.model, asked.revision)
        base = load_model(
            asked.model, revision=asked.revision, dtype=self.dtype, device=self.device or default_device()
        )
        choice = choose_scoring(base.requires_grad_(False))
        if choice.message:
            typer.echo(f"eclose: {printable(choice.message)}", err=True)
        prompt = ResponsePrompt(asked.demonstrations, asked.order)
        for system, source in asked.sources.items():
            model = base if system == BACKBONE else load_adapter(base, system)
            yield from test(
                counted(scan_families(path), f"{system}: {path.name}"),
                model,
                Renderer(tokenizer, prompt, self.max_length),
                choice,
                tokens_per_forward=self.tokens_per_forward,
                system=system,
                source=source,
            )
            if model is not base:
                base = model.unload()  # an adapter lives inside the model it was put on


def _require_torch() -> None:
    from importlib.util import find_spec

    from eclose.errors import UserError

    if missing := [name for name in ("torch", "transformers", "peft") if find_spec(name) is None]:
        raise UserError(f"scoring needs {', '.join(missing)}. Run: pip install 'eclose[train]'")
