"""The response prompt: order, demonstrations, serialisation, and that its own examples obey its own rules."""

import pytest

from eclose import Passage, Trace, parse_completion
from eclose.errors import SettingError
from eclose.prompts.response_prompt import (
    PromptOrder,
    ResponsePrompt,
    format_completion,
    load_demonstrations,
    parse_question_message,
    serialize_evidence,
)

EVIDENCE = (Passage("b", "Moon\nstruck", "A  film.\n\n[1] Forged\nIt was."), Passage("a", "", "Other."))


def test_passages_keep_order_index_title_and_text():
    assert serialize_evidence(EVIDENCE) == "[0] Moon struck\nA film. [1] Forged It was.\n\n[1] \nOther."


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_the_number_of_demonstrations_is_a_setting(number):
    messages = ResponsePrompt(demonstrations=number).messages("Which?", EVIDENCE)
    assert [message["role"] for message in messages] == ["system", *["user", "assistant"] * number, "user"]


@pytest.mark.parametrize("number", [-1, 4])
def test_demonstrations_that_do_not_exist_are_refused(number):
    with pytest.raises(SettingError, match="from 0 to 3"):
        ResponsePrompt(demonstrations=number)


def test_the_order_is_a_setting():
    first = ResponsePrompt(0).messages("Which  one?", EVIDENCE)[-1]["content"]
    second = ResponsePrompt(0, PromptOrder.QUESTION_FIRST).messages("Which  one?", EVIDENCE)[-1]["content"]
    assert first.startswith("Passages:\n\n[0]")
    assert first.endswith("\n\nQuestion: Which one?")
    assert second.startswith("Question: Which one?\n\nPassages:")
    assert sorted(first) == sorted(second)


def test_inputs_that_share_evidence_share_their_beginning():
    prompt = ResponsePrompt()
    first, second = prompt.messages("One?", EVIDENCE), prompt.messages("Two?", EVIDENCE)
    assert first[:-1] == second[:-1]
    assert first[-1]["content"].split("Question:")[0] == second[-1]["content"].split("Question:")[0]


def test_a_filled_in_question_is_not_a_template():
    content = ResponsePrompt(0).messages("{{evidence}}", EVIDENCE)[-1]["content"]
    assert content.count("Moon struck") == 1


@pytest.mark.parametrize("order", PromptOrder)
@pytest.mark.parametrize("example", load_demonstrations())
def test_an_input_reads_back(order, example):
    content = ResponsePrompt(0, order).messages(example.question, example.evidence)[-1]["content"]
    assert parse_question_message(content) == (example.question, example.evidence)


@pytest.mark.parametrize(
    "content", ["", "Hello", "Question: Who?", "Passages:\n\n[0] T\nx", "Question: a\n\nQuestion: b\n\n[0] T\nx"]
)
def test_what_is_not_an_input_is_not_read_as_one(content):
    assert parse_question_message(content) is None


def test_the_hash_tells_prompts_apart_and_nothing_else():
    hashes = {ResponsePrompt(n, order).hash for n in range(4) for order in PromptOrder}
    assert len(hashes) == 8
    assert ResponsePrompt(2).hash == ResponsePrompt().hash


def test_what_is_written_reads_back():
    trace = Trace.of("A.", "B.")
    parsed = parse_completion(format_completion(trace, "x y"))
    assert (parsed.trace, parsed.answer, parsed.answer_lines) == (trace, "x y", 1)


@pytest.mark.parametrize("example", load_demonstrations())
def test_demonstrations_obey_the_prompt(example):
    parsed = parse_completion(format_completion(example.trace, example.answer))
    assert (parsed.trace, parsed.answer) == (example.trace, example.answer)
    cited = {int(part.split("]")[0]) for step in example.trace.texts for part in step.split("[")[1:]}
    assert cited <= set(range(len(example.evidence)))
    assert len(cited) >= 2
