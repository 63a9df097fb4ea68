"""What an audit says: the paper's own table comes out of its counts, and nothing is guessed."""

import csv
import json
from dataclasses import replace
from math import fsum
from pathlib import Path

import numpy as np
import pytest

from eclose.errors import SettingError, UserError
from eclose.values.family import ViewKind
from eclose_annotate.family_audit.forms import read_filled_forms
from eclose_annotate.family_audit.report import (
    COLUMNS,
    build_audit_report,
    match_forms_to_families,
    settle_audited_families,
)
from eclose_annotate.family_audit.sample import AuditKey, AuditStratum, draw_audit_sample
from tests.family_audit.auditing import blank, corpus, fill, filled

PAPER = Path(__file__).parents[3] / "eclose" / "tests" / "fixtures" / "paper" / "tables.csv"
GOLD, EVIDENCE, QUESTION = "gold.supported", "evidence.isolated", "question.valid"
SMALL = {"A": (18, 2), "B": (9, 1)}


@pytest.fixture(scope="module")
def key():
    """Twenty families of A, ten of B, all looked at."""
    return draw_audit_sample(corpus(SMALL), n=60, seed=42, annotators=2)


def given(key, path, annotator, failing=None, only=None):
    """One person's sheet, through its file; what fails by family."""
    marks = {item.forms[annotator - 1]: (failing or {}).get(item.family_id, ()) for item in key.items}
    form_ids = {item.forms[annotator - 1] for item in key.items if only is None or item.family_id in only}
    forms = [form for form in key.sheet(annotator) if form.id in form_ids]
    return match_forms_to_families(key, path, read_filled_forms(fill(path / f"forms-{annotator}.jsonl", forms, marks)))


def ids(key, dataset):
    return [item.family_id for item in key.items if item.dataset == dataset]


# The paper.


def printed(table):
    with PAPER.open(newline="") as file:
        return {(row["row"], row["column"]): row["printed"] for row in csv.DictReader(file) if row["table"] == table}


AUDIT, FLOW = printed("human_audit"), printed("training_construction_flow")
DATASETS = ("2WikiMultiHopQA", "MuSiQue", "HotpotQA")
MARK = {"Gold": GOLD, "Evidence-CF": EVIDENCE, "Question-CF": QUESTION}


def failures(dataset, names):
    """Which views of which families fail, so that all four printed counts of a dataset come out."""
    count = {what: 100 - round(float(AUDIT[dataset, what])) for what in COLUMNS}
    failing = {}
    # Evidence from one end, the others from the other end of those families that fail.
    for what, order in (("Evidence-CF", 1), ("Gold", -1), ("Question-CF", -1)):
        for name in names[: count["Family"]][::order][: count[what]]:
            failing.setdefault(name, []).append(MARK[what])
    assert len(failing) == count["Family"]
    return failing


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A hundred of each dataset; eight disputed, which a third person settles against the family."""
    path = tmp_path_factory.mktemp("paper")
    drawn = draw_audit_sample(corpus(dict.fromkeys(DATASETS, (90, 10))), n=300, seed=42, annotators=2)
    # As many families as the paper has: the corpus counts only by its size.
    packed = {name: int(FLOW[name, "Packed"]) for name in DATASETS}
    strata = tuple(AuditStratum(name, "all", size, 100, 100) for name, size in packed.items())
    key: AuditKey = replace(drawn, strata=strata)
    failing = {}
    for dataset in DATASETS:
        failing |= failures(dataset, ids(key, dataset))
    assert len(failing) == 10
    both = dict(list(failing.items())[:2])
    first, second = given(key, path, 1, failing), given(key, path, 2, both)
    third = given(key, path, 3, failing, only=failing.keys() - both.keys())
    return build_audit_report(key, [first, second], third)


@pytest.mark.slow
@pytest.mark.parametrize("what", COLUMNS)
@pytest.mark.parametrize("dataset", DATASETS)
def test_the_rates_of_a_dataset_as_printed(audited, dataset, what):
    row = audited.datasets[dataset][what]
    printed = [f"{100 * value:.1f}" for value in (row.value, *row.interval)]
    assert printed == [AUDIT[dataset, name] for name in (what, f"{what} low", f"{what} high")]
    assert (row.settled, row.open, audited.audited[dataset]) == (100, 0, int(AUDIT[dataset, "Audited"]))


@pytest.mark.slow
@pytest.mark.parametrize("what", COLUMNS)
def test_the_rates_of_the_corpus_as_printed(audited, what):
    row = audited.weighted[what]
    assert f"{100 * row.value:.1f}" == AUDIT["Corpus-weighted", what]
    # Their resamples are not ours: an end may be two units of the last digit off.
    for end, value in zip(("low", "high"), row.interval, strict=True):
        assert abs(100 * value - float(AUDIT["Corpus-weighted", f"{what} {end}"])) <= 0.25
    assert not row.constant


def test_agreement_and_the_unweighted_rate_as_printed(audited):
    family = next(entry for entry in audited.agreement if entry.what == "Family")
    # 292/300 (97.3 %, AC1 = 0.972), eight settled by a third; 290/300 pass, 96.7 % unweighted.
    assert (family.n, family.agreed, f"{family.raw:.3f}", f"{family.ac1:.3f}") == (300, 292, "0.973", "0.972")
    assert (len(audited.disputed), audited.unresolved, audited.open) == (8, (), ())
    row = audited.unweighted["Family"]
    assert (row.passed, row.settled, f"{100 * row.value:.1f}", row.interval) == (290, 300, "96.7", None)
    assert len(audited.failing) == 10
    assert [entry.complete for entry in audited.handed] == [300, 300, 8]


# Weights and resamples, by hand.


def test_the_corpus_counts_by_its_size(key, tmp_path):
    """Half of A's 20 fail and none of B's 10. With 900 and 100 families: 0.9 * 1/2 + 0.1 * 1 = 0.55; unweighted 2/3."""
    strata = (AuditStratum("A", "all", 900, 20, 20), AuditStratum("B", "all", 100, 10, 10))
    sized = replace(key, strata=strata)
    failing = dict.fromkeys(ids(key, "A")[:10], (GOLD,))
    audit = build_audit_report(sized, [given(sized, tmp_path, n, failing) for n in (1, 2)])
    assert audit.weighted["Gold"].value == pytest.approx(0.55, abs=1e-12)
    assert audit.weighted["Family"].value == pytest.approx(0.55, abs=1e-12)
    assert audit.unweighted["Gold"].value == pytest.approx(2 / 3)
    assert audit.weighted["Question-CF"].value == 1
    assert audit.weighted["Question-CF"].constant, "no spread is no certainty, and is said"
    assert not audit.weighted["Gold"].constant


@pytest.mark.slow
def test_families_are_resampled_within_datasets_with_their_labels_together(key, tmp_path):
    """A plain loop over resamples agrees, and gold and family, failing together, have one interval."""
    failing = dict.fromkeys(ids(key, "A")[:5] + ids(key, "B")[:2], (GOLD,))
    audit = build_audit_report(key, [given(key, tmp_path, n, failing) for n in (1, 2)], resamples=4000)
    assert audit.weighted["Gold"] == audit.weighted["Family"]
    rng = np.random.default_rng(1)
    passed = {"A": np.array([0] * 5 + [1] * 15), "B": np.array([0] * 2 + [1] * 8)}
    draws = [
        fsum(share * rng.choice(passed[name], len(passed[name])).mean() for name, share in (("A", 2 / 3), ("B", 1 / 3)))
        for _ in range(4000)
    ]
    assert audit.weighted["Gold"].interval == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=0.02)


def test_no_resample_mixes_datasets(key, tmp_path):
    """All of A fail and none of B: within datasets every resample says 1/3, across them it would not. No certainty."""
    audit = build_audit_report(key, [given(key, tmp_path, n, dict.fromkeys(ids(key, "A"), (GOLD,))) for n in (1, 2)])
    row = audit.weighted["Gold"]
    assert (row.value, *row.interval) == pytest.approx((1 / 3,) * 3, abs=1e-12)
    assert row.constant


def test_the_same_seed_the_same_report(key, tmp_path):
    failing = dict.fromkeys(ids(key, "A")[:5], (GOLD,))
    sheets = [given(key, tmp_path, n, failing) for n in (1, 2)]
    assert build_audit_report(key, sheets) == build_audit_report(key, sheets[::-1])
    assert build_audit_report(key, sheets, seed=1).weighted["Gold"] != build_audit_report(key, sheets).weighted["Gold"]


# Who says what.


def test_a_dispute_stays_open_until_a_third_person_settles_it(key, tmp_path):
    name, other = ids(key, "A")[:2]
    first, second = given(key, tmp_path, 1, {name: (GOLD,), other: (EVIDENCE,)}), given(key, tmp_path, 2, {})
    audit = build_audit_report(key, [first, second])
    assert set(audit.disputed) == set(audit.unresolved) == set(audit.open) == {name, other}
    row = audit.datasets["A"]["Family"]
    # 18 of 20 pass for certain, two may.
    assert (row.passed, row.settled, row.open, row.value, row.interval) == (18, 18, 2, None, None)
    assert tuple(row.bounds) == (18 / 20, 1)
    assert audit.datasets["A"]["Question-CF"].value == 1
    weighted = audit.weighted["Family"]
    assert (weighted.value, weighted.interval) == (None, None)
    # A has 20 of 30 families: 2/3 * 18/20 + 1/3.
    assert tuple(weighted.bounds) == pytest.approx((2 / 3 * 0.9 + 1 / 3, 1))
    third = given(key, tmp_path, 3, {name: (GOLD,)}, only={name, other})
    settled = build_audit_report(key, [first, second], third)
    assert (settled.unresolved, settled.open, settled.failing) == ((), (), {name: ("Gold",)})
    assert settled.datasets["A"]["Family"].value == 19 / 20
    assert settled.agreement == audit.agreement, "agreement is that before anybody settled anything"


def test_a_third_person_decides_what_is_disputed_and_nothing_else(key, tmp_path):
    """One fails gold, the other passes all. The third fails the question, on which nobody differs: gold is settled."""
    name, quiet = ids(key, "A")[:2]
    first = given(key, tmp_path, 1, {name: (GOLD,)})
    second = given(key, tmp_path, 2, {})
    third = given(key, tmp_path, 3, {quiet: (GOLD,), name: (QUESTION,)}, only={name, quiet})
    (outcome,) = (one for one in settle_audited_families(key, [first, second], third) if one.item.family_id == name)
    assert (outcome.labels, outcome.disputed) == ((True, True, True, True), (ViewKind.GOLD,))
    audit = build_audit_report(key, [first, second], third)
    assert quiet not in audit.failing
    assert [len(handed.surplus) for handed in audit.handed] == [0, 0, 1]


@pytest.mark.parametrize("view", [GOLD, EVIDENCE, QUESTION])
def test_family_fails_when_the_third_auditor_fails_the_disputed_view_alone(key, tmp_path, view):
    name = ids(key, "A")[0]
    sheets = [given(key, tmp_path, 1, {name: (view,)}), given(key, tmp_path, 2, {})]
    third = given(key, tmp_path, 3, {name: (view,)}, only={name})
    (outcome,) = (each for each in settle_audited_families(key, sheets, third) if each.item.family_id == name)
    views = (GOLD, EVIDENCE, QUESTION)
    assert outcome.labels == (*(each != view for each in views), False)


def test_different_reasons_for_the_same_verdict_are_no_dispute(key, tmp_path):
    name = ids(key, "A")[0]
    sheets = [given(key, tmp_path, n, {name: (mark,)}) for n, mark in ((1, "gold.aligned"), (2, "gold.closed"))]
    audit = build_audit_report(key, sheets)
    assert (audit.disputed, audit.failing) == ((), {name: ("Gold",)})


def test_views_may_be_disputed_where_the_family_is_not(key, tmp_path):
    """Both fail the family, each for another view: the family is settled, the views are not (appendix B.6).

    A third person resolves disagreements on families, so nobody is sent this one.
    """
    name = ids(key, "A")[0]
    sheets = [given(key, tmp_path, n, {name: (mark,)}) for n, mark in ((1, GOLD), (2, EVIDENCE))]
    audit = build_audit_report(key, sheets)
    assert (audit.disputed, audit.unresolved) == ((), ())
    assert (audit.open, audit.failing) == ((name,), {name: ("Family",)})
    assert audit.datasets["A"]["Family"].value == 19 / 20
    assert audit.datasets["A"]["Gold"].open == 1
    third = given(key, tmp_path, 3, {}, only={name})
    settled = build_audit_report(key, sheets, third)
    assert settled.datasets == audit.datasets
    assert [len(handed.surplus) for handed in settled.handed] == [0, 0, 1]
    family, gold = (next(row for row in audit.agreement if row.what == what) for what in ("Family", "Gold"))
    assert (family.agreed, gold.agreed) == (30, 29)


def test_what_was_not_answered_is_open_and_named(key, tmp_path):
    names = ids(key, "B")
    forms = {item.family_id: item.form(1) for item in key.items}
    lines = [filled(form) for name, form in forms.items() if name not in names[:3]]
    half = json.loads(filled(forms[names[0]]))
    half["question"]["valid"] = None
    empty = blank(tmp_path / "blank.jsonl", [forms[names[1]]]).read_text()
    path = tmp_path / "forms-1.jsonl"
    path.write_text("\n".join([*lines, json.dumps(half), empty]))
    audit = build_audit_report(
        key, [match_forms_to_families(key, path, read_filled_forms(path)), given(key, tmp_path, 2)]
    )
    returned = audit.handed[0]
    assert (returned.expected, returned.complete) == (30, 27)
    assert [returned.half_filled, returned.blank, returned.missing] == [(forms[name].id,) for name in names[:3]]
    assert (set(audit.open), audit.disputed) == (set(names[:3]), ())
    assert audit.datasets["B"]["Gold"].open == 2, "the half-filled form says all of gold"
    assert (audit.datasets["B"]["Family"].value, audit.datasets["A"]["Family"].value) == (None, 1)
    family = next(row for row in audit.agreement if row.what == "Family")
    assert family.n == 27


def test_one_annotator_agrees_with_nobody(tmp_path):
    key = draw_audit_sample(corpus({"A": (4, 0)}), n=40, seed=1, annotators=1)
    audit = build_audit_report(key, [given(key, tmp_path, 1)])
    assert (audit.agreement, audit.datasets["A"]["Family"].value) == ((), 1)


def test_three_annotators_in_pairs(tmp_path):
    key = draw_audit_sample(corpus({"A": (4, 0)}), n=40, seed=1, annotators=3)
    name = ids(key, "A")[0]
    audit = build_audit_report(key, [given(key, tmp_path, n, {name: (GOLD,)} if n == 3 else {}) for n in (1, 2, 3)])
    agreed = {row.annotators: row.agreed for row in audit.agreement if row.what == "Gold"}
    assert agreed == {(1, 2): 4, (1, 3): 3, (2, 3): 3}
    assert audit.unresolved == (name,)


def test_a_dataset_nobody_looked_at_leaves_the_corpus_undefined(key, tmp_path):
    sized = replace(key, strata=(*key.strata, AuditStratum("C", "all", 5, 0, 0)))
    audit = build_audit_report(sized, [given(sized, tmp_path, n) for n in (1, 2)])
    assert {(row.value, row.interval, row.bounds) for row in audit.weighted.values()} == {(None, None, None)}
    assert audit.datasets["C"]["Gold"].value is None
    assert audit.unweighted["Gold"].value == 1


def test_notes_are_kept(key, tmp_path):
    item = key.items[3]
    path = tmp_path / "forms-1.jsonl"
    path.write_text(filled(item.form(1), note="the date is odd"))
    audit = build_audit_report(
        key, [match_forms_to_families(key, path, read_filled_forms(path)), given(key, tmp_path, 2)]
    )
    assert audit.notes == ((item.family_id, 1, "the date is odd"),)


# What is refused.


def test_unknown_repeated_and_moved_forms_are_refused_all_at_once(key, tmp_path):
    first, second, third, *_ = key.sheet(1)
    other = next(form for form in key.sheet(1) if form.shown.question != third.shown.question)
    moved = replace(third, shown=other.shown)
    path = tmp_path / "f.jsonl"
    path.write_text("\n".join(map(filled, [first, replace(second, id="f-0"), first, moved])))
    with pytest.raises(UserError) as refused:
        match_forms_to_families(key, path, read_filled_forms(path))
    message = str(refused.value)
    assert "line 2: the id 'f-0' belongs to no form of this audit" in message
    assert f"line 3: the form {first.id!r} occurs twice" in message
    assert f"line 4: {third.id!r} has another question" in message


def test_a_question_may_lose_its_accents_in_a_spreadsheet_and_no_words(key, tmp_path):
    form = key.sheet(1)[0]
    path = tmp_path / "f.jsonl"
    worn = replace(form, shown=replace(form.shown, question=f"'  {form.shown.question} \u2019\r\n"))
    path.write_text(filled(worn))
    assert len(match_forms_to_families(key, path, read_filled_forms(path)).forms) == 1


def test_the_forms_of_two_people_in_one_file(key, tmp_path):
    path = fill(tmp_path / "f.jsonl", [key.sheet(1)[0], key.sheet(2)[0], key.sheet(2)[1]])
    with pytest.raises(UserError, match="several annotators: 1, 2"):
        match_forms_to_families(key, path, read_filled_forms(path))


def test_the_same_forms_twice_are_no_agreement(key, tmp_path):
    first, second, third = (given(key, tmp_path, n) for n in (1, 2, 3))
    for sheets in ([first, first], [first], [first, second, second], [first, third]):
        with pytest.raises(SettingError, match="annotators 1, 2 are needed"):
            build_audit_report(key, sheets)
    with pytest.raises(SettingError, match="--adjudicated: these are the forms of annotator 2"):
        build_audit_report(key, [first, second], second)
