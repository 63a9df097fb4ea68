"""The diagnostic study: the joint table of L, A and C as 2,598 verdicts gives every rate, share and failure class."""

from __future__ import annotations

from functools import cache, partial

from eclose.metrics.rates import Metric, ResponseComposition, compute_metric_rates, count_response_composition
from eclose.stats.rates import Rate
from eclose.values.judgment import LocalFailure
from eclose.values.verdict import FailureClass, TraceGroup, Verdict

from ..printed import Cell, Derivation, Resolver, derived, percent, said, statements, whole

STATES = ("111", "011", "101", "110", "001", "010", "100", "000")
GAP = ("101", "110", "100")
PD, IR, AD = FailureClass.PATH_DEVIATION, FailureClass.INCOMPLETE_REASONING, FailureClass.ANSWER_DECOUPLING
GROUPS = {
    "Reliable": TraceGroup.RELIABLE,
    "LGG": TraceGroup.GAP,
    "Locally unsound": TraceGroup.LOCALLY_UNSOUND,
}
CLASSES = {"Path deviation": PD, "Incomplete reasoning": IR, "Answer decoupling": AD}
_said = partial(said, section="diagnosis")


def joint(state: str) -> int:
    """How many responses have these labels L, A and C."""
    return whole("dependency_failure_composition", state, "n")


@cache
def responses() -> list[Verdict]:
    """The joint table with completeness and correctness added where the text counts them.

    A reliable response is correct, or it would have been sent back. Among the others the text says how many of
    the gap are wrong, how many insufficient ones correct, and how many sufficient ones wrong; among closure
    failures, how many are complete.
    """
    correct_gap = sum(map(joint, GAP)) - _said("gap responses with a wrong answer")
    # Within the gap, and within what is unsound and insufficient, it does not matter which cell is correct.
    correct = {
        "111": joint("111"),
        "011": joint("011") - _said("wrong but sufficient"),
        "101": correct_gap,
        "001": _said("correct but insufficient") - correct_gap,
    }
    complete = {
        "110": _said("gap answer decouplings"),
        "010": _said("answer decouplings") - _said("gap answer decouplings"),
    }
    return [
        Verdict(
            *(label == "1" for label in state),
            complete=index < complete[state] if state in complete else None,
            correct=index < correct.get(state, 0),
        )
        for state in STATES
        for index in range(joint(state))
    ]


@cache
def diagnosed() -> dict[Metric, Rate]:
    return compute_metric_rates(responses())


@cache
def composed() -> ResponseComposition:
    return count_response_composition(responses())


def value(metric: Metric) -> float:
    return percent(diagnosed()[metric].value)


def end(metric: Metric, which: str) -> float:
    return percent(getattr(diagnosed()[metric].wilson, which))


def failing(metric: Metric) -> Rate:
    holding = diagnosed()[metric]
    return Rate(holding.n - holding.hits, holding.n)


def share(hits: int, n: int) -> float:
    return percent(Rate(hits, n).value)


def violating(*numbers: int) -> int:
    """Responses that violate so many of the three dependencies."""
    broken = [[v.locally_sound, v.aligned, v.closed].count(False) for v in responses()]
    return sum(count in numbers for count in broken)


def closure_failures() -> int:
    return composed().failures[AD] + composed().failures[IR]


def insufficient() -> int:
    return failing(Metric.GLOBAL_SUFFICIENCY_RATE).hits


def gap_share(*classes: FailureClass) -> float:
    return share(sum(composed().gap_failures[kind] for kind in classes), diagnosed()[Metric.GAP_RATE].hits)


def steps(*failures: LocalFailure) -> int:
    return sum(whole("local_failure_distribution", "Count", failure) for failure in failures)


def group_size(name: str) -> int:
    """The n of a row in the detector tables."""
    return composed().groups[GROUPS[name]] if name in GROUPS else composed().gap_failures[CLASSES[name]]


def joint_table(cell: Cell) -> Derivation | None:
    if cell.column == "share":
        count = len(responses()) if cell.row == "Total" else joint(cell.row)
        return derived(lambda: share(count, len(responses())))
    return derived(lambda: len(responses())) if cell.row == "Total" else None


def local_failures(cell: Cell) -> Derivation | None:
    failures = tuple(LocalFailure) if cell.column == "Total" else (LocalFailure(cell.column),)
    if cell.row == "Share":
        return derived(lambda: share(steps(*failures), steps(*LocalFailure)))
    return derived(lambda: steps(*failures)) if cell.column == "Total" else None


def _both_unsound(*, sufficient: bool) -> int:
    return sum(v.locally_sound is False and v.globally_sufficient is sufficient for v in responses())


L1_OR_L4 = (LocalFailure.UNSUPPORTED_CONTENT, LocalFailure.FALSE_COVERAGE)
LSR, A, C = Metric.LOCAL_SOUNDNESS_RATE, Metric.ALIGNMENT_RATE, Metric.CLOSURE_RATE
TEXT = {
    "Acc": derived(partial(value, Metric.ACCURACY)),
    "LSR": derived(partial(value, LSR)),
    "GSR": derived(partial(value, Metric.GLOBAL_SUFFICIENCY_RATE)),
    "TRR": derived(partial(value, Metric.TRACE_RELIABILITY_RATE)),
    "gap responses": derived(lambda: diagnosed()[Metric.GAP_RATE].hits),
    "gap share of locally sound": derived(lambda: share(diagnosed()[Metric.GAP_RATE].hits, diagnosed()[LSR].hits)),
    "globally insufficient": derived(lambda: diagnosed()[Metric.GAP_SHARE].n),
    "LggShare": derived(partial(value, Metric.GAP_SHARE)),
    "LggShare low": derived(partial(end, Metric.GAP_SHARE, "low")),
    "LggShare high": derived(partial(end, Metric.GAP_SHARE, "high")),
    "wrong answers": derived(lambda: diagnosed()[Metric.GAP_RISK].n),
    "LggRisk": derived(partial(value, Metric.GAP_RISK)),
    "LggRisk low": derived(partial(end, Metric.GAP_RISK, "low")),
    "LggRisk high": derived(partial(end, Metric.GAP_RISK, "high")),
    "unsound yet sufficient": derived(partial(_both_unsound, sufficient=True)),
    "path deviations": derived(lambda: composed().failures[PD]),
    "path deviation share": derived(lambda: share(composed().failures[PD], insufficient())),
    "closure failures": derived(closure_failures),
    "closure failure share": derived(lambda: share(closure_failures(), insufficient())),
    "decoupling share of closure failures": derived(lambda: share(composed().failures[AD], closure_failures())),
    "gap path deviations": derived(lambda: composed().gap_failures[PD]),
    "gap path deviation share": derived(partial(gap_share, PD)),
    "gap answer decoupling share": derived(partial(gap_share, AD)),
    "gap deviation or decoupling share": derived(partial(gap_share, PD, AD)),
    "gap incomplete reasonings": derived(lambda: composed().gap_failures[IR]),
    "gap incomplete reasoning share": derived(partial(gap_share, IR)),
    "gap closure failures": derived(lambda: composed().gap_failures[AD] + composed().gap_failures[IR]),
    "any violation": derived(partial(violating, 1, 2, 3)),
    "one violation": derived(partial(violating, 1)),
    "one violation share": derived(lambda: share(violating(1), violating(1, 2, 3))),
    "several violations": derived(partial(violating, 2, 3)),
    "several violations share": derived(lambda: share(violating(2, 3), violating(1, 2, 3))),
    "locally unsound": derived(lambda: failing(LSR).hits),
    "locally unsound share": derived(lambda: percent(failing(LSR).value)),
    "alignment failure share": derived(lambda: percent(failing(A).value)),
    "closure fails": derived(lambda: failing(C).hits),
    "closure fails share": derived(lambda: percent(failing(C).value)),
    "both global links fail": derived(lambda: sum(v.aligned is v.closed is False for v in responses())),
    "unsound and insufficient": derived(partial(_both_unsound, sufficient=False)),
    "group reliable": derived(partial(group_size, "Reliable")),
    "group gap": derived(partial(group_size, "LGG")),
    "group unsound": derived(partial(group_size, "Locally unsound")),
    "unsound steps L1 or L4": derived(partial(steps, *L1_OR_L4)),
    "unsound steps L1 or L4 share": derived(lambda: share(steps(*L1_OR_L4), steps(*LocalFailure))),
}

RESOLVERS: dict[str, Resolver] = {
    "dependency_failure_composition": joint_table,
    "local_failure_distribution": local_failures,
    "text: diagnosis": statements(TEXT),
}
