"""Build families from every source of a file: the parts as jobs of a run, and what lies in its folder afterwards.

A run may be killed at any moment; the same call goes on, and what was answered is not asked, or paid, twice.
"""

from __future__ import annotations

import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.benchmarks.layouts import RecordLayout
from eclose.benchmarks.load import detect_layout, scan_instances
from eclose.benchmarks.sampling import DEFAULT_SEED, rank_instance
from eclose.calls.client import CallSettings
from eclose.calls.run import ModelRun, RunObserver, RunResult, observe_nothing, run_models
from eclose.construction.draft import Draft
from eclose.construction.funnel import by_dataset
from eclose.construction.publishing.dataset_card import CardState, card_state, write_card
from eclose.construction.roles import Team
from eclose.construction.settings import ConstructSettings, Part
from eclose.construction.split import is_part, split_families
from eclose.construction.stages import build_evidence, build_question, build_target, pack, reverify, screen
from eclose.construction.token_lengths import length_for, tokenizer_identity
from eclose.core.family import Family
from eclose.core.instance import Instance
from eclose.core.model_family import same_family
from eclose.errors import SettingError, UserError
from eclose.models.resolve import ModelRef, find_model, resolve_model
from eclose.store.records.jsonl import ReadRecord
from eclose.store.records.seen_ids import SeenIds
from eclose.store.records.sorted_spool import SortedSpool
from eclose.store.runs.folder import CARD, DEVELOPMENT, FAMILIES, TRAIN
from eclose.store.runs.runner import Job, Rejection
from eclose.store.runs.step import RunStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eclose.models.interface import ChatModel
    from eclose.models.openai.endpoint import ServerAddress
    from eclose.store.ledger.ledger import Ledger

DUPLICATE = "duplicate question"


class Sources:
    """Sources in the order of their ids. Of those that ask the same, the first."""

    def __init__(self, spool: SortedSpool[Instance]) -> None:
        self._spool = spool

    def __len__(self) -> int:
        """How many there are, with those that are not built on."""
        return len(self._spool)

    def __iter__(self) -> Iterator[ReadRecord[Instance]]:
        """Every record of the file, each with a value or with a reason."""
        seen = SeenIds()
        for number, record in enumerate(self._spool):
            asked = None if record.value is None else _plain(record.value.question)
            repeated = asked is not None and seen.add(asked, b"", number) is not None
            yield ReadRecord(record.where, rejected=DUPLICATE) if repeated else record


def _plain(question: str) -> str:
    """Questions that differ in nothing but blanks, cases and the way accents are spelt are the same."""
    return " ".join(unicodedata.normalize("NFC", question).casefold().split())


@dataclass(frozen=True)
class Cast:
    """The models, by what they do."""

    constructor: ModelRef
    verifier: ModelRef
    reverifier: ModelRef

    @property
    def all(self) -> tuple[ModelRef, ModelRef, ModelRef]:
        """In the order in which a run is given them."""
        return self.constructor, self.verifier, self.reverifier

    def of(self, role: str) -> ModelRef:
        """By what it does."""
        found: ModelRef = getattr(self, role)
        return found

    @property
    def kin(self) -> tuple[str, ...]:
        """The models that check what a model of their own family wrote."""
        checks = dict.fromkeys((self.verifier.name, self.reverifier.name))
        return tuple(name for name in checks if same_family(name, self.constructor.name))


async def cast(
    constructor: ModelRef | str, verifier: ModelRef | str, reverifier: ModelRef | str | None = None, *, deadline: float = 120.0
) -> Cast:
    """The models that are meant; who verifies again is the verifier, unless somebody else is named."""
    checks = await resolve_model(verifier, deadline)
    again = checks if reverifier is None else await resolve_model(reverifier, deadline)
    return Cast(await resolve_model(constructor, deadline), checks, again)


async def construct_families(
    instances: Path | str,
    models: Cast,
    out: Path | str,
    settings: ConstructSettings | None = None,
    calls: CallSettings | None = None,
    *,
    layout: RecordLayout = RecordLayout.AUTO,
    limit: int | None = None,
    ledger: Path | str | None = None,
    retry: bool = False,
    replay: bool = False,
    force: bool = False,
    watch: RunObserver = observe_nothing,
) -> RunResult:
    """Write ``families.jsonl``, its two parts and its card into a folder; see ``chat.inquiry`` for the flags."""
    plan = Plan.of(Path(instances), models, Path(out), settings or ConstructSettings(), layout, limit)
    return await run_models(
        plan.inquiry(force=force),
        models.all,
        calls or CallSettings(),
        ledger=ledger,
        retry=retry,
        replay=replay,
        force=force,
        watch=watch,
    )


async def make_inquiry(
    instances: Path,
    names: tuple[str, str, str | None],
    base_url: str | ServerAddress | None,
    out: Path,
    settings: ConstructSettings,
    deadline: float,
    *,
    layout: RecordLayout = RecordLayout.AUTO,
    limit: int | None = None,
    force: bool = False,
) -> tuple[ModelRun[Instance], tuple[ModelRef, ...]]:
    """The same on any machine, from what can be sent to it: the names of constructor, verifier and reverifier."""
    named = [None if name is None else find_model(name, base_url=base_url) for name in names]
    constructor, verifier, reverifier = named
    assert constructor is not None
    assert verifier is not None
    models = await cast(constructor, verifier, reverifier, deadline=deadline)
    return Plan.of(instances, models, out, settings, layout, limit).inquiry(force=force), models.all


@dataclass(frozen=True)
class Plan:
    """A run before it is begun."""

    models: Cast
    settings: ConstructSettings
    stage: RunStep
    limit: int | None

    @classmethod
    def of(
        cls,
        instances: Path,
        models: Cast,
        out: Path,
        settings: ConstructSettings,
        layout: RecordLayout = RecordLayout.AUTO,
        limit: int | None = None,
    ) -> Plan:
        """All that decides what comes out stands in the stage's settings."""
        layout = detect_layout(instances) if layout is RecordLayout.AUTO else layout
        roles = ("constructor", "verifier", *(["reverifier"] if settings.reverify else []))
        asked = {role: dict(models.of(role).identity) for role in roles}
        counted = {"tokenizer": tokenizer_identity(settings.tokenizer)}
        told = {**asked, **settings.identity, **counted, "format": layout.value, "limit": limit}
        return cls(models, settings, RunStep("construct", told, (instances,), out / FAMILIES), limit)

    @contextmanager
    def sources(self) -> Iterator[Sources]:
        """Open what families are to be built from: all of the file, or the first ``limit`` in seeded order."""
        drawn = None if self.limit is None else _first_in_seeded_order(self._scan(), self.limit)
        records = (
            self._scan()
            if drawn is None
            else (record for record in self._scan() if record.value is None or record.value.id in drawn)
        )
        with SortedSpool(Instance, records) as spool:
            yield Sources(spool)

    def _scan(self) -> Iterator[ReadRecord[Instance]]:
        return scan_instances(self.stage.inputs[0], layout=RecordLayout(self.stage.settings["format"]))

    def inquiry(self, *, force: bool = False) -> ModelRun[Instance]:
        """The run: what is asked of whom, and what is written when it is done."""

        async def notes(ledger: Ledger) -> Mapping[str, Any]:
            with self.sources() as sources, SortedSpool(Instance, self._scan()) as sampled:
                return await by_dataset(ledger, sampled, sources, self.settings.parts)

        _refuse_strangers(self.stage, force=force)
        finish = partial(_complete, self.stage.out.parent, force=force)
        return ModelRun(self.stage, self.sources, lambda source: source.id, self.jobs, notes, afterwards=finish)

    def jobs(self, constructor: ChatModel, verifier: ChatModel, reverifier: ChatModel) -> Sequence[Job[Any, Any]]:
        """The parts, one after the other."""
        team = Team(constructor, verifier, self.settings, reverifier)
        length = length_for(self.settings.tokenizer)

        async def packed(draft: Draft) -> Family | Rejection:
            return pack(draft, team, length)

        jobs: dict[Part, Job[Any, Any]] = {
            Part.SCREEN: Job(Part.SCREEN, partial(screen, team=team, length=length), Draft),
            Part.TARGET: Job(Part.TARGET, partial(build_target, team=team), Draft),
            Part.EVIDENCE: Job(Part.EVIDENCE, partial(build_evidence, team=team), Draft),
            Part.QUESTION: Job(Part.QUESTION, partial(build_question, team=team), Draft),
            Part.PACK: Job(Part.PACK, packed, Family),
            Part.REVERIFY: Job(Part.REVERIFY, partial(reverify, team=team), Family),
        }
        return [jobs[part] for part in self.settings.parts]


def _first_in_seeded_order(records: Iterable[ReadRecord[Instance]], limit: int) -> set[str]:
    """Return the ids of the first sources in the order of ``data sample``: a part of a sample is a sample again."""
    places = {
        rank_instance(source, DEFAULT_SEED): source.id for record in records if (source := record.value) is not None
    }
    return {places[place] for place in nsmallest(limit, places)}


def _complete(folder: Path, *, force: bool) -> None:
    """What follows from the families: their two parts, and the card, unless somebody has worked on it."""
    split_families(folder)
    state = card_state(folder)
    if state in (CardState.NONE, CardState.OURS) or (force and state is CardState.FOREIGN):
        write_card(folder)


def _refuse_strangers(stage: RunStep, *, force: bool) -> None:
    """Before anybody is paid: what is written in the end must not be in anybody's way."""
    folder = stage.out.parent
    derived = [folder / name for name in (TRAIN, DEVELOPMENT, CARD)]
    for path in derived:
        if path.exists() and any(path.samefile(given) for given in stage.inputs):
            raise SettingError(f"{path}: is an input and would be overwritten. Write to another folder with --out.")
    if force or stage.manifest_path.exists():
        return
    ours = {path: is_part(path) for path in derived} | {folder / CARD: card_state(folder) is not CardState.FOREIGN}
    for path in derived:
        if path.exists() and not ours[path]:
            raise UserError(f"{path}: exists and is not of this run. Name another folder with --out, or pass --force.")
