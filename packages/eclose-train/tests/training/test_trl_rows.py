"""Families as rows for TRL: the same prompts byte for byte, the same pairs and weights as our own objective."""

import json
from itertools import islice

import pytest

from eclose.files.jsonl import encode_json_line
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt
from eclose.values.family import select_fixed_edit
from eclose.values.response import parse_completion
from eclose_train.training.row_formats import ExportedEdits
from eclose_train.training.trl_rows import make_preference_rows, make_sft_rows
from eclose_world.make.families import make_world_families

PROMPT = ResponsePrompt()


@pytest.fixture(scope="module")
def family():
    """One with two evidence edits, of which the first in the file is not the first in order."""
    return next(
        candidate
        for candidate in make_world_families("2wiki", 5)
        if len(candidate.evidence_edits) == 2 and select_fixed_edit(candidate) is not candidate.evidence_edits[0]
    )


def asked(view, prompt=PROMPT):
    return [dict(message) for message in prompt.messages(view.question, view.evidence)]


def written(row):
    """The row as a reader of the file has it."""
    return json.loads(encode_json_line(row))


def test_a_row_per_view_with_our_own_prompt(family):
    rows = [written(row) for row in make_sft_rows(family, PROMPT)]
    views = [family.gold, select_fixed_edit(family).view, family.question_edit.view]
    assert [row["view"] for row in rows] == ["Gold", "Evidence-CF", "Question-CF"]
    for row, view in zip(rows, views, strict=True):
        assert row["prompt"] == asked(view)
        (reply,) = row["completion"]
        assert reply["role"] == "assistant"
        parsed = parse_completion(reply["content"])
        assert (parsed.trace, parsed.answer) == (view.trace, view.answer)
        assert (row["family_id"], row["weight"]) == (family.id, 1 / 3)
        assert row["chat_template_kwargs"] == {"enable_thinking": False}
    assert list(rows[0]) == ["prompt", "completion", "family_id", "view", "weight", "chat_template_kwargs"]


def test_the_pairs_of_the_response_margin(family):
    rows = {row["comparison"]: row for row in map(written, make_preference_rows(family, PROMPT))}
    gold, changed, other = family.gold, select_fixed_edit(family).view, family.question_edit.view
    table = {  # appendix D.3: input, preferred, dispreferred
        "Re_o": (gold, gold, changed),
        "Re_c": (changed, changed, gold),
        "Rq_o": (gold, gold, other),
        "Rq_c": (other, other, gold),
    }
    assert list(rows) == list(table)
    for name, (prompt_view, right, wrong) in table.items():
        assert rows[name]["prompt"] == asked(prompt_view)
        assert parse_completion(rows[name]["chosen"][0]["content"]).answer == right.answer
        assert parse_completion(rows[name]["rejected"][0]["content"]).answer == wrong.answer
        assert rows[name]["family_id"] == family.id


def test_names_and_weights_are_those_of_our_objective(family):
    pytest.importorskip("torch")
    from eclose_train.training.objective import TrainingMethod, build_objective

    ours = {term.name: term.weight for term in build_objective(TrainingMethod.RESPONSE_MARGIN).terms}
    assert {row.comparison: row.weight for row in make_preference_rows(family, PROMPT)} == pytest.approx(ours)


def test_all_edits_share_the_weight_of_one(family):
    rows = list(make_preference_rows(family, PROMPT, ExportedEdits.ALL))
    assert [row.comparison for row in rows] == ["Re_o", "Re_c", "Re_o", "Re_c", "Rq_o", "Rq_c"]
    assert sum(row.weight for row in rows) == pytest.approx(1)
    assert sum(row.weight for row in rows if row.comparison.startswith("Re")) == pytest.approx(2 / 3)
    views = list(make_sft_rows(family, PROMPT, ExportedEdits.ALL))
    assert [row.view for row in views] == ["Gold", "Evidence-CF", "Evidence-CF", "Question-CF"]
    assert sum(row.weight for row in views) == pytest.approx(1)


def test_the_prompt_is_a_setting(family):
    prompt = ResponsePrompt(demonstrations=0, order=PromptOrder.QUESTION_FIRST)
    (row, *_) = make_sft_rows(family, prompt)
    assert written(row)["prompt"] == asked(family.gold, prompt)
    assert written(row)["prompt"] != asked(family.gold)


@pytest.mark.torch
def test_what_is_exported_is_what_is_rendered():
    """The template, given a row, writes what our renderer scores."""
    pytest.importorskip("torch")
    from eclose_train.likelihood.render import TokenPathRenderer
    from tests.tiny_models import tokenizer

    renderer = TokenPathRenderer(tokenizer())
    for family in islice(make_world_families("hotpot", 2), 2):
        row = written(next(iter(make_sft_rows(family, PROMPT))))
        text = renderer.tokenizer.apply_chat_template(
            row["prompt"], tokenize=False, add_generation_prompt=True, **row["chat_template_kwargs"]
        )
        assert text == renderer.prompt_text(family.gold.question, family.gold.evidence)
        path = renderer.render(family.gold.question, family.gold.evidence, family.gold.trace, family.gold.answer)
        whole = text + row["completion"][0]["content"] + renderer.tokenizer.eos_token
        assert tuple(renderer.tokenizer(whole, add_special_tokens=False)["input_ids"]) == path.ids
