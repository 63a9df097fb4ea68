"""Settings that influence scores are the identity of a run, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eclose.calls.model import Decoding
from eclose.detectors.scores import DetectorKind
from eclose.detectors.settings import CHAT_DETECTORS, ChatDetectorSettings
from eclose.errors import SettingError

ALIGNMENT = ChatDetectorSettings(detector=DetectorKind.ALIGNMENT)
STATEMENTS = ChatDetectorSettings(detector=DetectorKind.STATEMENT_SUPPORT)


def test_the_paper_s_values_are_the_defaults():
    assert ALIGNMENT.decoding == Decoding(max_tokens=4, temperature=0.0, top_logprobs=20)
    assert STATEMENTS.decoding == Decoding(max_tokens=4096, temperature=0.0)


@pytest.mark.parametrize(
    ("settings", "change", "same"),
    [
        (ALIGNMENT, {"top_logprobs": 5}, False),
        (ALIGNMENT, {"max_tokens": 8}, False),
        (ALIGNMENT, {"effort": "low"}, False),
        (ALIGNMENT, {"thinking": False}, False),
        (ALIGNMENT, {"attempts": 3}, True),
        (ALIGNMENT, {"temperature": 1.0}, True),
        (STATEMENTS, {"attempts": 3}, False),
        (STATEMENTS, {"temperature": 1.0}, False),
        (STATEMENTS, {"max_tokens": 8}, False),
        (STATEMENTS, {"effort": "low"}, False),
        (STATEMENTS, {"top_logprobs": 5}, True),
        (STATEMENTS, {"detector": DetectorKind.CLAIM_SUPPORT}, False),
    ],
)
def test_settings_that_decide_scores_are_the_identity(settings, change, same):
    assert (replace(settings, **change).identity == settings.identity) is same


def test_the_guidelines_are_part_of_the_identity():
    names = {kind: set(ChatDetectorSettings(detector=kind).identity["guidelines"]) for kind in CHAT_DETECTORS}
    assert names == {
        DetectorKind.STATEMENT_SUPPORT: {"detect_statements", "detect_supported"},
        DetectorKind.CLAIM_SUPPORT: {"detect_claims", "detect_claims_supported"},
        DetectorKind.ALIGNMENT: {"detect_alignment"},
    }


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"detector": DetectorKind.CLOSURE}, "asks a chat model. Choose from: ragas, veriscore, alignment"),
        ({"attempts": 0}, "at least 1"),
        ({"max_tokens": 0}, "at least 1"),
        ({"top_logprobs": 0}, "1 to 20"),
        ({"top_logprobs": 21}, "1 to 20"),
    ],
)
def test_impossible_settings_are_refused(change, problem):
    with pytest.raises(SettingError, match=problem):
        replace(ALIGNMENT, **change)


def test_a_window_is_part_of_the_identity_and_for_claims_alone():
    plain = ChatDetectorSettings(detector=DetectorKind.CLAIM_SUPPORT).identity
    windowed = ChatDetectorSettings(detector=DetectorKind.CLAIM_SUPPORT, window=(3, 1)).identity
    assert "window" not in plain
    assert windowed["window"] == [3, 1]
    assert set(windowed["guidelines"]) == {"detect_window_claims", "detect_claims_supported"}
    for settings in ({"detector": DetectorKind.STATEMENT_SUPPORT, "window": (3, 1)}, {"window": (-1, 0)}):
        with pytest.raises(SettingError, match="window"):
            ChatDetectorSettings(**{"detector": DetectorKind.CLAIM_SUPPORT, **settings})
