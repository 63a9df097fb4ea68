"""Reading a completion: where the trace ends, what the answer is, what counts as a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose import Response, Trace, parse_completion
from eclose.values.response import MissingAnswerReason, ResponseReading, ResponseSource


@pytest.mark.parametrize(
    ("text", "steps", "answer"),
    [
        ("1. A.\n2. B.\nFinal answer: Paris", ("A.", "B."), "Paris"),
        ("A.\n\n  \n(2) B.\r\n3) C.\rFinal Answer : Paris ", ("A.", "B.", "C."), "Paris"),
        ("1. A.\n**Final answer:** Paris", ("A.",), "Paris"),
        ("1. A.\n**Final answer: Paris**", ("A.",), "Paris"),
        ("1. A.\n**Final answer**: Paris", ("A.",), "Paris"),
        ("1. A.\n### final answer: *Tess*", ("A.",), "*Tess*"),
        ("Final answer: 42", (), "42"),
        ("1. A.\n2. Final answer: 42", ("A.",), "42"),
        ("1. A.\nFinal answer: one\nFinal answer: two", ("A.",), "one"),
        ("1. The final answer: is unclear.\nFinal answer: x", ("The final answer: is unclear.",), "x"),
    ],
)
def test_the_first_answer_line_splits(text, steps, answer):
    parsed = parse_completion(text)
    assert (parsed.trace.texts, parsed.answer, parsed.incomplete) == (steps, answer, None)
    assert parsed.text == text


@pytest.mark.parametrize(
    ("text", "why", "lines"),
    [
        ("1. A.\n2. B", MissingAnswerReason.NO_ANSWER_LINE, 0),
        ("", MissingAnswerReason.EMPTY, 0),
        (" \n", MissingAnswerReason.EMPTY, 0),
        ("1. A.\nFinal answer:", MissingAnswerReason.EMPTY_ANSWER, 1),
        ("1. A.\nFinal answer:   \nFinal answer: late", MissingAnswerReason.EMPTY_ANSWER, 2),
    ],
)
def test_without_an_answer_a_generation_is_incomplete(text, why, lines):
    parsed = parse_completion(text)
    assert (parsed.answer, parsed.incomplete, parsed.answer_lines) == (None, why, lines)


@pytest.mark.parametrize(
    ("text", "steps", "answer", "why"),
    [
        ("1. A.\n2. B", ("A.",), None, MissingAnswerReason.CUT_OFF),
        ("1. A", (), None, MissingAnswerReason.CUT_OFF),
        ("1. A.\nFinal answer: New Yo", ("A.",), None, MissingAnswerReason.CUT_OFF),
        ("1. A.\rFinal answer: New Yo", ("A.",), None, MissingAnswerReason.CUT_OFF),
        ("1. A.\nFinal answer: New York\n", ("A.",), "New York", None),
        ("1. A.\nFinal answer: New York\n\nThis fol", ("A.",), "New York", None),
        ("1. A.\nFinal answer:\nNew Yo", ("A.",), None, MissingAnswerReason.EMPTY_ANSWER),
        ("", (), None, MissingAnswerReason.EMPTY),
    ],
)
def test_the_last_line_of_what_was_cut_off_is_not_trusted(text, steps, answer, why):
    parsed = parse_completion(text, cut_off=True)
    assert (parsed.trace.texts, parsed.answer, parsed.incomplete) == (steps, answer, why)
    response = Response.from_completion("r", "q", text, cut_off=True)
    assert (response.trace.texts, response.answer, response.incomplete) == (steps, answer, why)


def test_a_response_without_its_completion_may_still_be_incomplete():
    assert Response("r", "q", Trace.of("A."), None, answer_lines=0).incomplete is MissingAnswerReason.NO_ANSWER_LINE


def test_further_answer_lines_are_counted():
    assert parse_completion("Final answer: a\nFinal answer: b\nfinal answer: c").answer_lines == 3


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("1926 was warm.", "1926 was warm."),
        ("3.5 million people live there.", "3.5 million people live there."),
        ("12. Twelve.", "12. Twelve."[4:]),
        ("1: One.", "One."),
        ("2001) is no list number", "2001) is no list number"),
        ("1.", None),
    ],
)
def test_only_a_list_number_is_removed(line, step):
    assert Trace.from_lines(line).texts == ((step,) if step else ())


steps = st.lists(
    st.text(st.characters(blacklist_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1).map(lambda s: "x" + s),
    max_size=5,
)


@pytest.mark.slow
@given(steps)
def test_a_written_trace_reads_back(texts):
    trace = Trace.of(*texts)
    parsed = parse_completion(f"{trace.numbered}Final answer: done")
    assert parsed.trace == trace
    assert len(trace) == len(texts)


@given(st.text())
def test_any_text_can_be_read(text):
    parsed = parse_completion(text)
    assert (parsed.answer is None) == (parsed.incomplete is not None)
    assert all(step.strip() == step and step for step in parsed.trace.texts)


def test_a_response_keeps_its_completion():
    response = Response.from_completion("r1", "q1", "1. A.\nFinal answer: x", ResponseSource("m"))
    assert (response.answer, response.answer_lines, response.completion) == ("x", 1, "1. A.\nFinal answer: x")
    assert response.source == ResponseSource("m")


@pytest.mark.parametrize(
    ("completion", "expected"),
    [("1. Ana wrote it.\nFinal answer: Ana", True), ("Let me search for it.", False), (None, False)],
)
def test_layout_is_the_protocols_only_where_the_completion_has_an_answer_line(completion, expected):
    response = Response(id="r", instance_id="q", trace=Trace.of([]), answer="Ana", completion=completion)
    assert response.in_protocol_layout is expected


@pytest.mark.parametrize(("rule", "located"), [("prose, answer not located", False), ("prose, conclusion word", True)])
def test_answer_is_located_unless_the_rule_says_otherwise(rule, located):
    assert ResponseReading(reader=2, status="trace", rule=rule, origin="prose").located is located
