"""Additions to a run: new questions and responses of an input are taken into its folder beside those that it has.

The files of the folder are the input of judging, so a run that takes responses keeps its identity, its ledger and its
judgments. What is there already is counted and not taken again; other content under its id is refused by name. What is
left out or refused stays where it was: given again, it is read again.
"""

from __future__ import annotations

import secrets
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from eclose.calls.ledger.database import WriterLock, is_database_url
from eclose.errors import RecordError, SettingError, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.growth import RunGrowth, measure_run_files, read_growth
from eclose.files.id_set import SeenIds
from eclose.files.json_reader import is_plain_json_lines, read_json_objects, require_regular_file
from eclose.files.jsonl import (
    DUPLICATE,
    ID_REUSED,
    NOT_JSON,
    WRONG_RECORD,
    ReadRecord,
    check_core_rules,
    encode_json_line,
    scan_records,
)
from eclose.files.manifest import Manifest, hash_files
from eclose.files.outcome_counts import RecordCounter, RecordCounts
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE, RUN_LEDGER_FILE
from eclose.files.step import companion_file_path, list_differences
from eclose.files.verify import find_file_manifest
from eclose.judging.inputs import JudgeInputFiles, find_judge_inputs
from eclose.judging.run import describe_judge, resolve_judge
from eclose.readers.import_settings import ImportSettings
from eclose.readers.judged_run import (
    APPEND_STEP,
    check_judged_inputs,
    describe_unreadable,
    read_conversion_losses,
    read_judged_ids,
)
from eclose.readers.layouts import BENCHMARK_LOADERS, RecordLayout
from eclose.readers.load import (
    NO_RESPONSE,
    drop_provenance,
    holds_responses,
    resolve_import_settings,
    scan_converted,
)
from eclose.readers.response_tasks import QUESTION_MISSING
from eclose.readers.spans.cases import LOCAL_ROOT_NOTE, NO_ROOT
from eclose.values.identity import canonical_bytes
from eclose.values.instance import Instance
from eclose.values.response import Response

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eclose.calls.resolve import ModelRef
    from eclose.judging.settings import JudgeSettings
    from eclose.readers.conversion import ConvertedRecord
    from eclose.readers.intake import IntakeSettings

T = TypeVar("T", Instance, Response)

KNOWN = "already in the run"
CUT_LINE = "still being written, taken next time"
ROOT_MISSING = "its root span is not there yet, taken next time"
_NO_LOSS = frozenset({KNOWN, DUPLICATE, CUT_LINE, ROOT_MISSING})
"""Reasons why a response is not taken that leave none out: it is there, or comes later."""
_CHUNK = 2**20
_UNREADABLE, _EMPTY, _OTHER_FILE = "cannot be read", "empty", "no file of records"
_RECORD_ENDINGS = (".jsonl", ".json", ".parquet", ".jsonl.gz", ".json.gz")


@contextmanager
def hold_run(run: Path, ledger: Path | str | None, intake: IntakeSettings) -> Iterator[None]:
    """Let no other process add responses to a run while this one does, nor begin while one judges it."""
    if not intake.append:
        yield
        return
    where = ledger or run / RUN_LEDGER_FILE
    with WriterLock(run / RESPONSES_FILE, "append"):
        if not is_database_url(where):
            # Given back at once: judging takes it itself.
            WriterLock(Path(where), "append").release()
        for name in (INSTANCES_FILE, RESPONSES_FILE, JUDGMENTS_FILE):
            # Of a process that was killed while it wrote; no other one writes now.
            for left_behind in run.glob(f".{name}.*"):
                left_behind.unlink()
        yield


async def take_inputs(
    path: Path,
    run: Path,
    model: ModelRef,
    settings: JudgeSettings,
    intake: IntakeSettings,
    *,
    deadline: float,
    instances: Path | None = None,
    imported: ImportSettings | None = None,
    force: bool = False,
    scratch: Path | None = None,
    name: str | None = None,
) -> JudgeInputFiles:
    """Return the files to judge: those of the input, or those of the run once the input is added to it.

    The arguments are those of ``find_judge_inputs`` and ``add_responses``. The server of the model is asked for its
    name where responses are added.
    """
    if not intake.append:
        return find_judge_inputs(path, run, instances, imported, force=force, scratch=scratch)
    judge = describe_judge(await resolve_judge(model, settings, deadline), settings)
    return add_responses(
        path, run, judge, intake, instances=instances, imported=imported, force=force, scratch=scratch, name=name
    )


def add_responses(
    path: Path,
    run: Path,
    judge: Mapping[str, Any],
    intake: IntakeSettings,
    *,
    instances: Path | None = None,
    imported: ImportSettings | None = None,
    force: bool = False,
    scratch: Path | None = None,
    name: str | None = None,
) -> JudgeInputFiles:
    """Take the new questions and responses of an input into a run; return the files to judge.

    Args:
        path: A file in any known layout, a folder of such files, or the folder of a run.
        run: Folder of the run; made where there is none.
        judge: Settings of the judge, which are the same for all responses of a run.
        intake: Which responses are taken.
        instances: File of the questions, where they are neither in ``path`` nor in the run.
        imported: Settings of reading another tool's file.
        force: Whether to judge all responses of the run as they are now and with these settings.
        scratch: Folder for the responses that would be judged, for a forecast that leaves the run as it is.
        name: Name of the input where what is lost of it is listed; its path by default.

    Raises:
        UserError: The run has another judge or a changed file, the input cannot be read, or there is no response.
    """
    growth = _find_growth(run, judge, force=force)
    intake = intake.at(datetime.now(UTC))
    with _Additions(run, intake) as additions:
        if instances is not None:
            additions.read(instances, str(instances), ImportSettings())
        for file in _list_files(path, run, additions.files):
            additions.read(file, name or str(file), imported or ImportSettings(), alone=not path.is_dir())
        counts = additions.counts
        if not additions.responses.size:
            raise UserError(f"{path}: holds no response to judge. {_join_counts(counts)}.")
        if scratch is not None:
            return replace(additions.write_forecast(scratch), added=counts)
        additions.write(growth)
    return JudgeInputFiles(run / INSTANCES_FILE, run / RESPONSES_FILE, origin=growth.identity, added=counts)


def _join_counts(counts: Mapping[str, RecordCounts]) -> str:
    return "; ".join(f"{name}: {count}" for name, count in counts.items())


def _find_growth(run: Path, judge: Mapping[str, Any], *, force: bool) -> RunGrowth:
    """Return the record of a run, made where it did not grow so far; raise where its judge or its files differ."""
    growth = read_growth(run)
    if growth is None:
        growth = _begin_growth(run, judge)
    elif changed := growth.list_changed_files(run):
        if not force:
            growth.refuse_changed_files(run)
        # Under another identity, so that what is changed is judged as it is now.
        growth = replace(growth, identity={"changed": secrets.token_hex(16)} if changed else growth.identity)
    if not force and (changes := list_differences(growth.settings, judge)):
        raise UserError(
            f"{run}: its responses were judged with other settings ({'; '.join(changes)}). Give the same settings, "
            "name another folder, or pass --force to judge all of them with these."
        )
    return replace(growth, settings=dict(judge))


def _begin_growth(run: Path, judge: Mapping[str, Any]) -> RunGrowth:
    """Return the record of a run that has taken no responses so far: of an empty folder, or one that was judged."""
    files = measure_run_files(run)
    if RESPONSES_FILE not in files:
        return RunGrowth({"began": secrets.token_hex(16)}, judge)
    manifest = find_file_manifest(run / JUDGMENTS_FILE) if (run / JUDGMENTS_FILE).is_file() else None
    if manifest is not None:
        check_judged_inputs(run)
        if "only" in manifest.settings:
            raise UserError(
                f"{run}: a part of its responses was chosen and judged, so --append would judge the others as well."
                " Name a new folder, and give --sample or --since there."
            )
    for name in files:
        if not is_plain_json_lines(run / name):
            raise UserError(f"{run / name}: is not JSON Lines, so nothing can be added. Name a new folder.")
    # The identity that it was judged under, so that its judgments stay.
    identity = {name: file.hash for name, file in files.items()}
    return RunGrowth(identity, judge if manifest is None else manifest.settings, files, samples=(1.0,))


def _list_files(path: Path, run: Path, counter: RecordCounter) -> list[Path]:
    """Return the file, those of a run, or the files of records in a folder; count its other files."""
    if path.resolve() == run.resolve():
        return []  # what the run has is judged
    if not path.is_dir():
        return [path]
    if (path / RESPONSES_FILE).is_file():
        return [file for file in (path / INSTANCES_FILE, path / RESPONSES_FILE) if file.is_file()]
    files = []
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if hidden or not file.is_file() or file.resolve().is_relative_to(run.resolve()):
            continue
        if file.name.endswith(_RECORD_ENDINGS):
            files.append(file)
        else:
            counter.add(ReadRecord(str(file), rejected=_OTHER_FILE))
    # Questions before the responses to them.
    return sorted(files, key=lambda file: file.name != INSTANCES_FILE)


class _Additions:
    """New records, kept aside until all of an input is read."""

    def __init__(self, run: Path, intake: IntakeSettings) -> None:
        self._run, self._intake, self._exclude = run, intake, intake.read_exclusions()
        self.questions = _GrowingFile(run / INSTANCES_FILE, Instance)
        self.responses = _GrowingFile(run / RESPONSES_FILE, Response)
        self.files = RecordCounter()
        self._lost = _read_lost_responses(run)

    def __enter__(self) -> _Additions:
        return self

    def __exit__(self, *_: object) -> None:
        self.questions.new.close()
        self.responses.new.close()

    @property
    def counts(self) -> dict[str, RecordCounts]:
        """Counts of the files, questions and responses that were read this time."""
        counters = {"files": self.files, "questions": self.questions.counter, "responses": self.responses.counter}
        return {name: counter.counts() for name, counter in counters.items()}

    def read(self, file: Path, name: str, imported: ImportSettings, *, alone: bool = True) -> None:
        """Take the new records of a file; one that cannot be read is counted where it is not ``alone``."""
        # What was lost of this file before may be there now.
        self._lost = {where: loss for where, loss in self._lost.items() if not where.startswith(f"{name} ")}
        if file.is_file() and not file.stat().st_size:
            self.files.add(ReadRecord(name, rejected=_EMPTY))
            return
        try:
            complete = _count_complete_lines(file)
            if not imported.columns and holds_responses(file):
                for response in scan_records(file, Response):
                    self._take_response(name, _mark_cut_line(response, complete))
            else:
                settings = resolve_import_settings(file, imported)
                has_responses = settings.format not in (RecordLayout.ECLOSE, *BENCHMARK_LOADERS)
                for record in scan_converted(file, settings=settings):
                    self._take_pair(name, _mark_cut_line(record, complete), has_responses=has_responses)
        except SettingError:
            raise
        except UserError as error:
            if alone:
                raise
            self.files.add(ReadRecord(name, error=RecordError(str(error)), error_kind=_UNREADABLE))
        else:
            self.files.add(ReadRecord(name, value=file))

    def _take_pair(self, name: str, record: ReadRecord[ConvertedRecord], *, has_responses: bool) -> None:
        """Take a question and its response: both, or for the same reason neither."""
        pair = record.value
        # The root of a trace is written last: what is there of it would be taken as another response later.
        reason = ROOT_MISSING if LOCAL_ROOT_NOTE in record.repairs or record.rejected == NO_ROOT else None
        if pair is None:
            self._leave_out(name, record if reason is None else replace(record, rejected=reason))
            return
        response = pair.response
        if response is not None and (reason := reason or self._exclude(response)) is not None:
            self._leave_out(name, ReadRecord(record.where, rejected=reason), lost=False)
            return
        question = self.questions.add(ReadRecord(record.where, value=pair.instance, repairs=record.repairs))
        if not has_responses:
            return
        if question.error is not None or response is None:
            refused = question if response is not None else ReadRecord(record.where, rejected=NO_RESPONSE)
            self.responses.counter.add(refused)
            self._lose(name, refused)
        else:
            repairs = (*record.repairs, *pair.notes)
            self._lose(name, self.responses.add(ReadRecord(record.where, value=response, repairs=repairs)))

    def _take_response(self, name: str, record: ReadRecord[Response]) -> None:
        """Take a response to a question that the run has."""
        response = record.value
        if response is not None and (reason := self._exclude(response)) is not None:
            self.responses.counter.add(ReadRecord(record.where, rejected=reason))
            return
        if response is not None and response.instance_id not in self.questions.ids:
            problem = f"answers {response.instance_id!r}, which is not among the questions. Name the file that has it."
            error = RecordError(problem, path=name, record=repr(response.id))
            record = ReadRecord(record.where, error=error, error_kind=QUESTION_MISSING)
        self._lose(name, self.responses.add(record))

    def _leave_out(self, name: str, record: ReadRecord[Any], *, lost: bool = True) -> None:
        self.questions.counter.add(record)
        self.responses.counter.add(record)
        if lost:
            self._lose(name, record)

    def _lose(self, name: str, record: ReadRecord[Any]) -> None:
        """Note a response that the run does not have although it should."""
        if record.error is not None:
            loss = {"reason": describe_unreadable(record.error_kind), "error": record.error.problem}
        elif record.rejected is not None and record.rejected not in _NO_LOSS:
            loss = {"reason": record.rejected}
        else:
            return
        where = f"{name} {record.where}"
        self._lost[where] = {"where": where, **loss}

    def write_forecast(self, scratch: Path) -> JudgeInputFiles:
        """Write the responses that are to be judged, with the questions of the run, into another folder."""
        inputs = JudgeInputFiles(scratch / INSTANCES_FILE, scratch / RESPONSES_FILE)
        self.questions.write(inputs.instances)
        judged = read_judged_ids(self._run)
        earlier = self._run / RESPONSES_FILE
        waiting = scan_records(earlier, Response) if earlier.is_file() else ()
        with AtomicFile(inputs.responses) as file:
            for record in waiting:
                if record.value is not None and record.value.id not in judged:
                    file.write(encode_json_line(record.value) + b"\n")
            for line in self.responses.read_new():
                file.write(line)
        return inputs

    def write(self, growth: RunGrowth) -> None:
        """Write the new records into the folder of the run; a kill at any moment leaves whole files behind."""
        run = self._run
        # First, so that the run keeps its identity whatever happens next.
        growth.write(run)
        if self.questions.counter.accepted or self.responses.counter.accepted:
            # Without its manifest the run counts as unfinished until the new responses are judged, too.
            companion_file_path(run / JUDGMENTS_FILE, "manifest.json").unlink(missing_ok=True)
            # Questions first: a response is never there without its question.
            for records in (self.questions, self.responses):
                if records.counter.accepted:
                    records.write(records.path)
        share = self._intake.sample or 1.0
        if self.responses.counter.accepted:
            begins = not growth.samples
            times = [growth.since or "", self._intake.since or ""]
            growth = replace(
                growth,
                samples=growth.samples if share in growth.samples else (*growth.samples, share),
                since=self._intake.since if begins else min(times) or None,
            )
        replace(growth, files=measure_run_files(run)).write(run)
        self._write_losses()

    def _write_losses(self) -> None:
        """Write which responses were lost on the way, with a manifest that counts them."""
        out = self._run / RESPONSES_FILE
        lost = companion_file_path(out, "rejected.jsonl")
        lost.unlink(missing_ok=True)
        if self._lost:
            with AtomicFile(lost) as file:
                for loss in self._lost.values():
                    file.write(canonical_bytes(loss) + b"\n")
        companion_file_path(out, "quarantined.jsonl").unlink(missing_ok=True)  # its lines are among the lost ones
        reasons = Counter(loss["reason"] for loss in self._lost.values())
        Manifest(
            stage=APPEND_STEP,
            settings=self._intake.identity,
            inputs={},
            outputs=hash_files([out, *([lost] if self._lost else [])]),
            counts=RecordCounts(self.responses.size + reasons.total(), self.responses.size, dict(reasons)),
            funnel=self.counts,
        ).write(companion_file_path(out, "manifest.json"))


def _read_lost_responses(run: Path) -> dict[str, dict[str, str]]:
    """Return the responses that were lost before, by their location."""
    manifest = find_file_manifest(run / RESPONSES_FILE)
    lost = companion_file_path(run / RESPONSES_FILE, "rejected.jsonl")
    if manifest is not None and manifest.stage == APPEND_STEP and lost.is_file():
        return {raw.value["where"]: raw.value for raw in read_json_objects(lost) if raw.value is not None}
    return {where: {"where": where, "reason": reason} for where, reason in read_conversion_losses(run)}


class _GrowingFile(Generic[T]):
    """The records of a file of a run, by id, and those that are added to it."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self.ids: set[str] = set()
        self.counter = RecordCounter()
        """Counts of the records that were read this time."""
        self.new = TemporaryFile()  # noqa: SIM115 - closed with the additions
        self._seen = SeenIds()
        for record in scan_records(path, kind) if path.is_file() else ():
            if record.value is not None:
                self._is_new(record.value)
        self.size = len(self.ids)

    def _is_new(self, value: T) -> tuple[int, bool] | None:
        """Return None for an id that was not there, otherwise also whether the content is the same."""
        self.ids.add(value.id)
        # An id that is derived from texts stands for these texts, whatever ids a store gave to its chunks this time.
        return self._seen.add(value.id, encode_json_line(drop_provenance(value, derived=True)), 0)

    def add(self, record: ReadRecord[T]) -> ReadRecord[T]:
        """Keep the value of a record if it is new; return and count the record, or the reason why it is not kept."""
        value = record.value
        if value is not None:
            try:
                check_core_rules(value)
            except RecordError as error:
                record = replace(record, value=None, error=error, error_kind=WRONG_RECORD)
            else:
                earlier = self._is_new(value)
                if earlier is None:
                    self.new.write(encode_json_line(value) + b"\n")
                    self.size += 1
                elif earlier[1]:
                    record = replace(record, value=None, rejected=KNOWN)
                else:
                    problem = f"the id {value.id!r} is in the run with other content. Give every record its own id."
                    record = replace(record, value=None, error=RecordError(problem), error_kind=ID_REUSED)
        self.counter.add(record)
        return record

    def read_new(self) -> Iterator[bytes]:
        """Yield the lines of the new records."""
        self.new.seek(0)
        yield from self.new

    def write(self, path: Path) -> None:
        """Write the records of the file with the new ones behind them."""
        with AtomicFile(path) as out:
            last = b"\n"
            if self.path.is_file():
                with self.path.open("rb") as file:
                    while chunk := file.read(_CHUNK):
                        out.write(chunk)
                        last = chunk[-1:]
            if last != b"\n":
                out.write(b"\n")
            for line in self.read_new():
                out.write(line)


def _count_complete_lines(path: Path) -> int | None:
    """Return how many lines of a file were complete when it was opened; None where it has no lines of JSON."""
    require_regular_file(path)
    if not is_plain_json_lines(path):
        return None
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(partial(file.read, _CHUNK), b""))


def _mark_cut_line(record: ReadRecord[Any], complete: int | None) -> ReadRecord[Any]:
    """Return a line that was not complete, and cannot be read, as one that comes later."""
    if complete is None or record.error_kind != NOT_JSON or record.error is None:
        return record
    number = int(record.where.removeprefix("line "))
    return record if number <= complete else ReadRecord(record.where, rejected=CUT_LINE)
