"""What an audit says: how far people agreed, and how many families pass (appendix B.6).

A view passes when all that is asked of it was answered with yes, a family when its three views pass. Where people agree
on the family that is settled; where they do not, a third person decides the views on which they differ. What is neither
stays open: then there are bounds and no rate. Two people who fail a family for different views agree on the family, so
nobody else is asked, and those views stay open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.construction.audit.forms import FilledForm
from eclose.core.family import ViewKind
from eclose.core.three_valued import Label, conjunction
from eclose.errors import SettingError
from eclose.stats.arrays import codes
from eclose.stats.bootstrap import weighted_rates
from eclose.stats.coefficients import MISSING, gwet_ac1, pair_tables, raw_agreement
from eclose.stats.intervals import Interval
from eclose.stats.rates import Rate
from eclose.stats.resampling import Strata
from eclose.store.records.json_reader import raise_problems

if TYPE_CHECKING:
    from pathlib import Path

    from eclose.construction.audit.sample import AuditItem, AuditKey

FAMILY = "Family"
COLUMNS = (*map(str, ViewKind), FAMILY)
"""What is reported on: the three views, and the family as a whole."""

_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class AnnotatorForms:
    """One person's forms, by family."""

    annotator: int
    """From 1; one more than there are annotators is whoever settles disagreements."""
    forms: Mapping[str, FilledForm]

    def labels(self, family_id: str) -> tuple[Label, ...]:
        """Whether the three views and the family pass; open where there is no form."""
        form = self.forms.get(family_id)
        views = tuple(None if form is None else form.passes(kind) for kind in ViewKind)
        return (*views, conjunction(views))


def match_forms(key: AuditKey, path: Path, forms: Sequence[FilledForm]) -> AnnotatorForms:
    """Forms under the families they are of. What is unknown, repeated or somebody else's is refused, all at once."""
    owners = {one: (number, item) for item in key.items for number, one in enumerate(item.forms, start=1)}
    found: dict[str, FilledForm] = {}
    problems = []
    for form in forms:
        if form.id not in owners:
            problems.append(f"{form.where}: the id {form.id!r} is of no form of this audit")
            continue
        item = owners[form.id][1]
        if item.family_id in found:
            problems.append(f"{form.where}: the form {form.id!r} is there twice; keep one")
        if _WORD.findall(form.question.lower()) != _WORD.findall(item.shown.question.lower()):
            problems.append(
                f"{form.where}: {form.id!r} has another question than was handed out; was one column sorted alone?"
            )
        found[item.family_id] = form
    people = {owners[form.id][0] for form in forms if form.id in owners}
    if len(people) > 1:
        problems.append(f"the forms are those of several people: {', '.join(map(str, sorted(people)))}")
    raise_problems(path, problems)
    return AnnotatorForms(people.pop(), found)


class FamilyOutcome(NamedTuple):
    """One audited family."""

    item: AuditItem
    labels: tuple[Label, ...]
    """The three views and the family, as far as they are settled."""
    disputed: tuple[ViewKind, ...]
    """Where people disagree on the family: the views of which one says that they pass and another that they do not."""


def settle_families(
    key: AuditKey, sheets: Sequence[AnnotatorForms], third: AnnotatorForms | None = None
) -> list[FamilyOutcome]:
    """Every audited family. The third person's word counts where the others disagree, and nowhere else."""
    return [_outcome(item, sheets, third) for item in key.items]


def _outcome(item: AuditItem, sheets: Sequence[AnnotatorForms], third: AnnotatorForms | None) -> FamilyOutcome:
    answers = [sheet.labels(item.family_id) for sheet in sheets]
    decisions = {labels[-1] for labels in answers}
    views: list[Label] = []
    disputed = []
    for index, kind in enumerate(ViewKind):
        labels = {answer[index] for answer in answers}
        if {True, False} <= labels and {True, False} <= decisions:
            disputed.append(kind)
            views.append(None if third is None else third.labels(item.family_id)[index])
        else:
            views.append(labels.pop() if len(labels) == 1 else None)
    family = False if decisions == {False} else conjunction(views)
    return FamilyOutcome(item, (*views, family), tuple(disputed))


@dataclass(frozen=True, slots=True)
class ReturnedForms:
    """What came back from one person: returned + missing = what was to come back."""

    annotator: int
    expected: int
    complete: int
    half_filled: tuple[str, ...]
    """Ids of forms, as all the following."""
    blank: tuple[str, ...]
    missing: tuple[str, ...]
    surplus: tuple[str, ...] = ()
    """Of the third person: forms of families nobody disputes, which are not used."""


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """How far two people agree before anybody settles anything."""

    annotators: tuple[int, int]
    what: str
    n: int
    """Families of which both said it."""
    agreed: int
    raw: float | None
    ac1: float | None


@dataclass(frozen=True, slots=True)
class PassRate:
    """How many pass. Without a value there are bounds: what could still come out."""

    passed: int
    settled: int
    open: int
    value: float | None
    interval: Interval | None
    bounds: Interval | None


@dataclass(frozen=True, slots=True)
class WeightedPassRate:
    """A pass rate of the whole corpus."""

    value: float | None
    interval: Interval | None
    bounds: Interval | None
    constant: bool = False
    """Whether all audited families of each dataset say the same, so that resampling them shows no spread."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """All of it, as it is written."""

    guideline: str
    corpus: str
    seed: int
    resamples: int
    sizes: Mapping[str, int]
    audited: Mapping[str, int]
    handed: tuple[ReturnedForms, ...]
    agreement: tuple[PairAgreement, ...]
    disputed: tuple[str, ...]
    """Ids of families, as all the following."""
    unresolved: tuple[str, ...]
    """Of the disputed: those nobody has settled."""
    datasets: Mapping[str, Mapping[str, PassRate]]
    unweighted: Mapping[str, PassRate]
    weighted: Mapping[str, WeightedPassRate]
    failing: Mapping[str, tuple[str, ...]]
    """Families with the views that do not pass."""
    open: tuple[str, ...]
    notes: tuple[tuple[str, int, str], ...]
    """Family, person and what was noted."""


def build_audit_report(
    key: AuditKey,
    sheets: Sequence[AnnotatorForms],
    third: AnnotatorForms | None = None,
    *,
    seed: int = 42,
    resamples: int = 2_000,
) -> AuditReport:
    """The report of an audit from what everybody wrote."""
    _refuse_other_people(key, sheets, third)
    sheets = sorted(sheets, key=lambda sheet: sheet.annotator)
    outcomes = settle_families(key, sheets, third)
    groups = {name: [one for one in outcomes if one.item.dataset == name] for name in key.sizes}
    passing = {name: _passing(group) for name, group in groups.items()}
    disputed = [one for one in outcomes if one.disputed]
    handed = [_handed(key.items, sheet) for sheet in sheets]
    if third is not None:
        handed.append(_handed([one.item for one in disputed], third))
    everybody = (*sheets, *([third] if third else []))
    return AuditReport(
        key.guideline,
        key.corpus,
        seed,
        resamples,
        key.sizes,
        {name: len(group) for name, group in groups.items()},
        tuple(handed),
        tuple(_agreements(key, sheets)),
        tuple(one.item.family_id for one in disputed),
        tuple(one.item.family_id for one in disputed if _unresolved(one)),
        passing,
        _passing(outcomes, interval=False),
        _weighted(key.sizes, groups, passing, seed=seed, resamples=resamples),
        {one.item.family_id: failed for one in outcomes if (failed := _failed(one))},
        tuple(one.item.family_id for one in outcomes if None in one.labels),
        tuple(_notes(key.items, everybody)),
    )


def _refuse_other_people(key: AuditKey, sheets: Sequence[AnnotatorForms], third: AnnotatorForms | None) -> None:
    given, wanted = sorted(sheet.annotator for sheet in sheets), list(range(1, key.annotators + 1))
    if given != wanted:
        raise SettingError(
            f"the forms of annotators {', '.join(map(str, wanted))} are needed, one file each; given were those of "
            f"{', '.join(map(str, given))}. Forms of {key.annotators + 1} go with --adjudicated."
        )
    if third is not None and third.annotator != key.annotators + 1:
        raise SettingError(
            f"--adjudicated: these are the forms of annotator {third.annotator}. A third person fills in the forms "
            "that the report writes where annotators disagree."
        )


def _handed(items: Sequence[AuditItem], sheet: AnnotatorForms) -> ReturnedForms:
    wanted = {item.family_id: item.forms[sheet.annotator - 1] for item in items}
    there = {form.id: form for family, form in sheet.forms.items() if family in wanted}
    blank = tuple(one for one, form in there.items() if form.blank)
    half = tuple(one for one, form in there.items() if form.unanswered and not form.blank)
    missing = tuple(one for one in wanted.values() if one not in there)
    surplus = tuple(form.id for family, form in sheet.forms.items() if family not in wanted)
    complete = len(there) - len(blank) - len(half)
    return ReturnedForms(sheet.annotator, len(wanted), complete, half, blank, missing, surplus)


def _agreements(key: AuditKey, sheets: Sequence[AnnotatorForms]) -> list[PairAgreement]:
    found = []
    for first, second in combinations(sheets, 2):
        one, other = (
            np.array([[MISSING if label is None else int(label) for label in sheet.labels(item.family_id)]
                      for item in key.items], np.intp)
            for sheet in (first, second)
        )  # fmt: skip
        for place, what in enumerate(COLUMNS):
            table = pair_tables(one[:, place], other[:, place], 2).sum(axis=0)
            n, agreed = int(table.sum()), int(np.trace(table))
            pair = (first.annotator, second.annotator)
            found.append(PairAgreement(pair, what, n, agreed, raw_agreement(table), gwet_ac1(table)))
    return found


def _passing(outcomes: Sequence[FamilyOutcome], *, interval: bool = True) -> dict[str, PassRate]:
    """Pass rates of some families. Without an interval where they are a mixture of strata."""
    passing = {}
    for place, what in enumerate(COLUMNS):
        rate = Rate.of(one.labels[place] for one in outcomes)
        known = not rate.unjudged
        passing[what] = PassRate(
            rate.hits,
            rate.n,
            rate.unjudged,
            rate.value if known else None,
            rate.wilson if known and interval else None,
            rate.bounds,
        )
    return passing


def _weighted(
    sizes: Mapping[str, int],
    groups: Mapping[str, Sequence[FamilyOutcome]],
    passing: Mapping[str, Mapping[str, PassRate]],
    *,
    seed: int,
    resamples: int,
) -> dict[str, WeightedPassRate]:
    """Pass rates by each dataset's share of the corpus; families resampled within datasets, with all their labels."""
    if not groups or not all(groups.values()):
        # Of a dataset of which no family was looked at, nothing is known.
        return dict.fromkeys(COLUMNS, WeightedPassRate(None, None, None))
    outcomes = [one for group in groups.values() for one in group]
    stratum, order = codes([one.item.dataset for one in outcomes])
    shares = np.array([sizes[name] for name in order], float) / sum(sizes.values())
    hits = np.array([[label is True for label in one.labels] for one in outcomes], float)
    rng = np.random.default_rng(seed)
    replicates = weighted_rates(hits, Strata(stratum), shares, rng=rng, resamples=resamples)
    found = {}
    for place, what in enumerate(COLUMNS):
        labels = {one.labels[place] for one in outcomes}
        ends = np.array([passing[name][what].bounds for name in order])
        bounds = Interval(*map(float, shares @ ends))
        value, interval, _ = replicates.estimate(place)
        constant = all(len({one.labels[place] for one in group}) == 1 for group in groups.values())
        known = WeightedPassRate(value, interval, bounds, constant)
        found[what] = WeightedPassRate(None, None, bounds) if None in labels else known
    return found


def _unresolved(outcome: FamilyOutcome) -> bool:
    return any(
        label is None and kind in outcome.disputed for kind, label in zip(ViewKind, outcome.labels, strict=False)
    )


def _failed(outcome: FamilyOutcome) -> tuple[str, ...]:
    """Return the views that fail; the family itself where people agree on it and on no single view."""
    views = tuple(str(kind) for kind, label in zip(ViewKind, outcome.labels, strict=False) if label is False)
    return views or ((FAMILY,) if outcome.labels[-1] is False else ())


def _notes(items: Sequence[AuditItem], sheets: Sequence[AnnotatorForms]) -> list[tuple[str, int, str]]:
    return [
        (item.family_id, sheet.annotator, form.note)
        for item in items
        for sheet in sheets
        if (form := sheet.forms.get(item.family_id)) and form.note
    ]
