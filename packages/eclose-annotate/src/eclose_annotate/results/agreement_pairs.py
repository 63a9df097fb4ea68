"""Agreement by person and by pair of people, before adjudication. No label is named."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eclose.values.judgment import Judgment, QuestionScreening
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
    equal: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    compared: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    subjects: Counter[tuple[str, ...]] = Counter()
    for pair, first, second in _paired_labels(annotations):
        subjects[pair] += 1
        for name in first.keys() & second.keys():
            compared[pair][name] += 1
            equal[pair][name] += first[name] == second[name]
    agreements = (_agreement(pair, subjects[pair], equal[pair], compared[pair]) for pair in subjects)
    return tuple(sorted(agreements, key=_lowest_first))


def measure_person_agreement(pairs: Iterable[PeopleAgreement]) -> tuple[PeopleAgreement, ...]:
    """Return the agreement of each person with all others, lowest first, from that of the pairs."""
    equal: defaultdict[str, Counter[str]] = defaultdict(Counter)
    compared: defaultdict[str, Counter[str]] = defaultdict(Counter)
    subjects: Counter[str] = Counter()
    for pair in pairs:
        for person in pair.people:
            subjects[person] += pair.subjects
            equal[person].update({name: match.equal for name, match in pair.labels.items()})
            compared[person].update({name: match.compared for name, match in pair.labels.items()})
    agreements = (_agreement((person,), subjects[person], equal[person], compared[person]) for person in subjects)
    return tuple(sorted(agreements, key=_lowest_first))


def _agreement(
    people: tuple[str, ...], subjects: int, equal: Mapping[str, int], compared: Mapping[str, int]
) -> PeopleAgreement:
    labels = {name: LabelMatch(equal[name], compared[name]) for name in COMPARED_LABELS if compared.get(name)}
    return PeopleAgreement(people, subjects, labels)


def _lowest_first(agreement: PeopleAgreement) -> tuple[float, tuple[str, ...]]:
    share = agreement.overall.share
    return 1.0 if share is None else share, agreement.people


def _paired_labels(
    annotations: AnnotationSet,
) -> Iterator[tuple[tuple[str, str], Mapping[str, bool], Mapping[str, bool]]]:
    """Yield every two people who finished the same subject, sorted by name, with their labels."""
    for response in annotations.responses:
        judged = [(row.annotator, _judgment_labels(row.judgment)) for row in response.annotations if row.judgment]
        yield from _pairs(judged)
    for question in annotations.questions:
        screened = [(row.annotator, _screening_labels(row.screening)) for row in question.annotations if row.screening]
        yield from _pairs(screened)


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


def _screening_labels(screening: QuestionScreening) -> dict[str, bool]:
    return {} if screening.eligible is None else {"eligible": screening.eligible}
