"""Construction runs: build families from every source of a file, and write the files of the run's folder.

A run may be killed at any moment; the same call continues it, and no reply is requested or paid for twice.
"""

from __future__ import annotations

import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.calls.record_loop import RecordJob, RecordRejection
from eclose.calls.resolve import ModelRef, find_model_ref, resolve_model_ref
from eclose.calls.run import ModelRun, RunOptions, RunResult, run_models_on_records
from eclose.errors import SettingError, UserError
from eclose.files.id_set import SeenIds, SortedSpool
from eclose.files.jsonl import ReadRecord
from eclose.files.run_folder import CARD_FILE, DEVELOPMENT, FAMILIES_FILE, TRAIN
from eclose.files.step import PipelineStep
from eclose.readers.import_settings import ImportSettings
from eclose.readers.layouts import RecordLayout
from eclose.readers.load import resolve_import_settings, scan_instances
from eclose.readers.sampling import DEFAULT_SEED, rank_in_seeded_order
from eclose.values.family import Family
from eclose.values.instance import Instance
from eclose.values.model_family import same_model_family
from eclose_train.construction.candidates import FamilyDraft
from eclose_train.construction.funnel import count_funnel_by_dataset
from eclose_train.construction.lengths import identify_tokenizer, make_path_counter
from eclose_train.construction.roles import ConstructionTeam
from eclose_train.construction.settings import ConstructionStage, ConstructSettings
from eclose_train.construction.stages import (
    assemble_family,
    build_evidence_edits,
    build_question_edit,
    build_target_response,
    reverify_family,
    screen_source,
)
from eclose_train.families.publish import DatasetCardState, find_dataset_card_state, write_run_card
from eclose_train.families.split import is_split_file, split_families

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from eclose.calls.client import CallSettings
    from eclose.calls.http.endpoint import ServerAddress
    from eclose.calls.ledger.ledger import Ledger
    from eclose.calls.model import ChatModel

DUPLICATE = "duplicate question"


class ConstructionSources:
    """Records of sources in the order of their ids; later ones with the same question are rejected."""

    def __init__(self, spool: SortedSpool) -> None:
        self._spool = spool

    def __len__(self) -> int:
        """Return the number of records, rejected ones included."""
        return len(self._spool)

    def __iter__(self) -> Iterator[ReadRecord[Instance]]:
        """Yield every record of the file, with a value or with a reason."""
        # Sources are sorted by id, so which of several equal questions is used does not depend on the file's order.
        questions = SeenIds()
        for number, record in enumerate(self._spool):
            # Compared without differences in white space, case and the encoding of accents.
            text = None if record.value is None else unicodedata.normalize("NFC", record.value.question)
            question = None if text is None else " ".join(text.casefold().split())
            # One family per question: the paper removed a family with a duplicate question as well (appendix B.6).
            repeated = question is not None and questions.add(question, b"", number) is not None
            yield ReadRecord(record.where, rejected=DUPLICATE) if repeated else record


@dataclass(frozen=True)
class ConstructionModels:
    """The models of a run by role."""

    constructor: ModelRef
    verifier: ModelRef
    reverifier: ModelRef

    def of(self, role: str) -> ModelRef:
        """Return the model of a role: ``constructor``, ``verifier`` or ``reverifier``."""
        model: ModelRef = getattr(self, role)
        return model

    @property
    def same_family_checkers(self) -> tuple[str, ...]:
        """Names of the checking models that belong to the constructor's model family."""
        checks = dict.fromkeys((self.verifier.name, self.reverifier.name))
        return tuple(name for name in checks if same_model_family(name, self.constructor.name))


async def resolve_construction_models(
    constructor: ModelRef | str,
    verifier: ModelRef | str,
    reverifier: ModelRef | str | None = None,
    *,
    deadline: float = 120.0,
) -> ConstructionModels:
    """Resolve the models of a run; the verifier also makes the second check unless a reverifier is named."""
    first = await resolve_model_ref(verifier, deadline)
    second = first if reverifier is None else await resolve_model_ref(reverifier, deadline)
    return ConstructionModels(await resolve_model_ref(constructor, deadline), first, second)


async def construct_families(
    instances: Path | str,
    models: ConstructionModels,
    out: Path | str,
    settings: ConstructSettings | None = None,
    calls: CallSettings | None = None,
    options: RunOptions | None = None,
    *,
    layout: RecordLayout = RecordLayout.AUTO,
    limit: int | None = None,
) -> RunResult:
    """Build families from the first ``limit`` sources in seeded order, all by default.

    Writes ``families.jsonl``, its two splits and its data card into the folder ``out``.
    """
    run = ConstructionRun.of(Path(instances), models, Path(out), settings or ConstructSettings(), layout, limit)
    return await run_models_on_records(run, calls, options)


async def build_construction_run(
    instances: Path,
    names: tuple[str, str, str | None],
    base_url: str | ServerAddress | None,
    out: Path,
    settings: ConstructSettings,
    deadline: float,
    *,
    layout: RecordLayout = RecordLayout.AUTO,
    limit: int | None = None,
) -> ConstructionRun:
    """Prepare a run from values that can be sent to another machine: names of constructor, verifier and reverifier."""
    references = [None if name is None else find_model_ref(name, base_url=base_url) for name in names]
    constructor, verifier, reverifier = references
    assert constructor is not None
    assert verifier is not None
    models = await resolve_construction_models(constructor, verifier, reverifier, deadline=deadline)
    return ConstructionRun.of(instances, models, out, settings, layout, limit)


@dataclass(frozen=True)
class ConstructionRun(ModelRun[Instance]):
    """Construction of families from a file of sources, as a run of models."""

    models: ConstructionModels
    settings: ConstructSettings
    limit: int | None

    @classmethod
    def of(
        cls,
        instances: Path,
        models: ConstructionModels,
        out: Path,
        settings: ConstructSettings,
        layout: RecordLayout = RecordLayout.AUTO,
        limit: int | None = None,
    ) -> ConstructionRun:
        """Prepare a run; everything that determines its families is in the settings of its step."""
        layout = resolve_import_settings(instances, ImportSettings(format=layout)).format
        # A model that is never asked must not decide whether two runs are the same work.
        roles = ("constructor", "verifier", *(["reverifier"] if settings.reverify else []))
        identity = {
            **{role: dict(models.of(role).identity) for role in roles},
            **settings.identity,
            # Replaces the path among the settings: a folder counts by its content.
            "tokenizer": identify_tokenizer(settings.tokenizer),
            "format": layout.value,
            "limit": limit,
        }
        return cls(PipelineStep("construct", identity, (instances,), out / FAMILIES_FILE), models, settings, limit)

    @contextmanager
    def open_records(self) -> Iterator[ConstructionSources]:
        """Open the sources of the run: all of the file, or the first ``limit`` in seeded order."""
        records = self._scan()
        if self.limit is not None:
            # The order of ``eclose data sample``, so that a subset is a sample too.
            sources = (record.value for record in self._scan() if record.value is not None)
            ids = {rank_in_seeded_order(source, DEFAULT_SEED): source.id for source in sources}
            chosen = {ids[rank] for rank in nsmallest(self.limit, ids)}
            records = (record for record in records if record.value is None or record.value.id in chosen)
        with SortedSpool(records) as spool:
            yield ConstructionSources(spool)

    def _scan(self) -> Iterator[ReadRecord[Instance]]:
        settings = ImportSettings(format=RecordLayout(self.stage.settings["format"]))
        return scan_instances(self.stage.inputs[0], settings=settings)

    async def collect_notes(self, ledger: Ledger) -> Mapping[str, Any]:
        """Count the sources that passed each stage, by dataset."""
        # Two passes: ``sampled`` is the whole file, ``sources`` the part within the limit without duplicates.
        with self.open_records() as sources, SortedSpool(self._scan()) as sampled:
            return await count_funnel_by_dataset(ledger, sampled, sources, self.settings.stages)

    def check_output(self, *, force: bool) -> None:
        """Raise where a derived file would overwrite an input or a file of another run; before any call is paid for."""
        folder = self.stage.out.parent
        derived = [folder / name for name in (TRAIN, DEVELOPMENT, CARD_FILE)]
        for path in derived:
            if path.exists() and any(path.samefile(source) for source in self.stage.inputs):
                raise SettingError(f"{path}: is an input and would be overwritten. Write to another folder with --out.")
        # With a manifest the folder belongs to a finished run, and ``PipelineStep.claim`` compares it with this one.
        if force or self.stage.manifest_path.exists():
            return
        ours = {path: is_split_file(path) for path in derived} | {
            folder / CARD_FILE: find_dataset_card_state(folder) is not DatasetCardState.FOREIGN
        }
        for path in derived:
            if path.exists() and not ours[path]:
                raise UserError(
                    f"{path}: was not written by this run. Name another folder with --out, or pass --force."
                )

    def write_derived(self, *, force: bool) -> None:
        """Write the files that follow from the families: the two splits, and the data card unless it was edited."""
        folder = self.stage.out.parent
        split_families(folder)
        state = find_dataset_card_state(folder)
        # An edited card is never replaced, not even with force: the edits could not be recovered.
        if state in (DatasetCardState.NONE, DatasetCardState.OURS) or (force and state is DatasetCardState.FOREIGN):
            write_run_card(folder)

    @property
    def model_refs(self) -> tuple[ModelRef, ...]:
        """Constructor, verifier and reverifier."""
        return self.models.constructor, self.models.verifier, self.models.reverifier

    def record_id(self, record: Instance | FamilyDraft | Family) -> str:
        """Return the id of the source that a draft or a family is built from."""
        return record.id if isinstance(record, Instance) else record.source.id

    @property
    def jobs(self) -> list[RecordJob]:
        """The stages of construction, in order."""
        length = make_path_counter(self.settings.tokenizer)  # loaded once for all sources

        async def pack_draft(draft: FamilyDraft, team: ConstructionTeam) -> Family | RecordRejection:
            return assemble_family(draft, team, length)

        stages: dict[ConstructionStage, tuple[Callable[..., Awaitable[Any]], type]] = {
            ConstructionStage.SCREEN: (partial(screen_source, length=length), FamilyDraft),
            ConstructionStage.TARGET: (build_target_response, FamilyDraft),
            ConstructionStage.EVIDENCE: (build_evidence_edits, FamilyDraft),
            ConstructionStage.QUESTION: (build_question_edit, FamilyDraft),
            ConstructionStage.PACK: (pack_draft, Family),
            ConstructionStage.REVERIFY: (reverify_family, Family),
        }
        return [
            RecordJob(stage, partial(self._run_stage, stages[stage][0]), stages[stage][1])
            for stage in self.settings.stages
        ]

    async def _run_stage(
        self,
        work: Callable[..., Awaitable[Any]],
        record: Any,
        constructor: ChatModel,
        verifier: ChatModel,
        reverifier: ChatModel,
    ) -> Any:
        return await work(record, team=ConstructionTeam(constructor, verifier, self.settings, reverifier))
