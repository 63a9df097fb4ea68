"""What a diagnosis says, in sentences for somebody who never read the paper; and where the responses are lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from eclosure.core.judgment import EVIDENCE, MAX_UNJUDGED_SHARE, NEVER_ASKED, Criterion
from eclosure.core.verdict import FailureClass
from eclosure.diagnose import Evidence
from eclosure.metrics.rates import Metric
from eclosure.metrics.validation import DIRECT, JudgedLabel
from eclosure.report.words import (
    EVIDENCE_WORDS,
    FAILURE_WORDS,
    LABEL_WORDS,
    TOO_LITTLE,
    UNDEFINED,
    Reading,
    agreement_of,
    between,
    complement,
    percent,
    percent_range,
    plural,
    reading,
    reason_words,
    widened,
)
from eclosure.stats.intervals import Estimate
from eclosure.stats.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One finding: how many, how certain, and what it means."""

    kind: str
    """What the finding is of; pages colour by it."""
    count: int
    lead: str
    figure: Figure
    """The figure in the largest type: corrected where labels of people correct it, else as the judge sees it."""
    meaning: str
    beside: str = ""
    """The judge's own figure, beside a corrected one."""
    detail: str = ""
    """What the figure rests on where labels are missing."""
    whose: str = ""
    """Whose figure it is, in plain words."""
    show: str = ""
    """The explorer's filter that shows these responses."""
    least: bool = False
    """Whether the count is only a lower bound, as labels are missing."""
    parts: tuple[Statement, ...] = ()

    @property
    def counted(self) -> str:
        """``14 responses``, or ``at least 14 responses``."""
        return ("at least " if self.least else "") + plural(self.count, "response")


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


CORRECTED = "corrected by people's labels"
JUDGED = "the judge's own figure"
HEADLINE_METRICS = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE, Metric.LOCAL_SOUNDNESS_RATE)
"""The rates of the headline. They are parts of one whole, so all of them are corrected or none."""


def headline(diagnosis: Diagnosis, notes: Notes) -> tuple[Statement, ...]:
    """Return the statements on reliable, gap, unsound and undecided responses."""
    statements = [_reliable(diagnosis, notes), _gap(diagnosis, notes), _unsound(diagnosis, notes)]
    if undecided := diagnosis.overall.composition.groups.get(None, 0):
        statements.append(
            Statement(
                kind="undecided",
                count=undecided,
                lead="is undecided" if undecided == 1 else "are undecided",
                figure=Figure(f"{percent(undecided / diagnosis.overall.responses)} %"),
                meaning="A label that would tell which of these is missing. The figures above show what is left open.",
                show="outcome=undecided",
            )
        )
    return tuple(statements)


def headline_corrections(notes: Notes) -> Mapping[Metric, Estimate]:
    """Return the corrected rates of the headline: all of them, or none where one is missing."""
    corrected = notes.corrected or {}
    return {metric: corrected[metric] for metric in HEADLINE_METRICS if set(HEADLINE_METRICS) <= set(corrected)}


class _Share(NamedTuple):
    """A rate of the headline: counts, the judge's estimate, and the corrected one."""

    rate: Rate
    judged: Estimate
    corrected: Estimate | None

    @classmethod
    def of(cls, diagnosis: Diagnosis, notes: Notes, metric: Metric) -> _Share:
        overall = diagnosis.overall
        return cls(overall.rates[metric], overall.estimates[metric], headline_corrections(notes).get(metric))

    @property
    def complement(self) -> _Share:
        """The share of all other responses."""
        rate = Rate(self.rate.n - self.rate.hits, self.rate.n, self.rate.unjudged)
        return _Share(rate, _opposite(self.judged), self.corrected and _opposite(self.corrected))

    def statement(self, kind: str, notes: Notes, lead: tuple[str, str], meaning: str, **more: Any) -> Statement:
        """Return the statement; ``lead`` is for one response and for several."""
        rate, figure = self.rate, figure_of(self.rate, self.judged.interval)
        too_little = reading(rate) is Reading.TOO_LITTLE
        corrected = corrected_figure(rate, self.corrected)
        return Statement(
            kind=kind,
            count=rate.hits,
            lead=f"to tell how many {lead[1]}" if too_little else lead[0 if rate.hits == 1 else 1],
            figure=corrected or figure,
            meaning=meaning,
            beside="" if corrected is None else f"The judge alone says {figure}",
            detail=_detail(rate, self.judged),
            whose="" if too_little else _whose(notes, corrected=corrected is not None),
            least=bool(rate.unjudged),
            **more,
        )


def _opposite(estimate: Estimate) -> Estimate:
    """The estimate of one minus a rate."""
    value, interval, undefined = estimate
    return Estimate(None if value is None else 1 - value, complement(interval), undefined)


def _whose(notes: Notes, *, corrected: bool) -> str:
    if corrected:
        return CORRECTED
    return f"{JUDGED}, {'not corrected' if notes.validated else 'not validated'}"


def _reliable(diagnosis: Diagnosis, notes: Notes) -> Statement:
    share = _Share.of(diagnosis, notes, Metric.TRACE_RELIABILITY_RATE)
    meaning = "Every step holds, the reasoning pursues the question, and it establishes the answer that was submitted."
    return share.statement("reliable", notes, ("is reliable", "are reliable"), meaning, show="outcome=reliable")


def _gap(diagnosis: Diagnosis, notes: Notes) -> Statement:
    share = _Share.of(diagnosis, notes, Metric.GAP_RATE)
    rate = share.rate
    if rate.hits:
        meaning = "No check of single steps finds these."
    elif rate.unjudged:
        total = plural(diagnosis.overall.responses, "response")
        meaning = f"Whether a response is in the local-global gap is open for {rate.unjudged:,} of {total}."
    else:
        meaning = "No response is in the local-global gap."
    parts = tuple(
        Statement(
            kind=str(failure),
            count=count,
            lead=FAILURE_WORDS[failure][0],
            figure=Figure(f"{percent(count / rate.hits)} % of them"),
            meaning=FAILURE_WORDS[failure][1],
            show=f"outcome=gap_{failure}",
        )
        for failure, count in diagnosis.overall.composition.gap_failures.items()
    )
    lead = "looks right step by step, and fails as a whole", "look right step by step, and fail as a whole"
    return share.statement("gap", notes, lead, meaning, show="outcome=gap", parts=parts)


def _unsound(diagnosis: Diagnosis, notes: Notes) -> Statement:
    share = _Share.of(diagnosis, notes, Metric.LOCAL_SOUNDNESS_RATE).complement
    meaning = "At least one step is not supported by the passages, or does not follow."
    lead = "contains an unsound step", "contain an unsound step"
    return share.statement("unsound", notes, lead, meaning, show="outcome=unsound")


def figure_of(rate: Rate, interval: Interval | None) -> Figure:
    """Return a rate as it may be told: with its interval, as bounds, as too little judged, or as not defined."""
    match reading(rate):
        case Reading.RATE:
            return _figure(rate.value, interval)
        case Reading.BOUNDS:
            assert rate.bounds is not None
            return Figure(between(rate.bounds))
        case Reading.TOO_LITTLE:
            return Figure(TOO_LITTLE)
    return Figure(UNDEFINED)


def _figure(value: float | None, interval: Interval | None) -> Figure:
    return Figure(UNDEFINED) if value is None else Figure(f"{percent(value)} %", percent_range(interval))


def _figure_in(group: GroupSummary, metric: Metric) -> Figure:
    return figure_of(group.rates[metric], group.estimates[metric].interval)


def corrected_figure(rate: Rate, corrected: Estimate | None) -> Figure | None:
    """Return the corrected figure; where labels are missing, its bounds with the interval widened by them."""
    if corrected is None or corrected.value is None or reading(rate) not in (Reading.RATE, Reading.BOUNDS):
        return None
    if not rate.unjudged:
        return _figure(*corrected[:2])
    interval = None if corrected.interval is None else widened(rate, *corrected.interval)
    return Figure(between(widened(rate, corrected.value, corrected.value)), percent_range(interval))


def _detail(rate: Rate, judged: Estimate) -> str:
    if rate.bounds is None or not rate.unjudged:
        return ""
    counts = f"{rate.n:,} of {rate.n + rate.unjudged:,}"
    if reading(rate) is Reading.TOO_LITTLE:
        return f"{counts} judged: {between(rate.bounds)}, whatever the others are"
    return f"Of the {counts} that are judged: {_figure(*judged[:2])}"


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
    """Return, for each kind of evidence and for all responses, their number and the judge's TRR and LGG."""
    if len(diagnosis.by_evidence) < 2:
        return ()
    groups = [(f"Where {_EVIDENCE_LEADS[kind]}", group) for kind, group in diagnosis.by_evidence.items()]
    return tuple(
        (
            name,
            plural(group.responses, "response"),
            str(_figure_in(group, Metric.TRACE_RELIABILITY_RATE)),
            str(_figure_in(group, Metric.GAP_RATE)),
        )
        for name, group in (*groups, ("All together", diagnosis.overall))
    )


EVIDENCE_NOTE = (
    "All of these are the judge's own figures, not corrected: the labels of people tell of all responses together."
)
_EVIDENCE_LEADS = {**EVIDENCE_WORDS, Evidence.UNJUDGED: "this was not judged"}


def agreement_figures(notes: Notes) -> dict[JudgedLabel, Figure]:
    """How far the judge agrees with people about each label it gives, where both gave some."""
    return {
        row.label: _figure(*agreement_of(row)[:2]) for row in notes.agreement if row.label in DIRECT and row.n
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
    figure = _figure(worst.rate, worst.interval)
    about = LABEL_WORDS[name] if name == EVIDENCE else f"{name} ({LABEL_WORDS[name]})"
    return (f"The judge was asked more than once. It is least steady about {about}: {of} got both answers, {figure}.",)


def cautions(diagnosis: Diagnosis, notes: Notes) -> tuple[str, ...]:
    """What a reader must know before believing a figure."""
    return tuple(_cautions(diagnosis, notes))


_CHAIN = (Criterion.LOCAL_SOUNDNESS, Criterion.ALIGNMENT, Criterion.CLOSURE)
"""The labels that decide whether a response is reliable."""


def _unjudged_cautions(diagnosis: Diagnosis) -> Iterator[str]:
    """Name each label of the headline that is missing too often, with the reasons."""
    total = diagnosis.overall.responses
    for criterion in _CHAIN:
        reasons = {
            reason: count
            for reason, count in diagnosis.unjudged.get(criterion, {}).items()
            if reason not in NEVER_ASKED
        }
        missing = sum(reasons.values())
        if missing > MAX_UNJUDGED_SHARE * total:
            listed = "; ".join(f"{reason_words(reason)} ({count:,})" for reason, count in reasons.items())
            label = f"{criterion.value} ({LABEL_WORDS[criterion.value]})"
            yield f"Too little judged: {label} has no label for {missing:,} of {plural(total, 'response')}: {listed}."


def _cautions(diagnosis: Diagnosis, notes: Notes) -> Iterator[str]:
    yield from _unjudged_cautions(diagnosis)
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
