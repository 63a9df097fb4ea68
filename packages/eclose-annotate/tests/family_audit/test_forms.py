"""A form shows what may be seen and nothing else, and comes back as it was answered."""

import csv
import io
import json
from dataclasses import asdict, replace

import pytest

from eclose.errors import UserError
from eclose.prompts.locked_texts import load_prompt_text
from eclose.values.family import ViewKind
from eclose_annotate.choices import AuditFormFormat
from eclose_annotate.family_audit.forms import CELL_LIMIT, FilledAuditForm, encode_audit_forms, read_filled_forms
from eclose_annotate.family_audit.material import AUDIT_MARKS, AuditorMaterial, FamilyAuditForm
from eclose_annotate.family_audit.sample import draw_audit_sample
from tests.family_audit.auditing import blank, corpus, family, filled

NAMES = tuple(name for names in AUDIT_MARKS.values() for name in names)


def forms(count=6):
    return draw_audit_sample(corpus({"DATASET-A": (count, 0)}), n=10 * count, seed=1, annotators=2).sheet(1)


def rows(data):
    return list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))


@pytest.mark.parametrize("layout", AuditFormFormat)
def test_nothing_that_must_not_be_seen_is_in_a_form(layout):
    data = encode_audit_forms(forms(), layout).decode()
    for hidden in ("SECRET", "DATASET", "training", "development", "SOURCE"):
        assert hidden not in data


def test_what_is_in_a_form_and_nothing_else():
    """Written out, so that nobody adds to it without noticing."""
    form = json.loads(encode_audit_forms(forms(1), AuditFormFormat.JSONL))
    assert list(form) == ["id", "shown", "gold", "evidence", "question", "note"]
    assert set(form["shown"]) == {
        "question", "reference", "aliases", "passages", "steps", "answer", "edited_passage", "evidence_steps",
        "evidence_answer", "edited_question", "question_steps", "question_answer",
    }  # fmt: skip
    assert {key for passage in form["shown"]["passages"] for key in passage} == {"index", "title", "text"}
    assert form["gold"] == dict.fromkeys(["correct", "supported", "aligned", "closed"])
    assert form["evidence"] == dict.fromkeys(["isolated", "trace_switches", "answer_switches"])
    assert form["question"] == dict.fromkeys(["valid", "trace_switches"])
    assert form["note"] == ""


def test_the_guideline_defines_all_that_is_asked():
    text = load_prompt_text("audit_family.md").text
    assert [text.count(f"**{name}**") for name in NAMES] == [1] * len(NAMES)


def test_a_view_passes_when_all_of_its_answers_are_yes():
    yes = dict.fromkeys(NAMES, True)
    for kind, names in AUDIT_MARKS.items():
        assert FilledAuditForm("", "", "", yes).passes(kind) is True
        for name in names:
            assert FilledAuditForm("", "", "", yes | {name: False}).passes(kind) is False
            assert FilledAuditForm("", "", "", yes | {name: None}).passes(kind) is None
            others = {
                other: FilledAuditForm("", "", "", yes | {name: False}).passes(other)
                for other in AUDIT_MARKS
                if other != kind
            }
            assert set(others.values()) == {True}


@pytest.mark.parametrize("layout", AuditFormFormat)
def test_a_blank_form_comes_back_blank(tmp_path, layout):
    blank_forms = forms()
    read = read_filled_forms(blank(tmp_path / f"f.{layout}", blank_forms, layout))
    assert [form.id for form in read] == [form.id for form in blank_forms]
    assert [form.question for form in read] == [form.shown.question for form in blank_forms]
    assert all(form.blank and form.unanswered == 9 for form in read)


def test_answers_in_json(tmp_path):
    (tmp_path / "f.jsonl").write_text(filled(forms(1)[0], {"evidence.isolated"}, note="hm"))
    (form,) = read_filled_forms(tmp_path / "f.jsonl")
    assert form.marks == {name: name != "evidence.isolated" for name in NAMES}
    assert (form.note, form.unanswered, form.blank) == ("hm", 0, False)
    assert [form.passes(kind) for kind in ViewKind] == [True, False, True]


@pytest.mark.parametrize("wrong", ["yes", 1, "true", []])
def test_what_is_neither_true_nor_false_is_refused(tmp_path, wrong):
    record = asdict(forms(1)[0])
    record["gold"]["closed"] = wrong
    (tmp_path / "f.jsonl").write_text(json.dumps(record) + "\n" + json.dumps(record | {"verdict": 1}) + "\nnot JSON\n")
    with pytest.raises(UserError) as refused:
        read_filled_forms(tmp_path / "f.jsonl")
    # All that is wrong, in one go.
    message = str(refused.value)
    assert "line 1: gold.closed: should be a valid boolean" in message
    assert "line 2: " in message
    assert "verdict: no such field" in message
    assert "line 3: " in message


def table(path, blank_forms, answers=None, delimiter=",", encoding="utf-8-sig", **changed):
    """A table as it comes out of a spreadsheet."""
    cells = [row | (answers or {}) | changed for row in rows(encode_audit_forms(blank_forms, AuditFormFormat.CSV))]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(cells[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(cells)
    path.write_bytes(text.getvalue().encode(encoding))
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize(("yes", "no"), [("yes", "no"), ("TRUE", "FALSE"), ("1", "0"), (" Y ", "n")])
def test_answers_in_a_table(tmp_path, delimiter, encoding, yes, no):
    answers = dict.fromkeys(NAMES, yes) | {"question.valid": no, "gold.aligned": ""}
    path = table(tmp_path / "f.csv", forms(2), answers, delimiter, encoding, note=" odd\n")
    path.write_bytes(path.read_bytes() + (delimiter * 5 + "\r\n").encode())  # spreadsheets leave such lines behind
    for form in read_filled_forms(path):
        assert form.marks == dict.fromkeys(NAMES, True) | {"question.valid": False, "gold.aligned": None}
        assert (form.note, form.unanswered) == ("odd", 1)


def test_what_is_no_answer_in_a_table_is_refused(tmp_path):
    path = table(tmp_path / "f.csv", forms(1), {"gold.closed": "maybe", "question.valid": "2"}, id="")
    with pytest.raises(UserError, match=r"row 2: id: is empty; gold.closed: 'maybe' .* yes or no; question.valid: '2'"):
        read_filled_forms(path)


def test_what_is_no_table_of_forms(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("id,note\nf-1,\n")
    with pytest.raises(UserError, match=r"needs each of these columns once: question asked, gold\.correct"):
        read_filled_forms(path)
    path.write_bytes(table(path, forms(1), note="caf\u00e9").read_bytes().replace("\u00e9".encode(), b"\xe9"))
    with pytest.raises(UserError, match="Save the table as CSV UTF-8"):
        read_filled_forms(path)
    path.write_bytes(encode_audit_forms(forms(1), AuditFormFormat.CSV).splitlines()[0])
    with pytest.raises(UserError, match="holds no form"):
        read_filled_forms(path)


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff201"]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_text_is_a_formula_in_a_table(tmp_path, text):
    base = family("x", "A")
    disclosed = AuditorMaterial.of(base, base.evidence_edits[0])
    disclosed = replace(
        disclosed, question=text, reference=text, aliases=(text,), answer=text, evidence_answer=text,
        edited_question=text,
        question_answer=text, passages=tuple(replace(passage, title=text, text=text) for passage in disclosed.passages),
        edited_passage=replace(disclosed.edited_passage, title=text), steps=(),
    )  # fmt: skip
    form = FamilyAuditForm("f-1", disclosed)
    (row,) = rows(encode_audit_forms([form], AuditFormFormat.CSV))
    assert row["question asked"] == row["answer"] == row["changed question"] == row["reference"] == f"'{text}"
    for cell in row.values():
        assert not cell.startswith(("\t", "\r", "\n"))
        assert not cell.lstrip().startswith(tuple("=+-@\uff1d\uff0b\uff0d\uff20"))
    # JSON Lines keep every text as it is.
    assert json.loads(encode_audit_forms([form], AuditFormFormat.JSONL))["shown"]["question"] == text


def test_ordinary_text_stays_as_it_is():
    form = forms(1)[0]
    (row,) = rows(encode_audit_forms([form], AuditFormFormat.CSV))
    assert row["question asked"] == form.shown.question
    last = form.shown.passages[-1]
    assert row[f"passage {last.index}"] == f"[{last.index}] {last.title}\n{last.text}"


def test_a_text_too_long_for_a_cell_is_refused_and_not_cut():
    form = forms(1)[0]
    long = FamilyAuditForm("f-1", replace(form.shown, answer="x" * CELL_LIMIT))
    with pytest.raises(UserError, match="--format jsonl"):
        encode_audit_forms([long], AuditFormFormat.CSV)
    assert encode_audit_forms([long], AuditFormFormat.JSONL)


def test_no_id_looks_like_a_number_to_a_spreadsheet():
    assert all(form.id.startswith("f-") for form in forms(50))
