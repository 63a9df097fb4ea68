"""Report of an audit: agreement of the annotators, and pass rates of views and families (appendix B.6).

A view passes when all its questions are answered with yes, a family when its three views pass. A family is settled
where the annotators agree on it; where they disagree, a third person decides the views on which they differ. Otherwise
a label stays open, and bounds are reported instead of a rate. Two annotators who fail a family for different views
agree on the family, so no third person is needed, and those views stay open.

Written as ``audit-report.json``, with blank forms for the families on which annotators disagree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import TypeAdapter

from eclose.errors import SettingError
from eclose.files.atomic import AtomicFile
from eclose.files.json_reader import raise_file_problems
from eclose.prompts.locked_texts import load_prompt_text
from eclose.stats.arrays import number_distinct_labels
from eclose.stats.bootstrap import StratifiedDesign, bootstrap_weighted_rates
from eclose.stats.coefficients import MISSING_CODE, gwet_ac1, judge_pair_tables, raw_agreement
from eclose.stats.intervals import Interval
from eclose.stats.rates import Rate
from eclose.values.family import ViewKind
from eclose.values.three_valued import Label, three_valued_and
from eclose_annotate.choices import AuditFormFormat
from eclose_annotate.family_audit.forms import FilledAuditForm, encode_audit_forms, read_filled_forms
from eclose_annotate.family_audit.material import AUDIT_GUIDELINE_FILE
from eclose_annotate.family_audit.sample import AuditKey, DrawnAuditFamily, read_audit_key

if TYPE_CHECKING:
    from pathlib import Path

AUDIT_REPORT_FILE = "audit-report.json"
"""File of the report in the folder of an audit."""
FAMILY = "Family"
COLUMNS = (*map(str, ViewKind), FAMILY)
"""Columns of the report: the three views, and the family."""

_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class AnnotatorAuditForms:
    """The forms of one annotator by family id."""

    annotator: int
    """Number from 1; the number after the last annotator is the third person's."""
    forms: Mapping[str, FilledAuditForm]

    def labels(self, family_id: str) -> tuple[Label, ...]:
        """Return whether the three views and the family pass; None where there is no form or an answer is missing."""
        form = self.forms.get(family_id)
        views = tuple(None if form is None else form.passes(kind) for kind in ViewKind)
        return (*views, three_valued_and(views))


def match_forms_to_families(key: AuditKey, path: Path, forms: Sequence[FilledAuditForm]) -> AnnotatorAuditForms:
    """Assign forms to their families; raise one error with all unknown, repeated and mixed-up forms."""
    owners = {form_id: (number, item) for item in key.items for number, form_id in enumerate(item.forms, start=1)}
    by_family: dict[str, FilledAuditForm] = {}
    problems = []
    for form in forms:
        if form.id not in owners:
            problems.append(f"{form.where}: the id {form.id!r} belongs to no form of this audit")
            continue
        item = owners[form.id][1]
        if item.family_id in by_family:
            problems.append(f"{form.where}: the form {form.id!r} occurs twice; keep one")
        # Words only: spreadsheets change quotes, dashes and white space.
        if _WORD.findall(form.question.lower()) != _WORD.findall(item.shown.question.lower()):
            problems.append(
                f"{form.where}: {form.id!r} has another question than was handed out; was one column sorted alone?"
            )
        by_family[item.family_id] = form
    annotators = {owners[form.id][0] for form in forms if form.id in owners}
    if len(annotators) > 1:
        problems.append(f"the forms belong to several annotators: {', '.join(map(str, sorted(annotators)))}")
    raise_file_problems(path, problems)
    return AnnotatorAuditForms(annotators.pop(), by_family)


class FamilyAuditOutcome(NamedTuple):
    """An audited family with its settled labels."""

    item: DrawnAuditFamily
    labels: tuple[Label, ...]
    """Labels of the three views and the family; None for open ones."""
    disputed: tuple[ViewKind, ...]
    """Views that one annotator passes and another fails, where they also disagree on the family."""

    def find_views(self, *, label: Label) -> tuple[str, ...]:
        """Return the views with a label."""
        return tuple(str(kind) for kind, settled in zip(ViewKind, self.labels, strict=False) if settled is label)

    @property
    def is_unresolved(self) -> bool:
        """Whether a disputed view is open."""
        return not set(self.find_views(label=None)).isdisjoint(self.disputed)


def settle_audited_families(
    key: AuditKey, sheets: Sequence[AnnotatorAuditForms], third: AnnotatorAuditForms | None = None
) -> list[FamilyAuditOutcome]:
    """Settle every audited family. The third person's labels count only where the others disagree."""
    return [_outcome(item, sheets, third) for item in key.items]


def _outcome(
    item: DrawnAuditFamily, sheets: Sequence[AnnotatorAuditForms], third: AnnotatorAuditForms | None
) -> FamilyAuditOutcome:
    answers = [sheet.labels(item.family_id) for sheet in sheets]
    decisions = {labels[-1] for labels in answers}
    views: list[Label] = []
    disputed = []
    for index, kind in enumerate(ViewKind):
        labels = {answer[index] for answer in answers}
        # A third person is needed only where annotators disagree on the view and on the family.
        if {True, False} <= labels and {True, False} <= decisions:
            disputed.append(kind)
            views.append(None if third is None else third.labels(item.family_id)[index])
        else:
            views.append(labels.pop() if len(labels) == 1 else None)
    # All fail the family, perhaps for different views: then the family is settled although the views are not.
    family = False if decisions == {False} else three_valued_and(views)
    return FamilyAuditOutcome(item, (*views, family), tuple(disputed))


@dataclass(frozen=True, slots=True)
class ReturnedFormCounts:
    """Forms returned by an annotator: complete + half-filled + blank + missing = expected."""

    annotator: int
    expected: int
    complete: int
    half_filled: tuple[str, ...]
    """Form ids, as in the fields below."""
    blank: tuple[str, ...]
    missing: tuple[str, ...]
    surplus: tuple[str, ...] = ()
    """The third person's forms of undisputed families, which are not used."""


@dataclass(frozen=True, slots=True)
class AnnotatorPairAgreement:
    """Agreement of two annotators before disagreements are settled."""

    annotators: tuple[int, int]
    what: str
    """One of ``COLUMNS``."""
    n: int
    """Families that both labelled."""
    agreed: int
    raw: float | None
    """Share of equal labels."""
    ac1: float | None
    """Gwet's AC1."""


@dataclass(frozen=True, slots=True)
class AuditPassRate:
    """Pass rate of some families. Where labels are open there is no value, only bounds of it."""

    passed: int
    settled: int
    open: int
    value: float | None
    interval: Interval | None
    bounds: Interval | None


@dataclass(frozen=True, slots=True)
class CorpusPassRate:
    """Pass rate of the corpus, datasets weighted by their sizes."""

    value: float | None
    interval: Interval | None
    bounds: Interval | None
    constant: bool = False
    """Whether labels are equal within each dataset, so that resampling shows no spread."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Report of an audit, as written to ``audit-report.json``."""

    guideline: str
    corpus: str
    seed: int
    resamples: int
    sizes: Mapping[str, int]
    audited: Mapping[str, int]
    handed: tuple[ReturnedFormCounts, ...]
    agreement: tuple[AnnotatorPairAgreement, ...]
    disputed: tuple[str, ...]
    """Family ids, as in the fields below."""
    unresolved: tuple[str, ...]
    """Disputed families that the third person has not settled."""
    datasets: Mapping[str, Mapping[str, AuditPassRate]]
    unweighted: Mapping[str, AuditPassRate]
    weighted: Mapping[str, CorpusPassRate]
    failing: Mapping[str, tuple[str, ...]]
    """Failing families, each with the views that fail."""
    open: tuple[str, ...]
    notes: tuple[tuple[str, int, str], ...]
    """Notes as (family id, annotator, text)."""


def build_audit_report(
    key: AuditKey,
    sheets: Sequence[AnnotatorAuditForms],
    third: AnnotatorAuditForms | None = None,
    *,
    seed: int = 42,
    resamples: int = 2_000,
) -> AuditReport:
    """Build the report of an audit from the forms of every annotator, and of the third person if there is one."""
    _refuse_other_annotators(key, sheets, third)
    sheets = sorted(sheets, key=lambda sheet: sheet.annotator)
    outcomes = settle_audited_families(key, sheets, third)
    groups = {name: [outcome for outcome in outcomes if outcome.item.dataset == name] for name in key.sizes}
    pass_rates = {name: _pass_rates(group) for name, group in groups.items()}
    disputed = [outcome for outcome in outcomes if outcome.disputed]
    failing = {
        # Where annotators agree on the family and on no single view, the family stands alone.
        outcome.item.family_id: outcome.find_views(label=False) or (FAMILY,)
        for outcome in outcomes
        if outcome.labels[-1] is False or outcome.find_views(label=False)
    }
    notes = [
        (item.family_id, sheet.annotator, form.note)
        for item in key.items
        for sheet in (*sheets, *([third] if third else []))
        if (form := sheet.forms.get(item.family_id)) and form.note
    ]
    returned = [_count_forms(key.items, sheet) for sheet in sheets]
    if third is not None:
        returned.append(_count_forms([outcome.item for outcome in disputed], third))
    return AuditReport(
        guideline=key.guideline,
        corpus=key.corpus,
        seed=seed,
        resamples=resamples,
        sizes=key.sizes,
        audited={name: len(group) for name, group in groups.items()},
        handed=tuple(returned),
        agreement=tuple(_agreements(key, sheets)),
        disputed=tuple(outcome.item.family_id for outcome in disputed),
        unresolved=tuple(outcome.item.family_id for outcome in disputed if outcome.is_unresolved),
        datasets=pass_rates,
        unweighted=_pass_rates(outcomes, interval=False),
        weighted=_weighted_rates(key.sizes, groups, pass_rates, seed=seed, resamples=resamples),
        failing=failing,
        open=tuple(outcome.item.family_id for outcome in outcomes if None in outcome.labels),
        notes=tuple(notes),
    )


def _refuse_other_annotators(
    key: AuditKey, sheets: Sequence[AnnotatorAuditForms], third: AnnotatorAuditForms | None
) -> None:
    annotators, expected = sorted(sheet.annotator for sheet in sheets), list(range(1, key.annotators + 1))
    if annotators != expected:
        raise SettingError(
            f"the forms of annotators {', '.join(map(str, expected))} are needed, one file each; these are the forms "
            f"of {', '.join(map(str, annotators))}. Pass forms of {key.annotators + 1} with --adjudicated."
        )
    if third is not None and third.annotator != key.annotators + 1:
        raise SettingError(
            f"--adjudicated: these are the forms of annotator {third.annotator}. A third person fills in the forms "
            "that the report writes where annotators disagree."
        )


def _count_forms(items: Sequence[DrawnAuditFamily], sheet: AnnotatorAuditForms) -> ReturnedFormCounts:
    """Compare an annotator's forms with those expected for some families."""
    expected = {item.family_id: item.forms[sheet.annotator - 1] for item in items}
    forms = {form.id: form for family, form in sheet.forms.items() if family in expected}
    blank = tuple(form_id for form_id, form in forms.items() if form.blank)
    half = tuple(form_id for form_id, form in forms.items() if form.unanswered and not form.blank)
    missing = tuple(form_id for form_id in expected.values() if form_id not in forms)
    surplus = tuple(form.id for family, form in sheet.forms.items() if family not in expected)
    complete = len(forms) - len(blank) - len(half)
    return ReturnedFormCounts(
        annotator=sheet.annotator,
        expected=len(expected),
        complete=complete,
        half_filled=half,
        blank=blank,
        missing=missing,
        surplus=surplus,
    )


def _agreements(key: AuditKey, sheets: Sequence[AnnotatorAuditForms]) -> list[AnnotatorPairAgreement]:
    agreements = []
    for first, second in combinations(sheets, 2):
        # (families, columns) of codes: 0 fails, 1 passes.
        ratings, other_ratings = (
            np.array([[MISSING_CODE if label is None else int(label) for label in sheet.labels(item.family_id)]
                      for item in key.items], np.intp)
            for sheet in (first, second)
        )  # fmt: skip
        for column, what in enumerate(COLUMNS):
            table = judge_pair_tables(ratings[:, column], other_ratings[:, column], 2).sum(axis=0)
            # AC1 beside raw agreement: pass labels are near the ceiling, where kappa and alpha are unstable (appendix
            # B.6).
            n, agreed = int(table.sum()), int(np.trace(table))
            pair = (first.annotator, second.annotator)
            agreements.append(
                AnnotatorPairAgreement(
                    annotators=pair, what=what, n=n, agreed=agreed, raw=raw_agreement(table), ac1=gwet_ac1(table)
                )
            )
    return agreements


def _pass_rates(outcomes: Sequence[FamilyAuditOutcome], *, interval: bool = True) -> dict[str, AuditPassRate]:
    """Return the pass rates of some families by column; without an interval where they mix several strata."""
    rates = {}
    for column, what in enumerate(COLUMNS):
        rate = Rate.of(outcome.labels[column] for outcome in outcomes)
        # A rate over the settled labels alone would leave out the families that are hard to label.
        settled = not rate.unjudged
        rates[what] = AuditPassRate(
            passed=rate.hits,
            settled=rate.n,
            open=rate.unjudged,
            value=rate.value if settled else None,
            interval=rate.wilson if settled and interval else None,
            bounds=rate.bounds,
        )
    return rates


def _weighted_rates(
    sizes: Mapping[str, int],
    groups: Mapping[str, Sequence[FamilyAuditOutcome]],
    pass_rates: Mapping[str, Mapping[str, AuditPassRate]],
    *,
    seed: int,
    resamples: int,
) -> dict[str, CorpusPassRate]:
    """Return pass rates weighted by dataset sizes, with intervals of a bootstrap of families within datasets."""
    if not groups or not all(groups.values()):
        # The rate of a dataset without an audited family is unknown, and so is that of the corpus.
        return dict.fromkeys(COLUMNS, CorpusPassRate(None, None, None))
    outcomes = [outcome for group in groups.values() for outcome in group]
    stratum, order = number_distinct_labels([outcome.item.dataset for outcome in outcomes])
    shares = np.array([sizes[name] for name in order], float) / sum(sizes.values())
    # (families, columns): a family is resampled with all its labels.
    hits = np.array([[label is True for label in outcome.labels] for outcome in outcomes], float)
    # Dataset-stratified bootstrap with 2,000 resamples and seed 42 by default (appendix B.6).
    rng = np.random.default_rng(seed)
    replicates = bootstrap_weighted_rates(hits, StratifiedDesign(stratum), shares, rng=rng, resamples=resamples)
    rates = {}
    for column, what in enumerate(COLUMNS):
        labels = {outcome.labels[column] for outcome in outcomes}
        # The extremes of a weighted mean are the weighted extremes of its strata.
        ends = np.array([pass_rates[name][what].bounds for name in order])  # (datasets, 2)
        bounds = Interval(*map(float, shares @ ends))
        value, interval, _ = replicates.estimate(column)
        constant = all(len({outcome.labels[column] for outcome in group}) == 1 for group in groups.values())
        settled = CorpusPassRate(value, interval, bounds, constant)
        rates[what] = CorpusPassRate(None, None, bounds) if None in labels else settled
    return rates


DISAGREEMENTS = "disagreements"


class DisagreementForms(NamedTuple):
    """Forms for a third person on the disputed families."""

    path: Path
    written: bool
    """False where the existing file has answers and was left as it is."""
    lacking: int = 0
    """Disputed families without a form in the existing file."""


class AuditReportFiles(NamedTuple):
    """The report of an audit and the files that were written."""

    path: Path
    key: AuditKey
    report: AuditReport
    disagreements: DisagreementForms | None
    same_guideline: bool
    """Whether the guideline that was handed out is that of this version."""


def write_audit_report(
    folder: Path, forms: Sequence[Path], adjudicated: Path | None = None, *, seed: int = 42, resamples: int = 2_000
) -> AuditReportFiles:
    """Write the report of an audit into its folder, and blank forms for the third person where annotators disagree."""
    key = read_audit_key(folder)

    def read_sheet(path: Path) -> AnnotatorAuditForms:
        return match_forms_to_families(key, path, read_filled_forms(path))

    sheets = [read_sheet(path) for path in forms]
    third = None if adjudicated is None else read_sheet(adjudicated)
    report = build_audit_report(key, sheets, third, seed=seed, resamples=resamples)
    with AtomicFile(folder / AUDIT_REPORT_FILE) as file:
        file.write(TypeAdapter(AuditReport).dump_json(report, indent=1) + b"\n")
    # The third person gets the format that the annotators used.
    layout = AuditFormFormat.CSV if forms[0].suffix.lower() == ".csv" else AuditFormFormat.JSONL
    disagreements = _write_disagreements(folder / f"{DISAGREEMENTS}.{layout}", key, report, layout)
    same_guideline = key.guideline == load_prompt_text(AUDIT_GUIDELINE_FILE).hash
    return AuditReportFiles(folder / AUDIT_REPORT_FILE, key, report, disagreements, same_guideline)


def _write_disagreements(
    path: Path, key: AuditKey, report: AuditReport, layout: AuditFormFormat
) -> DisagreementForms | None:
    """Write blank forms of the disputed families, unless the file already has answers; None without a dispute."""
    if not report.disputed:
        return None
    third = key.annotators + 1
    blank = sorted(
        (item.form(third) for item in key.items if item.family_id in set(report.disputed)), key=lambda form: form.id
    )
    existing = read_filled_forms(path) if path.exists() else []
    if any(not form.blank or form.note for form in existing):
        ids = {form.id for form in existing}
        return DisagreementForms(path, written=False, lacking=sum(form.id not in ids for form in blank))
    with AtomicFile(path) as file:
        file.write(encode_audit_forms(blank, layout))
    return DisagreementForms(path, written=True)
