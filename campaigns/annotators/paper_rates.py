"""The paper's annotation in figures (appendix A.3), and people whose errors make figures like them.

Two people who err independently, each saying yes to a share ``missed`` of what is no and no to a share ``alarms`` of
what is yes, disagree on 2 (p m (1 - m) + (1 - p) a (1 - a)) of the cases, where p is how common no is; they say no to
q = p (1 - m) + (1 - p) a of them, and alpha is 1 - disagreement / (2 q (1 - q)). So two rates follow from two figures
of the table, alpha and how common the rarer label is; where the world's failures are not as common as the paper's,
alpha is met and the other as nearly as can be.
"""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.core.judgment import Ineligibility, LocalFailure
from eclose.core.verdict import FailureClass
from eclose.world.faulty.bad_sources import make_bad_source
from eclose.world.faulty.broken_responses import FailureImpact, FailurePlan
from eclose.world.make.instances import make_world_items

from .error_model import ErrorRates, SimulatedAnnotator
from .material import PROFILES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.core.instance import Instance

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
ADJUDICATED, SCREENING_ADJUDICATED = 823, 184
FIELDS = {
    "substantive": "Substantive status",
    "sound": "Step soundness",
    "aligned": "Alignment A",
    "closed": "Closure C",
    "correct": "Answer correctness",
    "complete": "Completeness K",
}
SUSPICION = 3.0
"""Factor of false alarms in a response with an unsound step: by the paper's counts, people differ
mostly on responses that fail anyway (595 differ in a step, 262 in local soundness)."""

# Shares of the paper's table of violations, somewhat more local ones: here one step fails, where there several do.
_CODES = dict(zip(LocalFailure, (0.363, 0.30, 0.15, 0.147, 0.04), strict=True))
_DEVIATES, _SHORT, _DECOUPLED = list(FailureClass)[:3]
_LINKS = {_DEVIATES: (0.024, 0.062), _SHORT: (0.020, 0.007), _DECOUPLED: (0.018, 0.005)}
"""Without and with a step that fails."""
_HARMLESS, _FATAL = 0.14, 0.09
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


def fit(no: float, alpha: float, share: float) -> ErrorRates:
    """Fit the error rates with which two people reach this alpha and answer about this share with no."""
    missed, alarms = np.meshgrid(np.linspace(0, 0.5, 501), np.linspace(0, 0.08, 801))
    no_share = no * (1 - missed) + (1 - no) * alarms
    differ = 2 * (no * missed * (1 - missed) + (1 - no) * alarms * (1 - alarms))
    with np.errstate(invalid="ignore"):  # alpha is undefined where all answers are equal
        reached = 1 - differ / (2 * no_share * (1 - no_share))
    off = ((reached - alpha) / 0.001) ** 2 + ((no_share - share) / 0.02) ** 2
    best = np.unravel_index(np.nanargmin(off), off.shape)
    return ErrorRates(float(missed[best]), float(alarms[best]))


def fit_annotator(truths: Sequence[Truth]) -> SimulatedAnnotator:
    """Fit an annotator whose agreement on these responses is the paper's."""
    rates = {}
    for name, row in FIELDS.items():
        labels = [(label, truth.trouble) for truth in truths for label in _labels(truth, name)]
        no = sum(not label for label, _ in labels) / len(labels)
        # People do not say no much more or less often than it is so.
        share = min(max(1 - TABLE[row].majority, 0.8 * no), 1.2 * no)
        errors = fit(no, TABLE[row].alpha, share)
        rates[name] = _suspicious(errors, [trouble for label, trouble in labels if label])
    return SimulatedAnnotator(
        "annotator",
        rates,
        _miscoded("Local-failure reason", list(_CODES.values())),
        {str(code): share for code, share in _CODES.items()},
    )


def _suspicious(errors: ErrorRates, troubles: Sequence[bool]) -> ErrorRates:
    """Shift false alarms to responses with an unsound step, at the same overall rate."""
    calm = errors.alarms / (1 + (SUSPICION - 1) * sum(troubles) / len(troubles))
    return ErrorRates(errors.missed, calm, SUSPICION * calm)


def fit_screener(ineligible: int, questions: int) -> SimulatedAnnotator:
    """Fit a screener whose agreement is the paper's."""
    table = TABLE["Eligibility"]
    codes = {str(code): counted / sum(n for _, n in _INELIGIBLE.values()) for code, (_, counted) in _INELIGIBLE.items()}
    rates = {"eligible": fit(ineligible / questions, table.alpha, 1 - table.majority)}
    return SimulatedAnnotator("screener", rates, _miscoded("Ineligibility reason", list(codes.values())), codes)


def _labels(truth: Truth, name: str) -> list[bool]:
    if name == "substantive":
        return [bool(step.substantive) for step in truth.step_labels]
    if name == "sound":
        return [step.sound is not False for step in truth.step_labels if step.substantive]
    return [bool(getattr(truth.verdict, name))]


def _miscoded(row: str, shares: Sequence[float]) -> float:
    """Return the rate of wrong codes at which two people reach the paper's alpha, for codes of these shares."""
    differ = (1 - TABLE[row].alpha) * (1 - sum(share**2 for share in shares))
    # Two differ where one errs, or both in two ways, which is rare.
    return float(1 - (1 - differ) ** 0.5)
