"""Linear verifiers: logistic regression on lexical features, with weights that can be read.

Features are standardised, and the weights are fitted with an L2 penalty by Newton's method. Only numpy is needed, and
nothing but numbers and names is read from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from eclose.errors import UserError
from eclose.files.atomic import write_json
from eclose.stats.arrays import Floats
from eclose.values.identity import content_hash
from eclose.values.instance import Passage
from eclose_train.verifier.features import (
    SHORTCUT_FEATURES,
    Features,
    alignment_features,
    closure_features,
    find_evidence_steps,
    index_evidence,
    support_features,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from eclose.stats.arrays import Flags


class VerifierHead(StrEnum):
    """Dependencies that a verifier scores."""

    SUPPORT = "support"
    """Evidence to step: whether every step follows from the passages."""
    ALIGNMENT = "alignment"
    """Question to trace: whether the trace pursues what was asked. Never sees the submitted answer."""
    CLOSURE = "closure"
    """Trace to answer: whether the trace establishes the submitted answer."""


HeadScores = dict[VerifierHead, float]
"""Probability that each dependency holds; low values mean failure. A head that cannot be scored is absent."""


@dataclass(frozen=True, slots=True)
class VerifierInput:
    """The parts of a response and its question that a verifier reads."""

    question: str
    steps: tuple[str, ...]
    answer: str
    evidence: tuple[Passage, ...] = ()
    """Passages; read by the support head alone."""


FORMAT_VERSION = 1
"""Version of the file; raised where a feature changes its meaning, so that old weights are not used with it."""
PENALTIES = (1.0, 10.0, 100.0, 1000.0, 3000.0)
"""L2 penalties to choose from; large ones, since weights must hold on texts unlike the families."""
_NEWTON_STEPS = 25
_CONVERGED = 1e-8
_LARGEST_LOGIT = 30.0

_EMPTY_INPUT = VerifierInput("", ("",), "")


def compute_features(head: VerifierHead, verifier_input: VerifierInput) -> list[Features]:
    """Return the features of an input for a head: one set, or for support one for each step."""
    steps = verifier_input.steps
    if head is VerifierHead.ALIGNMENT:
        return [alignment_features(verifier_input.question, steps)]
    if head is VerifierHead.CLOSURE:
        return [closure_features(verifier_input.question, steps, verifier_input.answer)]
    index = index_evidence(verifier_input.evidence)
    return [support_features(index, step) for step in find_evidence_steps(verifier_input.question, steps)]


FEATURE_NAMES = {head: tuple(compute_features(head, _EMPTY_INPUT)[0]) for head in VerifierHead}
"""Names of all features by head."""
SUPPORT_SHORTCUT = "conclusion word in the step"


def select_features(head: VerifierHead, *, shortcuts: bool = True) -> tuple[str, ...]:
    """Return the names of a head's features, on request without those of form alone."""
    left_out = () if shortcuts else (*SHORTCUT_FEATURES, SUPPORT_SHORTCUT)
    return tuple(name for name in FEATURE_NAMES[head] if name not in left_out)


def build_feature_matrix(features: Sequence[Features], names: Sequence[str]) -> Floats:
    """Return features as a matrix: a row for each set, a column for each name."""
    matrix: Floats = np.array([[values[name] for name in names] for values in features], dtype=np.float64)
    return matrix.reshape(len(features), len(names))


@dataclass(frozen=True)
class LinearHead:
    """Logistic regression on standardised features."""

    features: tuple[str, ...]
    weights: Floats
    means: Floats
    scales: Floats
    bias: float
    penalty: float

    def predict(self, matrix: Floats) -> Floats:
        """Return the probability that the dependency holds, for each row of features."""
        logits = (matrix - self.means) / self.scales @ self.weights + self.bias
        return _sigmoid(logits)

    def to_json(self) -> dict[str, Any]:
        """Return the head as JSON values, features by name."""
        columns = zip(self.features, self.weights, self.means, self.scales, strict=True)
        return {
            "bias": self.bias,
            "penalty": self.penalty,
            "features": {
                name: {"weight": float(weight), "mean": float(mean), "scale": float(scale)}
                for name, weight, mean, scale in columns
            },
        }


def _sigmoid(logits: Floats) -> Floats:
    probabilities: Floats = 1 / (1 + np.exp(-np.clip(logits, -_LARGEST_LOGIT, _LARGEST_LOGIT)))
    return probabilities


def fit_linear_head(matrix: Floats, labels: Flags, features: Sequence[str], penalty: float) -> LinearHead:
    """Fit a head: both labels weigh the same, and ``penalty`` / 2 times the squared weights is added to the loss.

    Raises:
        UserError: A label has no row.
    """
    holds = int(labels.sum())
    if holds in (0, len(labels)):
        raise UserError("A head cannot be trained on rows of one label.")
    means, scales = matrix.mean(axis=0), matrix.std(axis=0)
    # A constant feature says nothing: its weight stays 0, and its scale must not divide by 0.
    scales = np.where(scales > 0, scales, 1.0)
    # A last column of ones for the bias, which is not penalised.
    design = np.column_stack([(matrix - means) / scales, np.ones(len(matrix))])
    ridge = np.append(np.full(len(features), penalty), 1e-9)
    row_weights = np.where(labels, len(labels) / (2 * holds), len(labels) / (2 * (len(labels) - holds)))
    weights = np.zeros(design.shape[1])
    for _ in range(_NEWTON_STEPS):
        predicted = _sigmoid(design @ weights)
        gradient = design.T @ (row_weights * (predicted - labels)) + ridge * weights
        curvature = row_weights * predicted * (1 - predicted)
        # H = X' W X + lambda I; positive definite through the penalty.
        hessian = (design * curvature[:, np.newaxis]).T @ design + np.diag(ridge)
        step = np.linalg.solve(hessian, gradient)
        weights -= step
        if np.abs(step).max() < _CONVERGED:
            break
    return LinearHead(
        features=tuple(features),
        weights=weights[:-1],
        means=means,
        scales=scales,
        bias=float(weights[-1]),
        penalty=penalty,
    )


@dataclass(frozen=True)
class LinearVerifier:
    """A verifier of lexical features: one probability for each dependency."""

    head_models: Mapping[VerifierHead, LinearHead]

    @property
    def heads(self) -> tuple[VerifierHead, ...]:
        """Heads that the verifier was trained with."""
        return tuple(self.head_models)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of weights and format."""
        return content_hash({"version": FORMAT_VERSION, "heads": self._heads_json()})

    @property
    def name(self) -> str:
        """Name in scores: ``linear@0123456789ab``."""
        return f"linear@{self.fingerprint.removeprefix('sha256:')[:12]}"

    @property
    def identity(self) -> dict[str, Any]:
        """Kind and fingerprint, which decide the scores."""
        return {"verifier": "linear", "fingerprint": self.fingerprint}

    def score(self, inputs: Sequence[VerifierInput]) -> list[HeadScores]:
        """Return the scores of each input, in order; the support of a response is that of its weakest step."""
        scores: list[HeadScores] = [{} for _ in inputs]
        for head, model in self.head_models.items():
            owners, features = [], []
            for index, verifier_input in enumerate(inputs):
                if not can_score(head, verifier_input):
                    continue
                for values in compute_features(head, verifier_input):
                    owners.append(index)
                    features.append(values)
            if not features:
                continue
            predicted = model.predict(build_feature_matrix(features, model.features)).tolist()
            for index, probability in zip(owners, predicted, strict=True):
                scores[index][head] = min(probability, scores[index].get(head, 1.0))
        return scores

    def to_json(self) -> dict[str, Any]:
        """Return the verifier as JSON values, for ``verifier.json``."""
        return {
            "format": "eclose linear verifier",
            "version": FORMAT_VERSION,
            "kind": "linear",
            "fingerprint": self.fingerprint,
            "heads": self._heads_json(),
        }

    def _heads_json(self) -> dict[str, Any]:
        return {head.value: model.to_json() for head, model in self.head_models.items()}


def can_score(head: VerifierHead, verifier_input: VerifierInput) -> bool:
    """Return whether an input has the parts that a head reads."""
    if not verifier_input.steps:
        return False
    if head is VerifierHead.CLOSURE:
        return bool(verifier_input.answer.strip())
    return head is not VerifierHead.SUPPORT or bool(verifier_input.evidence)


def parse_linear_verifier(document: Mapping[str, Any], source: str) -> LinearVerifier:
    """Return a verifier from the values of its file, which messages call ``source``.

    Raises:
        UserError: The file is of another version, names an unknown head or feature, or was changed.
    """
    if document.get("version") != FORMAT_VERSION:
        raise UserError(
            f"{source}: is of version {document.get('version')!r}; this release reads version {FORMAT_VERSION}."
            " Train the verifier again."
        )
    try:
        heads = {VerifierHead(head): _parse_head(model) for head, model in document["heads"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{source}: is no linear verifier ({error}). Train the verifier again.") from error
    for head, model in heads.items():
        if unknown := [name for name in model.features if name not in FEATURE_NAMES[head]]:
            raise UserError(
                f"{source}: the {head} head has the unknown features {', '.join(map(repr, unknown))}. It was trained by"
                " another release; train it again."
            )
    verifier = LinearVerifier(heads)
    if document.get("fingerprint") != verifier.fingerprint:
        raise UserError(f"{source}: the weights do not match the fingerprint; the file was changed by hand.")
    return verifier


def _parse_head(model: Mapping[str, Any]) -> LinearHead:
    features: Mapping[str, Mapping[str, float]] = model["features"]
    weights, means, scales = (
        np.array([float(feature[part]) for feature in features.values()]) for part in ("weight", "mean", "scale")
    )
    if not np.isfinite([weights, means, scales]).all() or (scales <= 0).any():
        raise ValueError("a weight is not finite, or a scale is not positive")
    return LinearHead(
        features=tuple(features),
        weights=weights,
        means=means,
        scales=scales,
        bias=float(model["bias"]),
        penalty=float(model["penalty"]),
    )


VERIFIER_FILE = "verifier.json"


def save_linear_verifier(verifier: LinearVerifier, folder: Path) -> None:
    """Write a linear verifier into its folder."""
    write_json(folder / VERIFIER_FILE, verifier.to_json(), allow_nan=False)
