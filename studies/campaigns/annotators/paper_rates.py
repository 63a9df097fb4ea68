"""The paper's annotation in figures (appendix A.3), and people whose errors make figures like them.

Two people err in hard decisions alone, each with chance e. Where a share m of what is no and a share a of what is yes
is hard, they disagree on 2 e (1 - e) (p m + (1 - p) a) of the cases, where p is how common no is; they say no to
q = p (1 - e m) + (1 - p) e a of them, and alpha is 1 - disagreement / (2 q (1 - q)). So m and a follow from two figures
of the table, alpha and how common the rarer label is; where the world's failures are not as common as the paper's,
alpha is met and the other as nearly as can be. The hardest decisions of each kind are hard, in exactly these shares.
"""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.values.judgment import Ineligibility, LocalFailure
from eclose.values.verdict import FailureClass
from eclose_world.faulty.bad_sources import make_bad_source
from eclose_world.faulty.broken_responses import FailureImpact, FailurePlan
from eclose_world.make.instances import make_world_items

from .error_model import HARD_ERRORS, HardDecisions, SimulatedAnnotator, difficulty
from .material import PROFILES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.values.instance import Instance

    from .error_model import Truth


class Row(NamedTuple):
    """Row of the paper's table."""

    n: int
    majority: float
    raw: float
    alpha: float


TABLE = {
    "Substantive status": Row(12_733, 0.951, 0.999, 0.989),
    "Step soundness": Row(12_101, 0.900, 0.951, 0.726),
    "Local-failure reason": Row(910, 0.363, 0.820, 0.754),
    "Alignment A": Row(2_598, 0.940, 0.971, 0.739),
    "Closure C": Row(2_598, 0.941, 0.977, 0.797),
    "Answer correctness": Row(2_598, 0.814, 0.997, 0.990),
    "Completeness K": Row(2_598, 0.883, 0.950, 0.759),
    "Local soundness L": Row(2_598, 0.745, 0.899, 0.735),
    "Global sufficiency G": Row(2_598, 0.885, 0.950, 0.754),
    "LGG indicator": Row(2_598, 0.935, 0.970, 0.756),
    "Eligibility": Row(1_300, 0.706, 0.910, 0.783),
    "Ineligibility reason": Row(322, 0.400, 0.792, 0.702),
}
"""The paper does not print the share of the most frequent label for the last two: derived from raw agreement and alpha,
near the final counts."""
REASONS = ("Local-failure reason", "Ineligibility reason")
"""Rows whose labels are codes."""
ADJUDICATED, SCREENING_ADJUDICATED = 823, 184
FIELDS = {
    "substantive": "Substantive status",
    "sound": "Step soundness",
    "aligned": "Alignment A",
    "closed": "Closure C",
    "correct": "Answer correctness",
    "complete": "Completeness K",
}
STEP_FIELDS = ("substantive", "sound")
STEP_SUSPICION, SUSPICION = 3.0, 6.0
"""Factors of false alarms in a response with an unsound step, for steps and for whole responses: by the paper's counts,
people differ mostly on responses that fail anyway (595 differ in a step, 262 in local soundness)."""

# Shares of the paper's table of violations, somewhat more local ones: here one step fails, where there several do.
_CODES = dict(zip(LocalFailure, (0.363, 0.30, 0.15, 0.147, 0.04), strict=True))
_DEVIATES, _SHORT, _DECOUPLED = list(FailureClass)[:3]
_LINKS = {_DEVIATES: (0.034, 0.048), _SHORT: (0.025, 0.003), _DECOUPLED: (0.023, 0.003)}
"""Without and with a step that fails."""
_HARMLESS, _FATAL = 0.16, 0.09
MIX: dict[tuple[FailurePlan, ...], float] = {
    **{(FailurePlan(code, None, FailureImpact.HARMLESS),): _HARMLESS * share for code, share in _CODES.items()},
    # Of the last code the world's fatal steps break closure too.
    **{
        (FailurePlan(code, None, FailureImpact.FATAL),): _FATAL * share
        for code, share in _CODES.items()
        if code is not LocalFailure.OTHER
    },
    **{(FailurePlan(None, link),): alone for link, (alone, _) in _LINKS.items()},
    **{
        (FailurePlan(code, link),): both * share for link, (_, both) in _LINKS.items() for code, share in _CODES.items()
    },
}

_INELIGIBLE = {
    Ineligibility.MISSING_EVIDENCE: ("missing_passage", 65),
    Ineligibility.MISSING_LINK: ("broken_link", 165),
    Ineligibility.UNDERDETERMINED: ("second_answer", 15),
    Ineligibility.ILL_POSED: ("malformed_question", 155),
    Ineligibility.INCOMPATIBLE_REFERENCE: ("wrong_reference", 34),
}
"""The paper's counts of what was excluded."""
_BEYOND = 10_000
"""First item of the ineligible questions, far beyond the others."""


def make_ineligible_questions(
    count: int, instances: Sequence[Instance], seed: int = 42
) -> list[tuple[Instance, Ineligibility]]:
    """Make ineligible questions with their codes, in the paper's proportions, none of them among ``instances``."""
    rng = Random(f"spoilt/{seed}")
    questions = {instance.question for instance in instances}
    share = count / sum(counted for _, counted in _INELIGIBLE.values())
    pairs: list[tuple[Instance, Ineligibility]] = []
    sources = [make_world_items(profile, seed, _BEYOND) for profile in PROFILES]
    for code, (kind, counted) in _INELIGIBLE.items():
        candidates = (make_bad_source(item, kind, rng) for items in zip(*sources, strict=True) for item in items)
        fresh = (instance for instance in candidates if instance is not None and instance.question not in questions)
        for instance in islice(fresh, round(counted * share)):
            questions.add(instance.question)
            pairs.append((instance, code))
    return pairs


def fit(no: float, alpha: float, share: float) -> tuple[float, float]:
    """Return the shares of hard decisions, where no and where yes is true.

    With these, two people reach this alpha and answer about this share with no.
    """
    hard_no, hard_yes = np.meshgrid(np.linspace(0, 1, 1001), np.linspace(0, 0.2, 1001))
    no_share = no * (1 - HARD_ERRORS * hard_no) + (1 - no) * HARD_ERRORS * hard_yes
    differ = 2 * HARD_ERRORS * (1 - HARD_ERRORS) * (no * hard_no + (1 - no) * hard_yes)
    with np.errstate(invalid="ignore"):  # alpha is undefined where all answers are equal
        reached = 1 - differ / (2 * no_share * (1 - no_share))
    off = ((reached - alpha) / 0.001) ** 2 + ((no_share - share) / 0.02) ** 2
    best = np.unravel_index(np.nanargmin(off), off.shape)
    return float(hard_no[best]), float(hard_yes[best])


def _hardest(levels: Sequence[float], share: float) -> float:
    """Return the difficulty below which exactly this share of the decisions lies."""
    count = round(share * len(levels))
    return sorted(levels)[count] if count < len(levels) else 1.0


def fit_annotator(truths: Sequence[Truth]) -> SimulatedAnnotator:
    """Fit an annotator whose agreement on these responses is the paper's."""
    hard = {}
    for name, row in FIELDS.items():
        decisions = [decision for truth in truths for decision in _decisions(truth, name)]
        no = sum(not holds for holds, _, _ in decisions) / len(decisions)
        # People do not say no much more or less often than it is so.
        share = min(max(1 - TABLE[row].majority, 0.8 * no), 1.2 * no)
        suspicion = STEP_SUSPICION if name in STEP_FIELDS else SUSPICION
        hard[name] = _hard_decisions(decisions, suspicion, *fit(no, TABLE[row].alpha, share))
    levels = [
        difficulty("code", truth.response_id, number)
        for truth in truths
        for number, step in enumerate(truth.step_labels)
        if step.sound is False
    ]
    return SimulatedAnnotator(
        "annotator",
        hard,
        _hardest(levels, _hard_codes("Local-failure reason", list(_CODES.values()))),
        {str(code): share for code, share in _CODES.items()},
    )


def _hard_decisions(
    decisions: Sequence[tuple[bool, bool, float]], suspicion: float, hard_no: float, hard_yes: float
) -> HardDecisions:
    """Return the limits of hard decisions, with false alarms shifted to responses with an unsound step."""
    troubles = [trouble for holds, trouble, _ in decisions if holds]
    calm = hard_yes / (1 + (suspicion - 1) * sum(troubles) / len(troubles))
    no, yes, yes_in_trouble = (
        _hardest([level for holds, trouble, level in decisions if (holds, trouble and holds) == kind], share)
        for kind, share in (((False, False), hard_no), ((True, False), calm), ((True, True), suspicion * calm))
    )
    return HardDecisions(no, yes, yes_in_trouble)


def fit_screener(eligible: Sequence[str], ineligible: Sequence[str]) -> SimulatedAnnotator:
    """Fit a screener whose agreement on these questions is the paper's."""
    table = TABLE["Eligibility"]
    codes = {str(code): counted / sum(n for _, n in _INELIGIBLE.values()) for code, (_, counted) in _INELIGIBLE.items()}
    shares = fit(len(ineligible) / (len(eligible) + len(ineligible)), table.alpha, 1 - table.majority)
    decisions = [
        (holds, False, difficulty("eligible", question))
        for holds, questions in ((True, eligible), (False, ineligible))
        for question in questions
    ]
    levels = [difficulty("code", question) for question in ineligible]
    hard_codes = _hardest(levels, _hard_codes("Ineligibility reason", list(codes.values())))
    return SimulatedAnnotator("screener", {"eligible": _hard_decisions(decisions, 1.0, *shares)}, hard_codes, codes)


def _decisions(truth: Truth, name: str) -> list[tuple[bool, bool, float]]:
    """Return the decisions of a field: the true label, whether a step of the response is unsound, the difficulty."""
    if name in STEP_FIELDS:
        return [
            (
                bool(step.substantive) if name == "substantive" else step.sound is not False,
                truth.trouble,
                difficulty(name, truth.response_id, number),
            )
            for number, step in enumerate(truth.step_labels)
            if name == "substantive" or step.substantive
        ]
    return [(bool(getattr(truth.verdict, name)), truth.trouble, difficulty(name, truth.response_id))]


def _hard_codes(row: str, shares: Sequence[float]) -> float:
    """Return the share of hard codes at which two people reach the paper's alpha, for codes of these frequencies."""
    alike = sum(share**2 for share in shares)
    differ = (1 - TABLE[row].alpha) * (1 - alike)
    # Two differ where one errs, or both in two ways.
    return float(differ / (2 * HARD_ERRORS * (1 - HARD_ERRORS) + HARD_ERRORS**2 * (1 - alike)))
