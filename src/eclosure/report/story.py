"""What a diagnosis says, in sentences for somebody who never read the paper; and where the responses are lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from eclosure.core.judgment import EVIDENCE
from eclosure.core.verdict import FailureClass
from eclosure.diagnose import Evidence
from eclosure.metrics.rates import Metric
from eclosure.metrics.validation import DIRECT, JudgedLabel
from eclosure.report.words import (
    EVIDENCE_WORDS,
    FAILURE_WORDS,
    LABEL_WORDS,
    agreement_of,
    complement,
    percent,
    percent_range,
    plural,
)
from eclosure.stats.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclosure.diagnose import Diagnosis
    from eclosure.metrics.summary import GroupSummary
    from eclosure.report.notes import Notes
    from eclosure.stats.intervals import Interval

FEW_QUESTIONS = 20
"""Below this, no interval over questions deserves its name."""


class Figure(NamedTuple):
    """A percentage with its interval, in words."""

    value: str
    interval: str = ""

    def __str__(self) -> str:
        """``46.3 % [40.9, 51.9]``."""
        return f"{self.value} {self.interval}".rstrip()


@dataclass(frozen=True, slots=True)
class Statement:
    """One finding: how many, how certain, and what it means."""

    kind: str
    """What the finding is of; pages colour by it."""
    count: int
    lead: str
    judged: Figure
    """As the judge sees it."""
    told: str
    bounds: str = ""
    """Where that could lie, whatever the unjudged responses turn out to be."""
    corrected: Figure | None = None
    """As people's labels correct it."""
    whose: str = ""
    """Whose figure it is, in plain words."""
    show: str = ""
    """The explorer's filter that shows these responses."""
    parts: tuple[Statement, ...] = ()

    @property
    def figure(self) -> Figure:
        """What to tell first: the corrected figure where there is one."""
        return self.corrected or self.judged

    @property
    def beside(self) -> str:
        """What to tell in smaller letters beside a corrected figure."""
        return "" if self.corrected is None else f"The judge alone says {self.judged}"


@dataclass(frozen=True, slots=True)
class Part:
    """Some responses of a stage: those that go on, or those lost to one reason."""

    kind: str
    name: str
    count: int
    show: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One test of the chain, and what becomes of the responses that come to it."""

    asked: str
    total: int
    kept: Part
    lost: tuple[Part, ...]


def headline(diagnosis: Diagnosis, notes: Notes) -> tuple[Statement, ...]:
    """Reliable, in the gap, unsound, and not decided."""
    found = [_reliable(diagnosis, notes), _gap(diagnosis, notes), _unsound(diagnosis, notes)]
    if undecided := diagnosis.overall.composition.groups.get(None, 0):
        share = undecided / diagnosis.overall.responses
        told = (
            "A judgement is missing that would tell which of these. Rates leave such responses out, "
            "and show what they leave open."
        )
        verb = "is" if undecided == 1 else "are"
        lead = f"{verb} undecided"
        figure = Figure(f"{percent(share)} %")
        found.append(Statement("undecided", undecided, lead, figure, told, show="outcome=undecided"))
    return tuple(found)


CORRECTED = "corrected by people's labels"
JUDGED = "the judge's own figure"


def _whose(notes: Notes, corrected: Figure | None) -> str:
    if corrected is not None:
        return CORRECTED
    return f"{JUDGED}, {'not corrected' if notes.validation else 'not validated'}"


def _reliable(diagnosis: Diagnosis, notes: Notes) -> Statement:
    rate = diagnosis.overall.rates[Metric.TRACE_RELIABILITY_RATE]
    corrected = _corrected(notes, Metric.TRACE_RELIABILITY_RATE)
    return Statement(
        "reliable",
        rate.hits,
        "is reliable" if rate.hits == 1 else "are reliable",
        _figure_in(diagnosis.overall, Metric.TRACE_RELIABILITY_RATE),
        "Every step holds, the reasoning pursues the question, and it establishes the answer that was submitted.",
        _bounds(rate),
        corrected,
        _whose(notes, corrected),
        "outcome=reliable",
    )


def _gap(diagnosis: Diagnosis, notes: Notes) -> Statement:
    overall = diagnosis.overall
    rate = overall.rates[Metric.GAP_RATE]
    corrected = _corrected(notes, Metric.GAP_RATE)
    parts = tuple(
        Statement(
            str(failure), count, FAILURE_WORDS[failure][0], Figure(f"{percent(count / rate.hits)} % of them"),
            FAILURE_WORDS[failure][1], show=f"outcome=gap_{failure}",
        )
        for failure, count in overall.composition.gap_failures.items()
    )  # fmt: skip
    return Statement(
        "gap",
        rate.hits,
        "looks right step by step, and fails as a whole" if rate.hits == 1
        else "look right step by step, and fail as a whole",
        _figure_in(diagnosis.overall, Metric.GAP_RATE),
        "No check of single steps finds these." if rate.hits else "No response is in the local-global gap.",
        _bounds(rate),
        corrected,
        _whose(notes, corrected),
        "outcome=gap",
        parts,
    )  # fmt: skip


def _unsound(diagnosis: Diagnosis, notes: Notes) -> Statement:
    overall = diagnosis.overall
    rate, estimate = overall.rates[Metric.LOCAL_SOUNDNESS_RATE], overall.estimates[Metric.LOCAL_SOUNDNESS_RATE]
    misses = rate.n - rate.hits
    sound = (notes.corrected or {}).get(Metric.LOCAL_SOUNDNESS_RATE)
    corrected = None
    if sound is not None and sound.value is not None:
        corrected = _figure_of(1 - sound.value, complement(sound.interval))
    return Statement(
        "unsound",
        misses,
        "contains an unsound step" if misses == 1 else "contain an unsound step",
        _figure_of(None if rate.value is None else 1 - rate.value, complement(estimate.interval)),
        "At least one step is not supported by the passages, or does not follow.",
        _bounds(Rate(misses, rate.n, rate.unjudged)),
        corrected,
        _whose(notes, corrected),
        "outcome=unsound",
    )


def _figure_in(group: GroupSummary, metric: Metric) -> Figure:
    return _figure_of(group.rates[metric].value, group.estimates[metric].interval)


def _figure_of(value: float | None, interval: Interval | None) -> Figure:
    return Figure("not defined") if value is None else Figure(f"{percent(value)} %", percent_range(interval))


def _corrected(notes: Notes, metric: Metric) -> Figure | None:
    estimate = (notes.corrected or {}).get(metric)
    return None if estimate is None or estimate.value is None else _figure_of(estimate.value, estimate.interval)


def _bounds(rate: Rate) -> str:
    if not rate.unjudged or rate.bounds is None:
        return ""
    low, high = percent(rate.bounds.low), percent(rate.bounds.high)
    return f"{rate.n:,} of {rate.n + rate.unjudged:,} judged: between {low} and {high} %, whatever the others are"


def evidence_sentences(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Whether the passages settle the questions: what reasoning cannot be blamed for."""
    found = diagnosis.by_evidence
    lacking, unjudged = found.get(Evidence.INSUFFICIENT), found.get(Evidence.UNJUDGED)
    told = []
    if set(found) == {Evidence.UNJUDGED}:
        return (
            "Whether the passages settle the questions was not judged, so failures of retrieval are not told apart.",
        )
    if lacking is None:
        told.append("Wherever it was judged, the passages settle the question.")
    else:
        told.append(
            f"For {lacking.questions:,} of {plural(diagnosis.overall.questions, 'question')} "
            f"({plural(lacking.responses, 'response')}) the passages do not settle the question: "
            "that is a failure of retrieval, not of reasoning, so every rate is also given apart."
        )
    if unjudged is not None:
        told.append(f"For {plural(unjudged.responses, 'response')} this was not judged.")
    return tuple(told)


def evidence_rates(diagnosis: Diagnosis) -> tuple[tuple[str, str, str, str], ...]:
    """Each kind of evidence with its responses, how many of them are reliable, and how many are in the gap."""
    if len(diagnosis.by_evidence) < 2:
        return ()
    return tuple(
        (
            EVIDENCE_WORDS[kind],
            plural(group.responses, "response"),
            str(_figure_in(group, Metric.TRACE_RELIABILITY_RATE)),
            str(_figure_in(group, Metric.GAP_RATE)),
        )
        for kind, group in diagnosis.by_evidence.items()
    )


def agreement_figures(notes: Notes) -> dict[JudgedLabel, Figure]:
    """How far the judge agrees with people about each label it gives, where both gave some."""
    return {
        row.label: _figure_of(*agreement_of(row)[:2]) for row in notes.agreement if row.label in DIRECT and row.n
    }  # fmt: skip


def agreement_sentences(notes: Notes) -> tuple[str, ...]:
    """About which label the judge agrees with people the least, and how far about each."""
    if not (figures := agreement_figures(notes)):
        return ()
    found = [row for row in notes.agreement if row.label in figures]
    worst = min(found, key=lambda row: (agreement_of(row).value or 0, row.label))
    label = f"{worst.label} ({LABEL_WORDS[worst.label]})"
    told = f"It agrees with them least about {label}: {figures[worst.label]} of {plural(worst.n, 'response')}."
    return told, f"Agreement by label: {'; '.join(f'{name} {figure}' for name, figure in figures.items())}."


def flip_sentences(diagnosis: Diagnosis) -> tuple[str, ...]:
    """How steady the judge is, where it was asked more than once."""
    found = {name: one for name, one in diagnosis.flips.items() if one.responses}
    if not found:
        return ()
    if not any(one.flipped for one in found.values()):
        return ("The judge was asked more than once and said the same each time.",)
    name, worst = max(found.items(), key=lambda one: one[1].rate or 0)
    of = f"{worst.flipped:,} of {plural(worst.responses, 'response')}"
    figure = _figure_of(worst.rate, worst.interval)
    about = LABEL_WORDS[name] if name == EVIDENCE else f"{name} ({LABEL_WORDS[name]})"
    return (f"The judge was asked more than once. It is least steady about {about}: {of} got both answers, {figure}.",)


def cautions(diagnosis: Diagnosis, notes: Notes) -> tuple[str, ...]:
    """What a reader must know before believing a figure."""
    return tuple(_cautions(diagnosis, notes))


def _cautions(diagnosis: Diagnosis, notes: Notes) -> Iterator[str]:
    if diagnosis.overall.questions < FEW_QUESTIONS:
        yield f"Fewer than {FEW_QUESTIONS} questions: take the intervals as a rough hint, not as 95 %."
    for reason, count in notes.left_out_by_reason.items():
        yield f"{plural(count, 'response')} left out: {reason}."
    if diagnosis.inconsistent:
        yield (
            f"{plural(diagnosis.inconsistent, 'response')} reliable by every label and yet wrong: "
            "one of the labels, or the reference, must be mistaken."
        )
    for judge in dict.fromkeys(judge for judge, _ in diagnosis.kin):
        models = " and ".join(model for one, model in diagnosis.kin if one == judge)
        yield (
            f"By their names, the judge {judge} is of the family of {models}, whose responses it judges: "
            "a judge may be kind to its kin. Ask one of another family, or label some responses yourself."
        )


def flow(diagnosis: Diagnosis) -> tuple[Stage, ...]:
    """From all responses to the reliable ones, with every loss named."""
    joint = diagnosis.joint
    gap = diagnosis.overall.composition.gap_failures

    def count(*wanted: bool | None) -> int:
        return sum(n for labels, n in joint.items() if labels[: len(wanted)] == wanted)

    total, sound, aligned = sum(joint.values()), count(True), count(True, True)
    reliable = count(True, True, True)
    closing = (FailureClass.INCOMPLETE_REASONING, FailureClass.ANSWER_DECOUPLING, FailureClass.CLOSURE_FAILURE)
    return (
        _stage("Does every step hold?", total, Part("sound", "hold step by step", sound), [
            Part("unsound", "an unsound step", count(False), "outcome=unsound"),
            Part("undecided", "not judged", count(None), "outcome=undecided_L"),
        ]),
        _stage("Does the reasoning pursue the question?", sound, Part("sound", "pursue it as well", aligned), [
            _lost(FailureClass.PATH_DEVIATION, count(True, False)),
            _lost(FailureClass.UNDETERMINED, count(True, None, False)),
            Part("undecided", "not judged", count(True, None) - count(True, None, False), "outcome=undecided_A"),
        ]),
        _stage("Does it establish the submitted answer?", aligned, Part("reliable", "are reliable", reliable), [
            *(_lost(failure, gap.get(failure, 0)) for failure in closing),
            Part("undecided", "not judged", count(True, True, None), "outcome=undecided_C"),
        ]),
    )  # fmt: skip


def _lost(failure: FailureClass, count: int) -> Part:
    return Part(str(failure), FAILURE_WORDS[failure][0], count, f"outcome=gap_{failure}")


def _stage(asked: str, total: int, kept: Part, lost: list[Part]) -> Stage:
    return Stage(asked, total, kept, tuple(part for part in lost if part.count))
