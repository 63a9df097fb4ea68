"""Which families are fit: those of which every path fits, whatever objective will read them."""

from collections import Counter
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from eclose.errors import UserError
from eclose.files.jsonl import write_records
from eclose.prompts.response_prompt import ResponsePrompt
from eclose.values.family import ViewKind
from eclose_train.likelihood.family_scores import FamilyScores
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.training import admission
from eclose_train.training.admission import TOO_LONG_REASON, admit_families
from tests.training.small import short_families, small_tokenizer

pytestmark = pytest.mark.torch


def renderer(limit=8_192):
    return TokenPathRenderer(small_tokenizer(), ResponsePrompt(0), limit)


def lengths(family):
    """Tokens of the longest path under each edit, and of the one that SFT reads."""
    every = [(question_view, evidence_view) for question_view in ViewKind for evidence_view in ViewKind]
    packs = [FamilyScores(family, edit, renderer()) for edit in family.evidence_edits]
    longest = [max(len(score.path.ids) for score in pack.responses(every) + pack.comparisons()) for pack in packs]
    return longest, len(packs[0].anchors([ViewKind.GOLD])[0].path.ids)


@pytest.fixture(params=[1, -1], ids=["long edit first", "long edit last"])
def one(request, tmp_path):
    """A family whose edits differ in length, and whose own response is not its longest path."""
    family = short_families(6)[5]
    family = replace(family, evidence_edits=family.evidence_edits[:: request.param])
    longest, own = lengths(family)
    assert own < min(longest) < max(longest)
    write_records(tmp_path / "one.jsonl", [family])
    return tmp_path / "one.jsonl", longest, own


def test_a_family_is_admitted_when_its_longest_path_fits(one):
    path, longest, _ = one
    index, tally, left_out = admit_families(path, renderer(max(longest)))
    assert (len(index), left_out) == (1, [])
    assert tally.counts().conserved


def test_one_token_more_is_too_long(one):
    path, longest, _ = one
    with pytest.raises(UserError, match=f"{TOO_LONG_REASON} 1"):
        admit_families(path, renderer(max(longest) - 1))


def test_every_edit_must_fit_since_any_may_be_drawn(one):
    path, longest, _ = one
    with pytest.raises(UserError, match=TOO_LONG_REASON):
        admit_families(path, renderer(min(longest)))


def test_all_objectives_see_the_same_families(one):
    """SFT would read one short response; what is admitted does not depend on that."""
    path, _, own = one
    with pytest.raises(UserError, match=TOO_LONG_REASON):
        admit_families(path, renderer(own))


def test_counts_add_up_and_progress_is_told(tmp_path):
    path = tmp_path / "families.jsonl"
    families = short_families(4)
    write_records(path, [*families, families[0]])
    ticks = Counter()
    limit = sorted(max(lengths(family)[0]) for family in families)[1]
    index, tally, left_out = admit_families(path, renderer(limit), lambda: ticks.update("t"))
    counts = tally.counts()
    assert counts.conserved
    assert (counts.received, counts.accepted, counts.rejected) == (5, 2, {TOO_LONG_REASON: 2, "duplicate": 1})
    assert len(left_out) == 3
    assert ticks["t"] == 4
    assert {index[number].id for number in range(len(index))} <= {family.id for family in families}


def test_families_far_below_the_limit_are_not_tokenized(tmp_path, monkeypatch):
    path = tmp_path / "families.jsonl"
    write_records(path, short_families(4))
    monkeypatch.setattr(admission, "_fits", lambda *_: pytest.fail("a family was tokenized as a whole"))
    assert len(admit_families(path, renderer(8_192)).families) == 4


@pytest.mark.parametrize("limit", [-1, 0, 1, 40, 120])
def test_the_estimate_changes_no_decision(tmp_path, monkeypatch, limit):
    path = tmp_path / "families.jsonl"
    families = short_families(6)
    write_records(path, families)
    limit += sorted(max(lengths(family)[0]) for family in families)[3]
    quick = admit_families(path, renderer(limit))
    monkeypatch.setattr(admission._LengthEstimate, "surely_fits", lambda *_: False)
    whole = admit_families(path, renderer(limit))
    assert quick.families.ids == whole.families.ids
    assert quick.left_out == whole.left_out


def test_the_decision_is_read_again_and_not_made_again(tmp_path):
    path, record = tmp_path / "families.jsonl", tmp_path / "run" / "admission.json"
    families = short_families(4)
    path.write_bytes(b"not json\n")
    with path.open("ab") as file:
        write_records(tmp_path / "good.jsonl", [*families, families[0]])
        file.write((tmp_path / "good.jsonl").read_bytes())
    limit = sorted(max(lengths(family)[0]) for family in families)[1]
    ticks = Counter()
    first = admit_families(path, renderer(limit), lambda: ticks.update("t"), record=record)
    again = admit_families(path, renderer(limit), lambda: ticks.update("t"), record=record)
    assert ticks["t"] == 4
    assert again.families.ids == first.families.ids
    assert [again.families[number] for number in range(2)] == [first.families[number] for number in range(2)]
    assert again.tally.counts() == first.tally.counts()
    assert again.tally.counts().conserved
    reasons = [
        [(row.where, row.rejected, row.error_kind, str(row.error)) for row in decision.left_out]
        for decision in (first, again)
    ]
    assert reasons[0] == reasons[1]


@pytest.mark.parametrize("change", ["limit", "families", "damage"])
def test_a_decision_about_something_else_is_made_anew(tmp_path, change):
    path, record = tmp_path / "families.jsonl", tmp_path / "admission.json"
    families = short_families(4)
    write_records(path, families)
    admit_families(path, renderer(8_192), record=record)
    limit = 8_192
    if change == "limit":
        limit = sorted(max(lengths(family)[0]) for family in families)[1]
    elif change == "families":
        path.unlink()
        write_records(path, families[:2])
    else:
        record.write_bytes(record.read_bytes()[:40])
    ticks = Counter()
    admitted = admit_families(path, renderer(limit), lambda: ticks.update("t"), record=record)
    assert ticks["t"] == {"limit": 4, "families": 2, "damage": 4}[change]
    assert len(admitted.families) == {"limit": 2, "families": 2, "damage": 4}[change]
