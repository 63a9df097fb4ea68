"""The draw is stratified, follows from the seed alone, and never overwrites what people have filled in."""

import json
from collections import Counter

import pytest

from eclose.errors import RecordError, SettingError, UserError
from eclose.files.jsonl import ReadRecord, write_records
from eclose.prompts.locked_texts import load_prompt_text
from eclose_annotate.choices import AuditFormFormat
from eclose_annotate.family_audit.sample import (
    ALL,
    DEVELOPMENT,
    TRAINING,
    draw_audit_sample,
    encode_audit_key,
    read_audit_key,
    read_families_by_split,
    write_audit_folder,
)
from tests.family_audit.auditing import corpus, family

SIZES = {"A": (50, 6), "B": (40, 5), "C": (60, 9)}


def drawn(sizes=SIZES, n=30, seed=42, annotators=2):
    return draw_audit_sample(corpus(sizes), n=n, seed=seed, annotators=annotators)


def test_as_many_of_every_dataset_and_a_tenth_for_development():
    key = drawn()
    counts = Counter((item.dataset, item.split) for item in key.items)
    assert counts == {(name, split): count for name in SIZES for split, count in ((TRAINING, 9), (DEVELOPMENT, 1))}
    assert key.sizes == {"A": 56, "B": 45, "C": 69}
    assert len({item.family_id for item in key.items}) == 30


@pytest.mark.slow
def test_what_does_not_divide_goes_to_some_by_hash():
    counts = Counter(item.dataset for item in drawn(n=32).items)
    assert sorted(counts.values()) == [10, 11, 11]
    favoured = {min(Counter(i.dataset for i in drawn(n=32, seed=seed).items).items(), key=lambda one: one[1])[0]
                for seed in range(12)}  # fmt: skip
    assert len(favoured) > 1, "the seed decides which dataset goes short"


def test_fewer_where_there_are_fewer():
    key = drawn({"A": (50, 6), "B": (4, 0)}, n=40)
    assert {(s.dataset, s.split): (s.families, s.asked, s.drawn) for s in key.strata} == {
        ("A", TRAINING): (50, 18, 18), ("A", DEVELOPMENT): (6, 2, 2),
        ("B", TRAINING): (4, 18, 4), ("B", DEVELOPMENT): (0, 2, 0),
    }  # fmt: skip
    assert len(key.items) == 24


@pytest.mark.slow
def test_the_order_of_the_families_does_not_matter_and_the_seed_does():
    forwards = list(corpus(SIZES))
    again = draw_audit_sample(reversed(forwards), n=30, seed=42, annotators=2)
    assert encode_audit_key(again) == encode_audit_key(drawn())
    assert {item.family_id for item in drawn(seed=43).items} != {item.family_id for item in again.items}


@pytest.mark.slow
def test_a_larger_draw_contains_the_smaller_one():
    small, large = ({item.family_id for item in drawn(n=n).items} for n in (30, 60))
    assert small < large


@pytest.mark.slow
def test_every_family_is_as_likely_as_another():
    """Ten of twenty, thirty-six times: each about eighteen times, and the edit now one and now the other."""
    times, edits = Counter(), Counter()
    families = list(corpus({"A": (20, 0)}))
    for seed in range(36):
        # One for development is not to be had.
        for item in draw_audit_sample(families, n=11, seed=seed, annotators=1).items:
            times[item.family_id] += 1
            edits[item.family_id, item.edit] += 1
    # Binomial(36, 1/2): mean 18, deviation 3; four deviations either side.
    assert len(times) == 20
    assert 6 <= min(times.values()) <= max(times.values()) <= 30
    two = [record.value.id for _, record in families if len(record.value.evidence_edits) == 2]
    total = sum(times[family_id] for family_id in two)
    assert total > 36
    assert abs(sum(edits[family_id, 0] for family_id in two) / total - 0.5) < 4 * (0.25 / total) ** 0.5


def test_the_drawn_edit_is_the_one_that_is_shown():
    families = {record.value.id: record.value for _, record in corpus(SIZES)}
    for item in drawn().items:
        family = families[item.family_id]
        edit = family.evidence_edits[item.edit]
        index = int(item.shown.edited_passage.index)
        assert (item.shown.evidence_answer, item.shown.edited_passage.text) == (
            edit.view.answer, edit.view.evidence[index].text,
        )  # fmt: skip
        assert item.shown.passages[index].text != item.shown.edited_passage.text


def test_every_annotator_has_ids_and_an_order_of_their_own():
    key = drawn(annotators=3)
    order = [[form.id for form in key.sheet(annotator)] for annotator in (1, 2, 3, 4)]
    assert len({form_id for ids in order for form_id in ids}) == 4 * 30
    family_of = {form_id: item.family_id for item in key.items for form_id in item.forms}
    places = [[family_of[form_id] for form_id in ids] for ids in order]
    assert len({tuple(form_id) for form_id in places}) == 4
    assert len({frozenset(form_id) for form_id in places}) == 1
    # By no dataset or split, which a run of equal ones would betray.
    assert [item.family_id for item in key.items] not in places


@pytest.mark.parametrize(("n", "annotators"), [(2, 2), (0, 2), (30, 0)])
def test_what_cannot_be_drawn(n, annotators):
    with pytest.raises(SettingError, match="at least one"):
        drawn(n=n, annotators=annotators)


def test_a_family_in_both_parts_is_refused():
    twice = ReadRecord("line 1", value=family("x", "A"))
    with pytest.raises(UserError, match="in training and in development"):
        draw_audit_sample([(TRAINING, twice), (DEVELOPMENT, twice)], n=2, seed=1, annotators=2)


def test_nothing_is_left_out_in_silence():
    records = [
        *corpus({"A": (3, 0)}),
        (TRAINING, ReadRecord("line 9", rejected="duplicate")),
        (TRAINING, ReadRecord("line 10", rejected="duplicate")),
    ]
    assert draw_audit_sample(records, n=3, seed=1, annotators=1).set_aside == {"training: duplicate": 2}
    with pytest.raises(RecordError, match="broken"):
        draw_audit_sample(
            [*records, (TRAINING, ReadRecord("line 11", error=RecordError("broken")))], n=3, seed=1, annotators=1
        )
    with pytest.raises(UserError, match="no family"):
        draw_audit_sample([], n=3, seed=1, annotators=1)


def test_a_source_without_a_dataset_counts_as_unknown():
    key = draw_audit_sample(corpus({None: (5, 1)}), n=4, seed=1, annotators=1)
    assert key.sizes == {"unknown": 6}


def test_a_run_has_two_parts_and_a_file_one(tmp_path):
    write_records(tmp_path / "train.jsonl", [family("a", "A")])
    write_records(tmp_path / "development.jsonl", [family("b", "A", 1)])
    assert [(split, record.value.id) for split, record in read_families_by_split(tmp_path)] == [
        (TRAINING, "SECRET-a"), (DEVELOPMENT, "SECRET-b"),
    ]  # fmt: skip
    assert [split for split, _ in read_families_by_split(tmp_path / "train.jsonl")] == [ALL]
    (tmp_path / "development.jsonl").unlink()
    with pytest.raises(UserError, match=r"development\.jsonl: there is no such file"):
        list(read_families_by_split(tmp_path))


def test_the_folder(tmp_path):
    key = drawn()
    written = write_audit_folder(tmp_path, key, AuditFormFormat.JSONL)
    assert {path.name: new for path, new in written.items()} == dict.fromkeys(
        ["audit_family.md", "forms-1.jsonl", "forms-2.jsonl", "audit.json"], True
    )
    assert (tmp_path / "audit_family.md").read_text() == load_prompt_text("audit_family.md").text
    assert read_audit_key(tmp_path) == key
    for annotator in (1, 2):
        lines = (tmp_path / f"forms-{annotator}.jsonl").read_text().splitlines()
        assert [json.loads(line)["id"] for line in lines] == [form.id for form in key.sheet(annotator)]


@pytest.mark.slow
def test_what_people_have_filled_in_is_never_overwritten(tmp_path):
    write_audit_folder(tmp_path, drawn(), AuditFormFormat.JSONL)
    (tmp_path / "forms-1.jsonl").write_text("filled in")
    assert not any(write_audit_folder(tmp_path, drawn(), AuditFormFormat.JSONL).values())
    with pytest.raises(UserError, match="another draw"):
        write_audit_folder(tmp_path, drawn(seed=7), AuditFormFormat.JSONL)
    assert (tmp_path / "forms-1.jsonl").read_text() == "filled in"
    # Without its key nobody knows what the file is.
    (tmp_path / "audit.json").unlink()
    with pytest.raises(UserError, match=r"forms-1\.jsonl: was changed"):
        write_audit_folder(tmp_path, drawn(), AuditFormFormat.JSONL)
    assert not (tmp_path / "audit.json").exists()


@pytest.mark.slow
def test_a_changed_guideline_is_noticed(tmp_path):
    write_audit_folder(tmp_path, drawn(), AuditFormFormat.JSONL)
    (tmp_path / "audit_family.md").write_text("Say yes.")
    with pytest.raises(UserError, match=r"audit_family\.md: was changed"):
        write_audit_folder(tmp_path, drawn(), AuditFormFormat.JSONL)


def test_what_is_no_key(tmp_path):
    (tmp_path / "audit.json").write_text('{"seed": 1}')
    with pytest.raises(UserError, match="not the key of an audit"):
        read_audit_key(tmp_path)
