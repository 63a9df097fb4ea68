"""Readings of the responses of a file: the rules that decided, for how many, an example of each, and doubts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.errors import UserError
from eclose.files.atomic import AtomicFile
from eclose.files.jsonl import encode_json_line, scan_records
from eclose.files.run_folder import RESPONSES_FILE
from eclose.readers.import_settings import ImportSettings
from eclose.readers.load import holds_responses, read_raw_records, scan_recorded_responses
from eclose.reading.segments import Role
from eclose.reading.text import ReadingStatus
from eclose.values.response import Response, ResponseReading, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from eclose.files.jsonl import ReadRecord

ReadingKey: TypeAlias = tuple[ReadingStatus, str | None, str]
"""Status, origin of the trace, and the rule that decided."""
PROTOCOL_RULE = "protocol"
_ANNOUNCEMENTS = frozenset({Role.PLAN, Role.QUESTION, Role.FILLER, Role.RESTATEMENT})
_NOT_LOCATED_LIMIT = 0.05
_EXAMPLE_STEPS = 2


@dataclass(frozen=True, slots=True)
class RuleReadings:
    """The responses for which one rule decided."""

    status: ReadingStatus
    origin: str | None
    rule: str
    responses: int
    emptied: int
    """Traces that lost more than half of their sentences as announcements and questions."""
    example: Response

    @property
    def name(self) -> str:
        """The rule, with the origin of the trace where that says more."""
        return self.rule if self.origin in (None, "marked", "prose") else f"{self.origin}, {self.rule}"


@dataclass(frozen=True, slots=True)
class ReadingSummary:
    """The rules that decided for the responses of a file, traces first."""

    rules: tuple[RuleReadings, ...]

    @property
    def in_protocol_layout(self) -> bool:
        """Whether every response is in the layout that ``eclose generate`` asks for."""
        return all(row.rule == PROTOCOL_RULE for row in self.rules)

    @property
    def without_trace(self) -> int:
        """Number of responses without a step."""
        return sum(row.responses for row in self.rules if not row.example.trace.steps)

    @property
    def responses(self) -> int:
        """Number of responses that were read."""
        return sum(row.responses for row in self.rules)

    @property
    def cautions(self) -> tuple[str, ...]:
        """Doubts to look at before a judge is paid, a sentence each."""
        traced = [row for row in self.rules if row.status is ReadingStatus.TRACE]
        traces, emptied = sum(row.responses for row in traced), sum(row.emptied for row in traced)
        unlocated = sum(row.responses for row in traced if row.example.reading and not row.example.reading.located)
        marked = sum(row.responses for row in self.rules if row.rule.startswith((PROTOCOL_RULE, "named line")))
        prose = sum(row.responses for row in traced if row.origin == "prose")
        cautions = []
        if emptied:
            cautions.append(
                f"{emptied:,} of {traces:,} traces lost more than half of their sentences as announcements: look at "
                "them before you trust C (eclose data read)."
            )
        if unlocated > _NOT_LOCATED_LIMIT * self.responses:
            cautions.append(
                f"In {unlocated:,} of {self.responses:,} responses the answer is not told apart from its explanation, "
                'and the judge looks for it: end responses with "Final answer: ...", or name your own line as '
                "answer_marker in --recipe."
            )
        if prose and marked >= prose:
            cautions.append(
                f"{marked:,} responses mark their answer and {prose:,} do not: is a marker missing? Name it as "
                "answer_marker in --recipe."
            )
        return tuple(cautions)

    def to_json(self) -> list[dict[str, Any]]:
        """Return a dictionary of JSON values for each rule."""
        return [
            {
                "status": row.status.value,
                "origin": row.origin,
                "rule": row.rule,
                "responses": row.responses,
                "example": row.example.id,
            }
            for row in self.rules
        ]


def summarize_readings(responses: Iterable[Response]) -> ReadingSummary:
    """Count the responses by the rule that decided, and keep the first of each as its example.

    Examples:
        >>> text = "She was born in Lund.\\nFinal answer: Lund"
        >>> summary = summarize_readings([Response.from_completion("r1", "q1", text)])
        >>> [(row.status.value, row.rule, row.responses) for row in summary.rules]
        [('trace', 'protocol', 1)]
    """
    counts: dict[ReadingKey, list[int]] = {}
    examples: dict[ReadingKey, Response] = {}
    for response in responses:
        key = find_rule(response.reading, response.trace, response.answer)
        examples.setdefault(key, response)
        count = counts.setdefault(key, [0, 0])
        count[0] += 1
        count[1] += _is_emptied(response)
    order = list(ReadingStatus)
    rules = [
        RuleReadings(
            status=status, origin=origin, rule=rule, responses=number, emptied=emptied,
            example=examples[status, origin, rule],
        )
        for (status, origin, rule), (number, emptied) in counts.items()
    ]  # fmt: skip
    return ReadingSummary(tuple(sorted(rules, key=lambda row: (order.index(row.status), -row.responses))))


def find_rule(reading: ResponseReading | None, trace: Trace, answer: str | None) -> ReadingKey:
    """Return status, origin of the trace and rule of a response; one in the protocol's layout has no reading."""
    if reading is not None:
        return ReadingStatus(reading.status), reading.origin, reading.rule
    status = ReadingStatus.TRACE if trace.steps else ReadingStatus.NO_TRACE
    return status if answer is not None else ReadingStatus.INCOMPLETE, "marked" if trace.steps else None, PROTOCOL_RULE


def _is_emptied(response: Response) -> bool:
    left_out = () if response.reading is None else response.reading.left_out
    return 0 < len(response.trace.steps) < sum(part.role in _ANNOUNCEMENTS for part in left_out)


def show_reading(response: Response) -> str:
    """Return the first steps and the answer of a response on one line."""
    steps = [" ".join(text.split()) for text in response.trace.texts]
    more = [f"({len(steps) - _EXAMPLE_STEPS} more)"] if len(steps) > _EXAMPLE_STEPS else []
    answer = " ".join((response.answer or "none").split())
    left_out = len(response.reading.left_out) if response.reading is not None else 0
    note = f" (left out: {left_out})" if left_out else ""
    return " | ".join([f"answer: {answer}{note}", *steps[:_EXAMPLE_STEPS], *more])


def scan_readings(path: Path, *, settings: ImportSettings | None = None) -> Iterator[ReadRecord[Response]]:
    """Yield the responses of a run's folder, a file of responses, or a file of another tool, as they are read.

    Raises:
        UserError: The file as a whole cannot be read.
    """
    path = path / RESPONSES_FILE if path.is_dir() else path
    if holds_responses(path):
        return scan_records(path, Response)
    return scan_recorded_responses(path, settings=settings)


def write_reading_cases(
    path: Path,
    ids: Iterable[str],
    out: Path,
    *,
    settings: ImportSettings | None = None,
) -> int:
    """Write chosen responses, each beside the record that it was read from, so that they can be sent as an issue.

    Args:
        path: The file that holds the records.
        ids: Ids of the responses.
        out: File to write, one JSON object a line.
        settings: How the file is read.

    Returns:
        The number of responses written.

    Raises:
        UserError: The file has no response of such an id.
    """
    settings, ids = settings or ImportSettings(), set(ids)
    records = scan_readings(path, settings=settings)
    chosen = {row.where: row.value for row in records if row.value is not None and row.value.id in ids}
    if missing := ids - {response.id for response in chosen.values()}:
        raise UserError(f"{path}: has no response with the id {', '.join(map(repr, sorted(missing)))}.")
    # The spans of a trace lie in several records, so its place names none of them.
    raw = {record.where: record.value for record in read_raw_records(path, settings) if record.where in chosen}
    with AtomicFile(out) as file:
        for where, response in chosen.items():
            case = {"where": where, "record": raw.get(where), "response": json.loads(encode_json_line(response))}
            file.write(json.dumps(case, ensure_ascii=False).encode() + b"\n")
    return len(chosen)
