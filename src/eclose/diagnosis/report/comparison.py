"""A run held against another one, in sentences and tables. Each format draws and escapes them in its own way."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eclose.cases import LeftOut, refuse_other_questions
from eclose.core.verdict import TraceGroup
from eclose.diagnosis.compare import RESPONSE_CLASSES, GroupComparison, ResponseClass, RunComparison, compare_rows
from eclose.diagnosis.report.context import BaseComparison
from eclose.diagnosis.report.filters import class_name, class_words
from eclose.diagnosis.report.format import (
    DASH,
    METRIC_WORDS,
    TOO_LITTLE,
    RateStatus,
    group_name,
    percent,
    plural,
    rate_status,
    signed,
    signed_range,
)
from eclose.diagnosis.report.summary import FEW_QUESTIONS
from eclose.diagnosis.report.table import SHOWN_METRICS, Cell, Table
from eclose.metrics.rates import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from eclose.core.instance import Passage
    from eclose.diagnosis.compare import RateDifference
    from eclose.diagnosis.diagnose import Case
    from eclose.stats.rates import Rate


def compare_with_base(
    cases: Sequence[Case],
    base: Sequence[Case],
    name: str,
    *,
    rng: np.random.Generator,
    resamples: int = 2_000,
    left_out: Sequence[LeftOut] = (),
) -> BaseComparison:
    """Compare the cases of two runs; ``left_out`` is what makes no case in the other one."""
    refuse_other_questions(cases, base)
    found = compare_rows([case.row for case in cases], [case.row for case in base], rng=rng, resamples=resamples)
    return BaseComparison(name, found, tuple(_cautions(cases, base, found, left_out)))


def _cautions(
    cases: Sequence[Case], base: Sequence[Case], found: RunComparison, left_out: Sequence[LeftOut]
) -> Iterator[str]:
    mine, theirs = ({case.judgment.judge for case in side} for side in (cases, base))
    if mine != theirs:
        yield (
            f"This run was judged by {_listed(mine)}, the other one by {_listed(theirs)}: "
            "a difference may be one of the judges."
        )
    if differing := _other_passages(cases, base):
        told = "shared question has" if differing == 1 else "shared questions have"
        yield f"{differing:,} {told} other passages in the other run: a difference may be theirs."
    if found.overall.questions < FEW_QUESTIONS:
        yield f"Fewer than {FEW_QUESTIONS} shared questions: take the intervals as a rough hint, not as 95 %."
    for reason, count in sorted(Counter(reason for _, reason in left_out).items()):
        yield f"{plural(count, 'response')} of the other run left out: {reason}."


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names))


def _other_passages(cases: Sequence[Case], base: Sequence[Case]) -> int:
    """How many shared questions are not shown with the same passages throughout."""
    mine, theirs = _passages(cases), _passages(base)
    return sum(found != theirs[question] for question, found in mine.items() if question in theirs)


def _passages(cases: Sequence[Case]) -> dict[tuple[str | None, str], set[tuple[Passage, ...]]]:
    found: dict[tuple[str | None, str], set[tuple[Passage, ...]]] = {}
    for case in cases:
        found.setdefault((case.instance.benchmark, case.instance.id), set()).add(case.instance.evidence)
    return found


HIGHLIGHTED_METRICS = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE, Metric.ACCURACY)
"""The rates whose difference is told in words."""


def comparison_sentences(against: BaseComparison) -> tuple[str, ...]:
    """What was compared, what moved, and who changed."""
    found = against.comparison
    overall = found.overall
    compared = (
        f"Compared on {plural(overall.questions, 'question')} that both runs answer: "
        f"{plural(overall.run_responses, 'response')} here, {overall.base_responses:,} there."
    )
    moved = (_moved(metric, overall.differences[metric]) for metric in HIGHLIGHTED_METRICS)
    return (compared, _alone(found), *moved, _changes(found))


def _alone(found: RunComparison) -> str:
    told = []
    for where, alone in (("this run", found.run_alone), ("the other run", found.base_alone)):
        if alone.questions:
            told.append(
                f"{plural(alone.questions, 'question')} ({plural(alone.responses, 'response')}) of {where} only"
            )
    return f"Left aside: {'; '.join(told)}." if told else "No question stands in one run only."


def _moved(metric: Metric, difference: RateDifference) -> str:
    name = METRIC_WORDS[metric][0]
    name = name[0].upper() + name[1:]
    estimate = difference.estimate
    if estimate.value is None or estimate.interval is None:
        return f"{name} ({metric.value}): not defined in {_undefined(difference)}, so there is no difference."
    if _too_little(difference):
        return f"{name} ({metric.value}): too little judged to compare{_open_difference(difference)}."
    figure = f"{signed(estimate.value)} points {signed_range(estimate.interval)}"
    if estimate.interval.low > 0:
        verdict = "higher"
    elif estimate.interval.high < 0:
        verdict = "lower"
    else:
        verdict = "not told apart from no change"
    values = f"{percent(difference.run.value)} % after {percent(difference.base.value)} %"
    if difference.run.unjudged or difference.base.unjudged:
        values += f" of the judged{_open_difference(difference)}"
    return f"{name} ({metric.value}): {figure}, {verdict} ({values})."


def _too_little(difference: RateDifference) -> bool:
    return RateStatus.TOO_LITTLE in (rate_status(difference.run), rate_status(difference.base))


def _open_difference(difference: RateDifference) -> str:
    if difference.bounds is None:
        return ""
    return f"; the difference lies between {signed(difference.bounds.low)} and {signed(difference.bounds.high)} points"


def _undefined(difference: RateDifference) -> str:
    lacking = [name for name, rate in (("this run", difference.run), ("the other run", difference.base)) if not rate.n]
    return " and ".join(lacking)


def _changes(found: RunComparison) -> str:
    pairs, reliable = found.pairs, TraceGroup.RELIABLE
    stayed = sum(count for (old, new), count in found.transitions.items() if old == new)
    won = _count(found, lambda old, new: new is reliable and old not in (reliable, None))
    lost = _count(found, lambda old, new: old is reliable and new not in (reliable, None))
    open_ = _count(found, lambda old, new: (old is None) != (new is None))
    unpaired = (found.run_alone.unpaired, found.base_alone.unpaired)
    told = f"Of {plural(len(pairs), 'pair')} of responses {stayed:,} stay in their class; "
    told += f"{won:,} became reliable, {lost:,} no longer {'is' if lost == 1 else 'are'}"
    told += f", {open_:,} {'is' if open_ == 1 else 'are'} decided in one run only." if open_ else "."
    if any(unpaired):
        of_run = f"{plural(unpaired[0], 'response')} of this run"
        told += f" Without a partner: {of_run}, {unpaired[1]:,} of the other; they count in the rates."
    return told


def _count(found: RunComparison, wanted: Callable[[ResponseClass, ResponseClass], bool]) -> int:
    return sum(count for (old, new), count in found.transitions.items() if wanted(old, new))


def comparison_tables(against: BaseComparison) -> tuple[Table, ...]:
    """Every rate's difference, the same by dataset where there are several, and who changed class."""
    found = against.comparison
    tables = [_difference_table(found.overall)]
    if len(found.groups) > 1:
        tables.append(_dataset_table(found.groups))
    return (*tables, _transition_table(found))


_MARKS = (
    "Percent, and points for the difference, with its 95 % interval: questions are resampled within datasets, "
    "with their responses in both runs. * no question departs from the rest. "
    "† in some resamples there was nothing to count, and these are left out. "
    "Differences are the judge's: no labels of people correct them. "
    "With as many intervals as there are here, about one in twenty leaves out 0 by chance."
)


_BOUNDS = ("whatever the unjudged are",)


def _difference_table(overall: GroupComparison) -> Table:
    unjudged = any(one.run.unjudged or one.base.unjudged for one in overall.differences.values())
    heads = ("rate", "", "this run", "the other run", "difference", *_BOUNDS[: int(unjudged)])
    rows = []
    for metric in SHOWN_METRICS:
        one = overall.differences[metric]
        rates = _rate_cell(one.run), _rate_cell(one.base)
        bounds = (Cell(_bounds(one)),) if unjudged else ()
        rows.append((Cell(metric.value), Cell(METRIC_WORDS[metric][0]), *rates, _moved_cell(one), *bounds))
    return Table("differences", "Every rate, this run minus the other", heads, tuple(rows), _MARKS)


def _rate_cell(rate: Rate) -> Cell:
    value = DASH if rate_status(rate) is RateStatus.TOO_LITTLE else percent(rate.value)
    return Cell(value, (f"n {rate.n:,}" + (f" +{rate.unjudged:,}" if rate.unjudged else ""),))


def _moved_cell(difference: RateDifference) -> Cell:
    estimate = difference.estimate
    if estimate.value is None:
        return Cell("undefined")
    if _too_little(difference):
        return Cell(TOO_LITTLE)
    marks = ("*" if difference.constant else "") + ("†" if estimate.undefined else "")
    return Cell(signed(estimate.value), (f"{signed_range(estimate.interval)}{marks}",))


def _bounds(difference: RateDifference) -> str:
    if difference.bounds is None or not (difference.run.unjudged or difference.base.unjudged):
        return DASH
    return f"{signed(difference.bounds.low)} to {signed(difference.bounds.high)}"


def _dataset_table(groups: Sequence[GroupComparison]) -> Table:
    rows = tuple(
        (
            Cell(group_name(group.group) if group.group else "all shared questions"),
            Cell(f"{group.questions:,}"),
            *(_moved_cell(group.differences[metric]) for metric in SHOWN_METRICS),
        )
        for group in groups
    )
    heads = ("dataset", "questions", *(metric.value for metric in SHOWN_METRICS))
    return Table("differences-by-dataset", "The differences by dataset", heads, rows)


def _transition_table(found: RunComparison) -> Table:
    """Rows: what a response was. Columns: what it is. Only classes that occur."""
    was = [kind for kind in RESPONSE_CLASSES if any(old == kind for old, _ in found.transitions)]
    now = [kind for kind in RESPONSE_CLASSES if any(new == kind for _, new in found.transitions)]
    rows = [(Cell(class_words(old)), *(_transition(found, old, new) for new in now), _was(found, old)) for old in was]
    rows.append((Cell("all"), *(_is(found, new) for new in now), Cell(f"{len(found.pairs):,}")))
    note = (
        "Rows: the class in the other run. Columns: the class in this one. Responses to one question are partners "
        "where they have one id, else where they are the only ones of one model and seed, or the only ones at all."
    )
    heads = ("was", *(class_words(kind) for kind in now), "all")
    return Table("transitions", "Which class responses went to", heads, tuple(rows), note)


def _transition(found: RunComparison, old: ResponseClass, new: ResponseClass) -> Cell:
    if not (count := found.transitions.get((old, new), 0)):
        return Cell(DASH)
    return Cell(f"{count:,}", show=f"before={class_name(old)}&outcome={class_name(new)}")


def _was(found: RunComparison, old: ResponseClass) -> Cell:
    total = _count(found, lambda kind, _: kind == old)
    return Cell(f"{total:,}", show=f"before={class_name(old)}")


def _is(found: RunComparison, new: ResponseClass) -> Cell:
    """No link: responses without a partner would be shown as well."""
    return Cell(f"{_count(found, lambda _, kind: kind == new):,}")
