"""Each pass shows one thing more than the one before, and nothing of what comes later."""

from __future__ import annotations

from dataclasses import asdict

from eclose.core.instance import Instance, Passage
from eclose.core.response import Response, ResponseSource, Trace
from eclose.protocol import annotator_material as shown
from eclose.protocol.disclosure import disclose_for_eligibility, disclose_for_soundness

INSTANCE = Instance(
    "id-canary", "QUESTION?", (Passage("pid-canary", "TITLE", "EVIDENCE."),), "REFERENCE", ("ALIAS",),
    benchmark="benchmark-canary", support_ids=("pid-canary",), kind="kind-canary",
)  # fmt: skip
SOURCE = ResponseSource("model-canary", "method-canary")
RESPONSE = Response("response-canary", "id-canary", Trace.of("STEP ONE.", "STEP TWO."), "ANSWER", SOURCE)
PASSES = {
    "A": disclose_for_soundness(INSTANCE, RESPONSE),
    "B": shown.disclose_trace_to_annotator(INSTANCE, RESPONSE),
    "C": shown.disclose_answer_to_annotator(INSTANCE, RESPONSE),
    "D": shown.disclose_reference_to_annotator(INSTANCE, RESPONSE),
    "S": disclose_for_eligibility(INSTANCE),
}
VISIBLE = {
    "A": {"QUESTION?", "TITLE", "EVIDENCE.", "STEP ONE."},
    "B": {"QUESTION?", "TITLE", "EVIDENCE.", "STEP ONE."},
    "C": {"QUESTION?", "TITLE", "EVIDENCE.", "STEP ONE.", "ANSWER"},
    "D": {"QUESTION?", "TITLE", "EVIDENCE.", "STEP ONE.", "ANSWER", "REFERENCE", "ALIAS"},
    "S": {"QUESTION?", "TITLE", "EVIDENCE.", "REFERENCE", "ALIAS"},
}
WORDS = {word for words in VISIBLE.values() for word in words}


def test_a_pass_holds_what_it_may_show_and_nothing_else():
    for name, value in PASSES.items():
        told = str(asdict(value))
        assert {word for word in WORDS if word in told} == VISIBLE[name], name
        assert "canary" not in told


def test_evidence_may_be_hidden_after_the_first_pass():
    for make in (
        shown.disclose_trace_to_annotator,
        shown.disclose_answer_to_annotator,
        shown.disclose_reference_to_annotator,
    ):
        assert make(INSTANCE, RESPONSE, hide_evidence=True).evidence == ()


def test_a_trace_as_a_whole_has_no_numbers():
    assert PASSES["B"].trace == "STEP ONE.\nSTEP TWO."


def test_without_a_reference_there_is_no_last_pass():
    bare = Instance("q", "Q?", ())
    assert shown.disclose_reference_to_annotator(bare, RESPONSE) is None
    assert disclose_for_eligibility(bare) is None
