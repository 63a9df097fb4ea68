"""Agreement by person and by pair of people, before adjudication. No label is named."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eclose.values.judgment import Judgment
    from eclose_annotate.annotations import AnnotationSet

COMPARED_LABELS = ("L", "A", "C", "K", "Acc", "eligible")
"""Names of the compared labels, in the order of the columns."""


class LabelMatch(NamedTuple):
    """How often two people, or a person and colleagues, gave the same label."""

    equal: int
    compared: int

    @property
    def share(self) -> float | None:
        """Share of equal labels; None where nothing was compared."""
        return self.equal / self.compared if self.compared else None


class PeopleAgreement(NamedTuple):
    """Agreement of a pair of people, or of one person with all others."""

    people: tuple[str, ...]
    subjects: int
    """Responses and questions that were compared."""
    labels: Mapping[str, LabelMatch]
    """By name of the label; without labels that were not compared."""

    @property
    def overall(self) -> LabelMatch:
        """Over all labels together."""
        return LabelMatch(
            sum(match.equal for match in self.labels.values()), sum(match.compared for match in self.labels.values())
        )


def measure_pair_agreement(annotations: AnnotationSet) -> tuple[PeopleAgreement, ...]:
    """Return the agreement of every pair of people with a common response or question, lowest first."""
    return _sum_by_people(
        PeopleAgreement(
            pair, 1, {name: LabelMatch(first[name] == second[name], 1) for name in first.keys() & second.keys()}
        )
        for pair, first, second in _paired_labels(annotations)
    )


def measure_person_agreement(pairs: Iterable[PeopleAgreement]) -> tuple[PeopleAgreement, ...]:
    """Return the agreement of each person with all others, lowest first, from that of the pairs."""
    return _sum_by_people(pair._replace(people=(person,)) for pair in pairs for person in pair.people)


def _sum_by_people(parts: Iterable[PeopleAgreement]) -> tuple[PeopleAgreement, ...]:
    """Return the sum of the parts of the same people, lowest agreement first."""
    groups: defaultdict[tuple[str, ...], list[PeopleAgreement]] = defaultdict(list)
    for part in parts:
        groups[part.people].append(part)
    agreements = []
    for people, group in groups.items():
        matches = {name: [part.labels[name] for part in group if name in part.labels] for name in COMPARED_LABELS}
        labels = {
            name: LabelMatch(sum(match.equal for match in rows), sum(match.compared for match in rows))
            for name, rows in matches.items()
            if rows
        }
        agreements.append(PeopleAgreement(people, sum(part.subjects for part in group), labels))
    shares = {agreement.people: agreement.overall.share for agreement in agreements}
    order = {people: 1.0 if share is None else share for people, share in shares.items()}
    return tuple(sorted(agreements, key=lambda agreement: (order[agreement.people], agreement.people)))


def _paired_labels(
    annotations: AnnotationSet,
) -> Iterator[tuple[tuple[str, str], Mapping[str, bool], Mapping[str, bool]]]:
    """Yield every two people who finished the same subject, sorted by name, with their labels."""
    for response in annotations.responses:
        yield from _pairs(
            (row.annotator, _judgment_labels(row.judgment)) for row in response.annotations if row.judgment
        )
    for question in annotations.questions:
        screened = ((row.annotator, row.screening.eligible) for row in question.annotations if row.screening)
        yield from _pairs((name, {} if label is None else {"eligible": label}) for name, label in screened)


def _pairs(
    rows: Iterable[tuple[str | None, Mapping[str, bool]]],
) -> Iterator[tuple[tuple[str, str], Mapping[str, bool], Mapping[str, bool]]]:
    named = sorted(((person, labels) for person, labels in rows if person is not None), key=lambda row: row[0])
    for (first, labels), (second, others) in combinations(named, 2):
        yield (first, second), labels, others


def _judgment_labels(judgment: Judgment) -> dict[str, bool]:
    labels = {
        "L": judgment.locally_sound,
        "A": judgment.aligned,
        "C": judgment.closed,
        "K": judgment.complete,
        "Acc": judgment.correct,
    }
    # Undefined is not compared: a response without a reference has neither K nor Acc.
    return {name: label for name, label in labels.items() if label is not None}
