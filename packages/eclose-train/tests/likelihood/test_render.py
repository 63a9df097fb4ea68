"""Rendering on real tokenizers: parts tokenise as the whole, and what is trained is what is served."""

import pytest

pytest.importorskip("torch")

from eclose import Trace
from eclose.errors import UserError
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt, format_completion
from eclose_train.families.comparisons import ALL_COMPARISONS
from eclose_train.likelihood.family_scores import FamilyScores
from eclose_train.likelihood.prefix_tree import ScoredTree, group_scores_by_path
from eclose_train.likelihood.render import TokenPathRenderer, response_segments
from eclose_train.likelihood.spans import ScoredTokens, TokenPart

pytestmark = pytest.mark.torch


def packs(tokenizer, families, **settings):
    renderer = TokenPathRenderer(tokenizer, ResponsePrompt(**settings))
    return renderer, [FamilyScores(family, edit, renderer) for family in families for edit in family.evidence_edits]


def check(tokenizer, families):
    renderer, family_scores = packs(tokenizer, families)
    for scores_of in family_scores:
        view = scores_of.edit.view
        path = renderer.render(view.question, view.evidence, view.trace, view.answer)
        prompt = renderer.prompt_text(view.question, view.evidence)
        start = path.parts.index((TokenPart.NUMBER, None))
        # Training's prompt is inference's prompt, token for token, and the reply reads as the model would write it.
        assert path.ids[:start] == tuple(tokenizer(prompt, add_special_tokens=False)["input_ids"])
        reply = format_completion(view.trace, view.answer) + tokenizer.eos_token
        assert path.ids[start:] == tuple(tokenizer(reply, add_special_tokens=False)["input_ids"])
        assert tokenizer.decode([path.ids[position] for position in path.answer_positions()]).strip() == view.answer
        for number, text in enumerate(view.trace.texts):
            assert tokenizer.decode([path.ids[position] for position in path.step_positions(number)]).strip() == text
        assert path.ids[-1] == tokenizer.eos_token_id
        assert path.parts[-1] == (TokenPart.END, None)
    assert (renderer.mismatched, renderer.rendered) == (0, len(family_scores))


def test_parts_tokenise_as_the_whole_for_smollm2(smollm2_tokenizer, families):
    check(smollm2_tokenizer, families)


def test_parts_tokenise_as_the_whole_for_others(other_tokenizer, families):
    check(other_tokenizer, families)


def test_thinking_is_off_and_its_empty_block_is_prompt(other_tokenizer, families):
    if "<think>" not in (other_tokenizer.chat_template or ""):
        pytest.skip("this model does not think")
    text = TokenPathRenderer(other_tokenizer).prompt_text("Who?", families[0].gold.evidence)
    assert text.endswith("<think>\n\n</think>\n\n")


def test_fifteen_scores_on_nine_paths(smollm2_tokenizer, families):
    _, family_scores = packs(smollm2_tokenizer, families)
    for scores_of in family_scores:
        scores = scores_of.anchors() + scores_of.comparisons()
        assert len(scores) == 15
        assert len({score.name for score in scores}) == 15
        # Nine, or fewer where two responses begin alike.
        assert len(group_scores_by_path(scores)) <= 9
    assert (
        max(len(group_scores_by_path(scores_of.anchors() + scores_of.comparisons())) for scores_of in family_scores)
        == 9
    )


def test_both_sides_of_a_comparison_follow_the_same_input(smollm2_tokenizer, families):
    _, family_scores = packs(smollm2_tokenizer, families)
    for scores_of in family_scores:
        by_name = {score.name: score for score in scores_of.comparisons()}
        for comparison in ALL_COMPARISONS:
            stem = f"{comparison.edge.value}.{comparison.direction.value}"
            preferred, rejected = by_name[f"{stem}+"], by_name[f"{stem}-"]
            first = min(preferred.positions[0], rejected.positions[0])
            assert preferred.path.ids[:first] == rejected.path.ids[:first]
            assert [preferred.path.ids[p] for p in preferred.positions] != [
                rejected.path.ids[p] for p in rejected.positions
            ]


def test_evidence_first_shares_more(smollm2_tokenizer, families):
    sizes = {}
    for order in PromptOrder:
        _, family_scores = packs(smollm2_tokenizer, families, order=order)
        sizes[order] = sum(len(ScoredTree.of(p.anchors() + p.comparisons()).layout) for p in family_scores)
    assert sizes[PromptOrder.EVIDENCE_FIRST] < 0.8 * sizes[PromptOrder.QUESTION_FIRST]


def test_content_leaves_the_layout_out(smollm2_tokenizer, families):
    renderer = TokenPathRenderer(smollm2_tokenizer)
    view = families[0].gold
    path = renderer.render(view.question, view.evidence, view.trace, view.answer)
    content, full = path.response_positions(ScoredTokens.CONTENT), path.response_positions(ScoredTokens.FULL)
    assert set(content) == set(path.trace_positions()) | set(path.answer_positions())
    assert {path.parts[position][0] for position in set(full) - set(content)} == {
        TokenPart.NUMBER,
        TokenPart.DELIMITER,
        TokenPart.END,
    }


def test_whole_responses_for_response_margins(smollm2_tokenizer, families):
    _, family_scores = packs(smollm2_tokenizer, families)
    gold, other = family_scores[0].family.gold.kind, family_scores[0].edit.view.kind
    crossed, matched = family_scores[0].responses([(gold, other), (other, other)])
    assert crossed.name == "response Evidence-CF under Gold"
    assert matched.path.ids != crossed.path.ids
    assert [matched.path.ids[p] for p in matched.positions] == [crossed.path.ids[p] for p in crossed.positions]


def test_nothing_is_cut_to_fit(smollm2_tokenizer, families):
    view = families[0].gold
    with pytest.raises(UserError, match="paths are not cut"):
        TokenPathRenderer(smollm2_tokenizer, max_length=100).render(
            view.question, view.evidence, view.trace, view.answer
        )


class Glue:
    """A tokenizer that does not split at line breaks: it takes two characters at a time."""

    name_or_path, chat_template, is_fast = "glue", "any", True
    eos_token, all_special_tokens, added_tokens_decoder = "|", ["|"], {}

    def __call__(self, text, return_offsets_mapping=False, **_):
        pieces = [text[i : i + 2] for i in range(0, len(text), 2)]
        encoding = {"input_ids": [hash(piece) % 1_000 for piece in pieces]}
        if return_offsets_mapping:
            encoding["offset_mapping"] = [(2 * n, 2 * n + len(piece)) for n, piece in enumerate(pieces)]
        return encoding

    def apply_chat_template(self, messages, **_):
        return "prompt" + "".join(turn["content"] + "|" for turn in messages if turn["role"] == "assistant")


def test_a_mismatch_is_settled_by_the_whole_and_counted():
    renderer = TokenPathRenderer(Glue(), ResponsePrompt(0))
    path = renderer.render("q", (), Trace.of("abc"), "de")
    # "1." " a" "bc" "\nF" ... : the line break ends inside a token that belongs to the label behind it.
    assert renderer.mismatched == 1
    assert len(path.ids) == 3 + len("1. abc\nFinal answer: de|") / 2
    assert [part for part, _ in path.parts][3:8] == [
        TokenPart.NUMBER,
        TokenPart.STEP,
        TokenPart.STEP,
        TokenPart.DELIMITER,
        TokenPart.DELIMITER,
    ]


def test_a_slow_tokenizer_is_a_sentence():
    class Slow(Glue):
        is_fast = False

    with pytest.raises(UserError, match=r"glue: this is a slow tokenizer.*tokenizer\.json"):
        TokenPathRenderer(Slow())


def test_too_many_mismatches_are_refused():
    renderer = TokenPathRenderer(Glue(), ResponsePrompt(0))
    for _ in range(5):
        renderer.render("q", (), Trace.of("abc"), "de")
    with pytest.raises(UserError, match="does not split at line breaks"):
        renderer.render("q", (), Trace.of("abc"), "de")


def test_a_tokenizer_without_an_end_is_refused():
    class Endless(Glue):
        eos_token, all_special_tokens = None, []

    with pytest.raises(UserError, match="neither chat template nor tokenizer"):
        TokenPathRenderer(Endless())


def test_segments_of_a_response():
    texts = [segment.text for segment in response_segments(Trace.of("A.", "B."), "x", "<end>")]
    assert texts == ["1.", " A.\n", "2.", " B.\n", "Final answer:", " x", "<end>"]
    assert "".join(texts) == format_completion(Trace.of("A.", "B."), "x") + "<end>"
    assert response_segments(Trace.of("A."), None, "<end>")[-1].text == " A.\n"
