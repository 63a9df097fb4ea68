"""Labels made elsewhere: one row for each response and annotator, as JSON Lines, a table, or Label Studio's export.

Our own ``annotations.jsonl`` is read the same way, whole. Everything that is wrong with all files is told at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.annotation.forms import TaskKind
from eclose.annotation.results import label_studio
from eclose.annotation.results.annotations import Annotation, Row, ScreeningAnnotation, Told, questions_of, responses_of
from eclose.annotation.results.project_annotations import Material
from eclose.cases import read_run_files
from eclose.core.judgment import WHOLE_TRACE, Criterion, Ineligibility, Judgment, Screening, StepJudgment
from eclose.core.response import Source
from eclose.errors import RecordError, SettingError, UserError
from eclose.store.records.csv_table import LABEL_WORDS, read_csv, unescape_formula
from eclose.store.records.json_reader import read_objects
from eclose.store.records.jsonl import check_rules, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from eclose.core.three_valued import Label
    from eclose.store.records.json_reader import JsonObject

NOT_LABELLED = "no label was given"
_TABLES = (".csv", ".tsv")
_MOST = 20
_LETTERS = {
    "locally_sound": Criterion.LOCAL_SOUNDNESS,
    "aligned": Criterion.ALIGNMENT,
    "closed": Criterion.CLOSURE,
    "complete": Criterion.COMPLETENESS,
    "correct": Criterion.CORRECTNESS,
}
_ORIGIN = ("question_id", "benchmark", "model", "method", "seed", "asked")
NAMES = ("response_id", "annotator", "adjudicates", *_LETTERS, *_ORIGIN, "eligible", "code")
"""The columns that are read; labels also by the paper's letters. The last two are of questions."""


class ImportedLabels(NamedTuple):
    """What was read."""

    told: Told
    skipped: int
    """Tasks that somebody passed over in Label Studio."""


@dataclass(slots=True)
class _Reading:
    """What was read so far."""

    columns: Mapping[str, str]
    run: Material | None
    items: Mapping[str, str] = field(default_factory=dict)
    """The responses of the run by what stands for them in Label Studio."""
    annotations: list[Annotation] = field(default_factory=list)
    screenings: list[ScreeningAnnotation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skipped: int = 0
    people: dict[tuple[object, ...], str] = field(default_factory=dict)
    """Where each person's word on each subject stands."""
    shapes: dict[tuple[object, ...], tuple[object, str]] = field(default_factory=dict)
    """What all rows of a subject must share, and where it was first told."""


def read_run_material(run: Path) -> Material:
    """Read the questions and responses of a run's folder; raises where one id stands for two of either."""
    files = read_run_files(run)
    instances, responses = dict(files.instances), {response.id: response for response in files.responses}
    if lost := [one.id for one in responses.values() if one.instance_id not in instances]:
        raise UserError(f"{run}: the question of response {lost[0]!r} is missing, and {len(lost) - 1} more.")
    return Material(instances, responses)


def read_labels(
    paths: Sequence[Path],
    *,
    columns: Mapping[str, str] | None = None,
    run: Material | None = None,
    per_response: int | None = None,
) -> ImportedLabels:
    """Everything that people said in these files.

    ``columns`` names the columns of a file by what they are here. ``run`` tells which question a response answers,
    where the files do not. ``per_response`` is how many people were to label each; the most that any has, if None.
    """
    if unknown := sorted(set(columns or {}) - set(NAMES)):
        raise SettingError(f"there is no {', '.join(unknown)} to be read. Choose from: {', '.join(NAMES)}.")
    items = {} if run is None else {label_studio.opaque_id(one): one for one in run.responses}
    reading = _Reading(columns or {}, run, items)
    for path in paths:
        for where, row in _rows(path):
            _take(reading, path, where, row)
    if reading.problems:
        listed = reading.problems[:_MOST]
        more = len(reading.problems) - len(listed)
        listed += [f"and {more} more"] if more else []
        raise UserError(f"these labels cannot be used as they are. {'; '.join(listed)}.")
    if not reading.annotations and not reading.screenings:
        raise UserError(f"{', '.join(map(str, paths))}: there is no label in it. Is this the file you meant?")
    annotations = _asked(reading.annotations, lambda one: one.response_id, per_response)
    screenings = _asked(reading.screenings, lambda one: one.question_id, None)
    return ImportedLabels(Told(responses_of(annotations), questions_of(screenings)), reading.skipped)


def _rows(path: Path) -> Iterator[tuple[str, JsonObject | RecordError]]:
    if path.suffix.lower() in _TABLES:
        for where, cells in read_csv(path)[1]:
            yield where, {name: unescape_formula(cell) for name, cell in cells.items()}
        return
    for raw in read_objects(path):
        if raw.value is not None:
            yield raw.where, raw.value
        elif raw.error is not None:
            yield raw.where, raw.error


def _take(reading: _Reading, path: Path, where: str, row: JsonObject | RecordError) -> None:
    """One row into what it is, or its problem."""
    place = f"{path} {where}"
    try:
        if isinstance(row, RecordError):
            raise row
        for one in _read(reading, row):
            if one is None:
                reading.skipped += 1
            elif isinstance(one, ScreeningAnnotation):
                _note(reading, place, one, one.question_id, one.asked)
                reading.screenings.append(one)
            else:
                steps = len(one.judgment.steps) if one.judgment and one.kind is TaskKind.RESPONSE else None
                _note(reading, place, one, one.response_id, (one.question_id, one.kind, one.asked), steps)
                reading.annotations.append(one)
    except RecordError as error:
        reading.problems.append(f"{place}: {error.problem}")


def _note(
    reading: _Reading,
    place: str,
    one: Annotation | ScreeningAnnotation,
    subject: str,
    shape: object,
    steps: int | None = None,
) -> None:
    """Refuse one person twice, a second adjudicator, and rows of a subject that do not belong together."""
    who = "an adjudicator" if one.adjudicates else str(one.annotator)
    before = reading.people.setdefault((type(one), subject, who), place)
    if before is not place:
        raise RecordError(f"{subject!r} was labelled by {who} before ({before}); keep one")
    known, first = reading.shapes.setdefault((type(one), subject), (shape, place))
    if known != shape:
        raise RecordError(f"{subject!r} has another question, form or number of people than in {first}")
    judged, first = reading.shapes.setdefault(("steps", subject), (steps, place)) if steps is not None else (None, "")
    if judged != steps:
        raise RecordError(f"{subject!r} has {steps} steps, and {judged} in {first}")


def _read(reading: _Reading, row: JsonObject) -> Iterator[Annotation | ScreeningAnnotation | None]:
    if label_studio.is_task(row):
        yield from _task(reading, row)
    elif "judgment" in row or ("kind" in row and "annotator" not in row):
        yield _own(decode(Annotation, row))
    elif "screening" in row or ("asked" in row and not {"annotator", "response_id"} & row.keys()):
        yield _own(decode(ScreeningAnnotation, row))
    elif _value(row, reading.columns.get("response_id", "response_id")) is None and "eligible" in row:
        yield _flat_screening(reading, row)
    else:
        yield _flat(reading, row)


def _own(one: Any) -> Any:
    """A record of ours; what it holds must be of its own response and person."""
    first = one.judgment if isinstance(one, Annotation) else one.screening
    if (one.annotator is None) != (first is None):
        raise RecordError("annotator and what they said must both be given, or neither")
    subject = one.response_id if isinstance(one, Annotation) else one.question_id
    for said in (first, one.amended):
        if said is not None:
            check_rules(said)
            of = said.response_id if isinstance(said, Judgment) else said.id
            if (of, said.judge) != (subject, one.annotator):
                raise RecordError(
                    f"holds what {said.judge!r} said of {of!r}; it is of {one.annotator!r} and {subject!r}"
                )
    return one


def _task(reading: _Reading, row: JsonObject) -> Iterator[Annotation | None]:
    wrong = []
    for one in label_studio.read_task_labels(row, reading.items):
        if isinstance(one, str):
            wrong.append(one)
        elif one is None:
            yield None
        else:
            person, judgment = one
            yield _annotation(reading, {"response_id": judgment.response_id, "annotator": person}, judgment)
    if wrong:
        raise RecordError("; ".join(wrong))


def _flat(reading: _Reading, row: JsonObject) -> Annotation:
    values = {name: _value(row, reading.columns.get(name, name)) for name in NAMES}
    labels, wrong = _labels(reading, row, ("adjudicates", *_LETTERS))
    values["adjudicates"] = labels.pop("adjudicates", None)
    unlabelled = all(label is None for label in labels.values())
    if values["annotator"] is None and unlabelled and values["asked"] is not None:
        return _annotation(reading, values, None)
    wrong[:0] = [f"{name}: is empty" for name in ("response_id", "annotator") if values[name] is None]
    if not wrong and unlabelled:
        wrong.append(f"there is no label; the columns are called {', '.join(_LETTERS)}, or name them with --column")
    if wrong:
        raise RecordError("; ".join(wrong))
    return _annotation(reading, values, _judgment(str(values["response_id"]), str(values["annotator"]), labels))


def _flat_screening(reading: _Reading, row: JsonObject) -> ScreeningAnnotation:
    """A row about a question."""
    values = {name: _value(row, reading.columns.get(name, name)) for name in NAMES}
    labels, wrong = _labels(reading, row, ("adjudicates", "eligible"))
    code, eligible, person = values["code"], labels.get("eligible"), values["annotator"]
    nobody = person is None and eligible is None and values["asked"] is not None
    wrong += [f"{name}: is empty" for name in ("question_id", "annotator") if values[name] is None and not nobody]
    if not wrong and not nobody and (eligible is None or (code is None) is not eligible):
        wrong.append("eligible needs yes, or no with a code")
    if code is not None and code not in list(Ineligibility):
        wrong.append(f"code: {code!r} is none of {', '.join(Ineligibility)}")
    if wrong:
        raise RecordError("; ".join(wrong))
    question, reason = str(values["question_id"]), None if code is None else Ineligibility(str(code))
    return ScreeningAnnotation(
        question,
        _number(values, "asked") or 0,
        None if person is None else str(person),
        None if person is None else Screening(question, str(person), eligible, reason),
        adjudicates=bool(labels.get("adjudicates")),
        benchmark=None if values["benchmark"] is None else str(values["benchmark"]),
    )


def _labels(reading: _Reading, row: JsonObject, names: Sequence[str]) -> tuple[dict[str, Label], list[str]]:
    """Labels by name, and what is none."""
    labels: dict[str, Label] = {}
    wrong = []
    for name in names:
        column = reading.columns.get(name, name)
        given = row[column] if column in row else row.get(_LETTERS.get(name, column))
        if (word := _word(given)) in LABEL_WORDS:
            labels[name] = LABEL_WORDS[word]
        else:
            wrong.append(f"{column}: {given!r} is no label; write yes or no")
    return labels, wrong


def _word(given: object) -> str:
    """A label as people write it; 1.0 is how some programs write 1 beside a gap."""
    return "" if given is None else str(given).strip().lower().removesuffix(".0")


def _value(row: JsonObject, column: str) -> object:
    value = row.get(column)
    return value.strip() or None if isinstance(value, str) else value


def _judgment(response_id: str, annotator: str, labels: Mapping[str, Label]) -> Judgment:
    sound = labels["locally_sound"]
    return Judgment(
        response_id,
        annotator,
        () if sound is None else (StepJudgment(True, sound, reason=WHOLE_TRACE),),
        labels["aligned"],
        labels["closed"],
        labels["complete"],
        labels["correct"],
        unjudged={_LETTERS[name]: NOT_LABELLED for name, label in labels.items() if label is None},
    )


def _annotation(reading: _Reading, values: Mapping[str, Any], judgment: Judgment | None) -> Annotation:
    """A row without steps, with what the run knows of its response."""
    response_id, question = str(values["response_id"]), values.get("question_id")
    benchmark, source = values.get("benchmark"), _source(values)
    if reading.run is not None:
        response = reading.run.responses.get(response_id)
        if response is None:
            raise RecordError(f"{response_id!r} is no response of the run")
        if question not in (None, response.instance_id):
            raise RecordError(f"{response_id!r} answers {response.instance_id!r} in the run, not {question!r}")
        question, source = response.instance_id, response.source
        benchmark = reading.run.instances[question].benchmark
    if question is None:
        raise RecordError("question_id: is empty; add the column, or name the run with --run")
    return Annotation(
        response_id,
        str(question),
        TaskKind.SHORT,
        _number(values, "asked") or 0,  # where no row says it, it is known when all rows are
        None if judgment is None else judgment.judge,
        judgment,
        adjudicates=bool(values.get("adjudicates")),
        benchmark=None if benchmark is None else str(benchmark),
        source=source,
    )


def _source(values: Mapping[str, Any]) -> Source | None:
    model, method = values.get("model"), values.get("method")
    seed = _number(values, "seed")
    return None if model is None else Source(str(model), None if method is None else str(method), seed)


def _number(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    try:
        return None if value is None else int(value)
    except ValueError as error:
        raise RecordError(f"{name}: {value!r} is no number") from error


def _asked(rows: Sequence[Row], subject: Callable[[Row], str], per_response: int | None) -> Iterator[Row]:
    """With how many were asked, where the rows do not say: the most that any subject has, unless told otherwise."""
    given = Counter(subject(one) for one in rows if not one.asked and not one.adjudicates)
    wanted = per_response or max(given.values(), default=1)
    for one in rows:
        yield one if one.asked else replace(one, asked=max(wanted, given[subject(one)]))
