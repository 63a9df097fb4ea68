"""Tests for linear verifiers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from eclose import Passage
from eclose.errors import UserError
from eclose_train.verifier.features import SHORTCUT_FEATURES
from eclose_train.verifier.linear import (
    FEATURE_NAMES,
    LinearHead,
    LinearVerifier,
    VerifierHead,
    VerifierInput,
    fit_linear_head,
    parse_linear_verifier,
    select_features,
)

RESPONSE = VerifierInput(
    "Where was the director of Moonstruck born?",
    ("Norman Jewison directed Moonstruck.", "Norman Jewison was born in Toronto."),
    "Toronto",
    (Passage("1", "Norman Jewison", "He was born in Toronto and directed Moonstruck."),),
)


def make_verifier() -> LinearVerifier:
    rng = np.random.default_rng(0)
    return LinearVerifier(
        {
            head: LinearHead(names, rng.normal(size=len(names)), np.zeros(len(names)), np.ones(len(names)), 0.5, 10.0)
            for head, names in FEATURE_NAMES.items()
        }
    )


def test_fitted_weights_are_the_minimum_of_the_penalised_loss() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.normal(2, 3, size=(400, 3))
    labels = matrix[:, 0] - 0.5 * matrix[:, 1] + rng.normal(0, 3, size=400) > 2
    head = fit_linear_head(matrix, labels, ("a", "b", "c"), 5.0)
    standard = (matrix - matrix.mean(axis=0)) / matrix.std(axis=0)
    weight = np.where(labels, 200 / labels.sum(), 200 / (~labels).sum())

    def loss(weights: Any, bias: float) -> float:
        logits = standard @ weights + bias
        return float((weight * np.logaddexp(0, np.where(labels, -logits, logits))).sum() + 2.5 * weights @ weights)

    least = loss(head.weights, head.bias)
    for column in range(3):
        for shift in (-0.01, 0.01):
            moved = head.weights.copy()
            moved[column] += shift
            assert loss(moved, head.bias) > least
    assert min(loss(head.weights, head.bias - 0.01), loss(head.weights, head.bias + 0.01)) > least
    assert head.weights[0] > 0 > head.weights[1]


def test_a_constant_feature_gets_no_weight() -> None:
    matrix = np.array([[0.0, 7.0], [1.0, 7.0], [0.2, 7.0], [0.9, 7.0]])
    head = fit_linear_head(matrix, np.array([False, True, False, True]), ("a", "b"), 1.0)

    assert head.weights[1] == pytest.approx(0)
    assert np.isfinite(head.predict(matrix)).all()


def test_rows_of_one_label_are_refused() -> None:
    with pytest.raises(UserError, match="one label"):
        fit_linear_head(np.ones((3, 1)), np.array([True, True, True]), ("a",), 1.0)


def test_a_verifier_survives_its_file_with_the_same_scores() -> None:
    verifier = make_verifier()
    again = parse_linear_verifier(json.loads(json.dumps(verifier.to_json())), "verifier.json")

    assert again.name == verifier.name
    assert again.name.startswith("linear@")
    assert again.score([RESPONSE]) == verifier.score([RESPONSE])
    assert set(again.score([RESPONSE])[0]) == set(VerifierHead)


def test_scores_do_not_depend_on_the_batch() -> None:
    verifier = make_verifier()
    other = VerifierInput("Who?", ("Ada.",), "Ada", RESPONSE.evidence)

    assert verifier.score([RESPONSE, other])[1] == pytest.approx(verifier.score([other])[0])
    assert verifier.score([]) == []


def test_a_head_without_what_it_reads_has_no_score() -> None:
    verifier = make_verifier()
    nothing = VerifierInput("Who?", (), "Ada")
    no_answer = VerifierInput("Who?", ("Ada did.",), "")

    assert verifier.score([nothing, no_answer])[0] == {}
    assert set(verifier.score([nothing, no_answer])[1]) == {VerifierHead.ALIGNMENT}


def test_support_is_that_of_the_weakest_step() -> None:
    verifier = make_verifier()
    steps = ("Norman Jewison directed Moonstruck.", "Norman Jewison was born in Ottawa.")
    alone = [
        verifier.score([VerifierInput(RESPONSE.question, (step,), "", RESPONSE.evidence)])[0][VerifierHead.SUPPORT]
        for step in steps
    ]
    together = verifier.score([VerifierInput(RESPONSE.question, steps, "", RESPONSE.evidence)])[0]

    assert together[VerifierHead.SUPPORT] == pytest.approx(min(alone))


def test_shortcut_features_can_be_left_out() -> None:
    for head in VerifierHead:
        left_out = set(FEATURE_NAMES[head]) - set(select_features(head, shortcuts=False))
        assert left_out == ({"conclusion word in the step"} if head is VerifierHead.SUPPORT else set(SHORTCUT_FEATURES))


def change(document: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(document)), **parts}


def test_files_of_another_release_are_refused() -> None:
    document = make_verifier().to_json()
    closure = document["heads"]["closure"]
    unknown = change(
        document, heads={"closure": {**closure, "features": {"odd": {"weight": 1, "mean": 0, "scale": 1}}}}
    )

    with pytest.raises(UserError, match=r"verifier.json: is of version 99; this release reads version 1"):
        parse_linear_verifier(change(document, version=99), "verifier.json")
    with pytest.raises(UserError, match=r"closure head has the unknown features 'odd'"):
        parse_linear_verifier(unknown, "verifier.json")
    with pytest.raises(UserError, match=r"is no linear verifier"):
        parse_linear_verifier(change(document, heads={"fame": closure}), "verifier.json")


def test_a_file_changed_by_hand_is_refused() -> None:
    document = change(make_verifier().to_json())
    document["heads"]["closure"]["bias"] += 1

    with pytest.raises(UserError, match="do not match the fingerprint"):
        parse_linear_verifier(document, "verifier.json")


def test_a_scale_of_zero_is_refused() -> None:
    document = change(make_verifier().to_json())
    document["heads"]["closure"]["features"]["number of steps"]["scale"] = 0

    with pytest.raises(UserError, match="scale is not positive"):
        parse_linear_verifier(document, "verifier.json")
