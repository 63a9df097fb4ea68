"""People's verdicts on responses of an experiment."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from eclose.errors import RecordError, UserError
from eclose.judging.validation_file import read_people_verdicts
from eclose.store.runs.verify_files import check_verdicts_provenance

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from eclose.core.verdict import SettledVerdict


class PeopleLabels(NamedTuple):
    """Judged responses with people's verdicts."""

    pairs: list[tuple[SettledVerdict, SettledVerdict]]
    """The judged response and the row of people's verdict."""
    not_in_runs: int
    """Labels of responses outside the experiment."""


def read_people_labels(path: Path, judged: Sequence[SettledVerdict]) -> PeopleLabels:
    """Read people's verdicts and find the response of each.

    A verdict names its response by the id in the experiment, which ``audit sample`` writes, or by the id in the file
    of responses together with its source; the source may be left out where only one cell has the id.

    Args:
        path: File of people's verdicts.
        judged: Responses of the experiment, with ids of the form ``STAGE/ID``.

    Raises:
        UserError: No verdict is on a response of the experiment, or a verdict fits responses of several cells.
        RecordError: A response has two verdicts, or a verdict is on another question.
    """
    check_verdicts_provenance(path)
    by_id = {row.response_id: row for row in judged}
    by_short_id: defaultdict[str, list[SettledVerdict]] = defaultdict(list)
    for row in judged:
        by_short_id[row.response_id.partition("/")[2]].append(row)
    pairs: dict[str, tuple[SettledVerdict, SettledVerdict]] = {}
    not_in_runs = 0
    for people in read_people_verdicts(path):
        same_id = [by_id[people.response_id]] if people.response_id in by_id else by_short_id[people.response_id]
        rows = [row for row in same_id if people.source is None or row.source == people.source]
        record = f"response {people.response_id}"
        if len(rows) > 1:
            raise UserError(f"{path}: {record} is in {len(rows)} cells. Name the source of the response in its row.")
        if not rows:
            not_in_runs += 1
            continue
        if rows[0].instance_id != people.instance_id:
            raise RecordError(f"the verdict is on question {people.instance_id!r}, not on its own.", record=record)
        if pairs.setdefault(rows[0].response_id, (rows[0], people))[1] != people:
            raise RecordError("has two different verdicts. Adjudicate them.", record=record)
    if not pairs:
        raise UserError(f"{path}: no verdict is on a judged response of this experiment. Check that it belongs here.")
    return PeopleLabels(list(pairs.values()), not_in_runs)
