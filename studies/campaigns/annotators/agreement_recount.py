"""Agreement recomputed from the rows of the database, without the package's own counting.

Labels are read out of the submitted forms here, and alpha is that of the ``krippendorff`` package.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Connection

    from .error_model import Truth

Forms: TypeAlias = dict[str, list[dict[str, str]]]
"""Submitted entries of one person, by pass."""
Pair: TypeAlias = tuple[str | None, str | None]


class Count(NamedTuple):
    """Agreement on one judgment."""

    n: int
    raw: float
    alpha: float | None
    """None where all labels are the same."""


class SubjectForms(NamedTuple):
    """Forms of all people about a response or question."""

    first: list[Forms]
    last: Forms | None
    """Forms of the adjudicator."""


def read(connection: Connection, kind: str) -> dict[str, SubjectForms]:
    """Read all submitted forms by the key of the response or question."""
    tasks: defaultdict[tuple[str, str, str], Forms] = defaultdict(dict)
    for row in connection.execute(_ROWS[kind]):
        tasks[json.loads(row.key), row.task, row.role][row.name] = json.loads(row.entries)
    subjects: dict[str, SubjectForms] = {}
    for (key, _, role), forms in sorted(tasks.items()):
        subject = subjects.setdefault(key, SubjectForms([], None))
        if role == "adjudicator":
            subjects[key] = subject._replace(last=forms)
        else:
            subject.first.append(forms)
    return subjects


def count(responses: Iterable[SubjectForms]) -> dict[str, Count]:
    """Count agreement on responses, by the rows of the paper's table."""
    pairs: defaultdict[str, list[Pair]] = defaultdict(list)
    for subject in responses:
        first, second = subject.first
        for name, pair in _pairs(first, second):
            pairs[name].append(pair)
    return {name: _count(label_pairs) for name, label_pairs in pairs.items()}


def count_screening(questions: Iterable[SubjectForms]) -> dict[str, Count]:
    """Count agreement on the screening of questions."""
    entries = [(subject.first[0]["S"][0], subject.first[1]["S"][0]) for subject in questions]
    reasons: list[Pair] = [
        (first["code"], second["code"]) for first, second in entries if first["eligible"] == second["eligible"] == "no"
    ]
    eligible: list[Pair] = [(first["eligible"], second["eligible"]) for first, second in entries]
    return {"Eligibility": _count(eligible), "Ineligibility reason": _count(reasons)}


def _pairs(first: Forms, second: Forms) -> Iterator[tuple[str, Pair]]:
    for mine, theirs in zip(first["A"], second["A"], strict=True):
        yield "Substantive status", (mine["substantive"], theirs["substantive"])
        if mine["substantive"] == theirs["substantive"] == "yes":
            yield "Step soundness", (mine["sound"], theirs["sound"])
            if mine["sound"] == theirs["sound"] == "no":
                yield "Local-failure reason", (mine["failure"], theirs["failure"])
    mine_all, theirs_all = labels(first), labels(second)
    for name in mine_all:
        yield name, (str(mine_all[name]), str(theirs_all[name]))


def labels(forms: Forms) -> dict[str, bool]:
    """Derive the labels of a response from the forms of one person."""
    aligned, closed = forms["B"][0]["aligned"] == "yes", forms["C"][0]["closed"] == "yes"
    sound = all(step.get("sound", "yes") == "yes" for step in forms["A"])
    return {
        "Alignment A": aligned,
        "Closure C": closed,
        "Answer correctness": forms["D"][0]["correct"] == "yes",
        "Completeness K": forms["D"][0]["complete"] == "yes",
        "Local soundness L": sound,
        "Global sufficiency G": aligned and closed,
        "LGG indicator": sound and not (aligned and closed),
    }


def _count(pairs: Sequence[Pair]) -> Count:
    import krippendorff  # noqa: PLC0415 - its licence keeps it among the tests

    names = sorted({str(label) for pair in pairs for label in pair})
    raw = sum(first == second for first, second in pairs) / len(pairs)
    if len(names) < 2:
        return Count(len(pairs), raw, None)
    coded = [[names.index(str(pair[side])) for pair in pairs] for side in (0, 1)]
    alpha = krippendorff.alpha(reliability_data=coded, level_of_measurement="nominal", value_domain=range(len(names)))
    return Count(len(pairs), raw, float(alpha))


def wrong(subject: SubjectForms, truth: Truth) -> bool:
    """Return whether the settled labels differ from the truth; without an adjudicator the first annotator's count."""
    forms = subject.last or subject.first[0]
    return any(
        _step(mine) != _true_step(step) for mine, step in zip(forms["A"], truth.step_labels, strict=True)
    ) or any(labels(forms)[name] is not bool(getattr(truth.verdict, field)) for name, field in _VERDICT.items())


_VERDICT = {
    "Alignment A": "aligned",
    "Closure C": "closed",
    "Answer correctness": "correct",
    "Completeness K": "complete",
}


def _step(entry: dict[str, str]) -> tuple[Any, ...]:
    return entry["substantive"] == "yes", entry.get("sound") != "no", entry.get("failure")


def _true_step(step: Any) -> tuple[Any, ...]:
    return bool(step.substantive), step.sound is not False, None if step.failure is None else str(step.failure)


_ROWS = {
    "response": text(
        "SELECT r.key, t.id AS task, t.role, s.pass AS name, s.entries FROM annotate_submissions s"
        " JOIN annotate_tasks t ON t.id = s.task JOIN annotate_responses r ON r.id = t.response"
        " WHERE t.withdrawn IS NULL"
    ),
    "screening": text(
        "SELECT q.key, t.id AS task, t.role, s.pass AS name, s.entries FROM annotate_submissions s"
        " JOIN annotate_tasks t ON t.id = s.task JOIN annotate_questions q ON q.id = t.question"
        " WHERE t.kind = 'screening'"
    ),
}
