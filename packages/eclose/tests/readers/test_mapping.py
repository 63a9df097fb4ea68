"""Field paths find what they name in any record, and say which key is missing and which are there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eclose.errors import RecordError, SettingError
from eclose.readers.import_settings import CaseSelection, ImportSettings, TraceMode
from eclose.readers.layouts import RecordLayout
from eclose.readers.load import resolve_import_settings, scan_instances, scan_recorded_responses
from eclose.readers.mapping import get_at_path, parse_field_map

RECORD = {
    "in": {"q": "Who built it?"},
    "out": [{"text": "Ada built it. She was from Lund."}, {"text": "Eve."}],
    "ctx": [{"t": "a", "n": [{"x": 1}, {"x": 2}]}, {"t": "b", "n": [{"x": 3}]}],
    "a.b": {"c d": "dotted"},
    "blob": '{"docs": ["j1", "j2"]}',
    "gold": None,
    "holes": [{"x": 1, "n": [2]}, None],
    "meta": {"model": "m0", "set": "tickets", "id": 9},
}
PATHS = {"question": "in.q", "answer": "out[0].text", "documents": "ctx[*].t"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("in.q", "Who built it?"),
        ("out[0].text", "Ada built it. She was from Lund."),
        ("out[-1].text", "Eve."),
        ("ctx[*].t", ["a", "b"]),
        ("ctx[*].n[*].x", [1, 2, 3]),
        ('["a.b"]["c d"]', "dotted"),
        ("['a.b']['c d']", "dotted"),
        ("blob.docs[1]", "j2"),
        ("gold", None),
        ("gold[0]", None),
        ("gold.x[*].y", None),
        ("holes[*].x", [1, None]),
        ("holes[*].n[*]", [2, None]),
    ],
)
def test_a_path_leads_to_its_value(path, value):
    assert get_at_path(RECORD, "question", path) == value


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("in.text", r"--map answer=in\.text: in has no key 'text'\. Keys there: 'q'"),
        (
            "nope",
            r"the record has no key 'nope'\. Keys there: 'a\.b', 'blob', 'ctx', 'gold', 'holes', 'in', 'meta', 'out'",
        ),
        ("out[5]", r"out has no item 5; it has 2"),
        ("in[0]", r"in is an object, not a list"),
        ("in.q.x", r"in\.q is a text, so it has no key 'x'"),
        ("ctx[*].z", r"ctx\[0\] has no key 'z'\. Keys there: 'n', 't'"),
    ],
)
def test_a_missing_path_names_what_is_there(path, problem):
    with pytest.raises(RecordError, match=problem):
        get_at_path(RECORD, "answer", path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("question", "'question' is no field=path"),
        ("question=a,question=b", "names question twice"),
        ("question=a,,answer=b", "'' is no field=path"),
    ],
)
def test_a_malformed_map_is_refused(text, problem):
    with pytest.raises(SettingError, match=problem):
        parse_field_map(text)


def test_commas_in_quoted_keys_belong_to_the_path():
    assert parse_field_map('question=a["b,c"], answer = d') == {"question": 'a["b,c"]', "answer": "d"}


@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        ({**PATHS, "score": "x"}, "there is no field 'score'. The fields are question, answer, documents"),
        ({"question": "in.q"}, "documents missing"),
        ({"messages": "m", "answer": "a"}, "messages hold question, trace and answer; leave answer out"),
        ({**PATHS, "aliases": "out"}, "aliases are further texts of a reference. Name it with reference=PATH"),
        ({**PATHS, "answer": "out[x]"}, r"--map answer=out\[x\]: cannot be read at '\[x\]'"),
    ],
)
def test_a_mapping_that_cannot_work_is_refused_before_reading(paths, problem, tmp_path):
    with pytest.raises(SettingError, match=problem):
        resolve_import_settings(tmp_path / "absent.jsonl", ImportSettings(columns=paths))


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(RECORD) + "\n" + json.dumps({**RECORD, "ctx": []}) + "\n" + json.dumps({"x": 1}) + "\n")
    return path


def test_mapped_records_become_instances_and_responses(log):
    names = {"id": "meta.id", "model": "meta.model", "dataset": "meta.set", "reference": "gold"}
    settings = ImportSettings(columns=PATHS | names, model="unused", dataset="unused", trace=TraceMode.PROSE)
    instance, empty, missing = scan_instances(log, settings=settings)
    assert instance.value is not None
    assert (instance.value.id, instance.value.question, instance.value.benchmark) == ("9", "Who built it?", "tickets")
    assert [passage.text for passage in instance.value.evidence] == ["a", "b"]
    assert "there are no documents" in str(empty.error)
    assert "Keys there: 'x'" in str(missing.error)
    response = next(scan_recorded_responses(log, settings=settings)).value
    assert response is not None
    assert response.source is not None
    assert response.source.model == "m0"
    assert response.trace.texts == ("Ada built it.", "She was from Lund.")
    assert response.answer == "Ada built it. She was from Lund."


def scan_one(path, record, **paths):
    """The only record of a file, read by field paths."""
    path.write_text(json.dumps({"q": "Who?", "docs": ["Ada built it."], **record}) + "\n")
    (read,) = scan_instances(path, settings=ImportSettings(columns={"question": "q", "documents": "docs"} | paths))
    return read


@pytest.mark.parametrize(
    ("gold", "reference", "aliases"),
    [
        ("Ada", "Ada", ()),
        (["Ada"], "Ada", ()),
        (["Ada", "A. Rowe", "Ada", "Rowe"], "Ada", ("A. Rowe", "Rowe")),
        ([" ", "Ada"], "Ada", ()),
        ([], None, ()),
        (None, None, ()),
    ],
)
def test_the_first_of_several_references_counts_and_the_others_are_aliases(gold, reference, aliases, tmp_path):
    read = scan_one(tmp_path / "a.jsonl", {"gold": gold}, reference="gold")
    assert (read.value.reference_answer, read.value.aliases) == (reference, aliases)


def test_aliases_type_and_hops_are_read(tmp_path):
    record = {"gold": ["Ada", "Rowe"], "also": ["A. Rowe", "Ada"], "type": "bridge", "n": {"hops": 2}}
    paths = {"reference": "gold", "aliases": "also", "kind": "type", "hops": "n.hops"}
    instance = scan_one(tmp_path / "a.jsonl", record, **paths).value
    assert (instance.reference_answer, instance.aliases) == ("Ada", ("Rowe", "A. Rowe"))
    assert (instance.kind, instance.hops) == ("bridge", 2)
    # One list may be named twice, and a value may be null.
    instance = scan_one(tmp_path / "a.jsonl", record, reference="gold", aliases="gold").value
    assert (instance.reference_answer, instance.aliases) == ("Ada", ("Rowe",))
    nulls = dict.fromkeys(("gold", "also", "type", "n"))
    instance = scan_one(tmp_path / "a.jsonl", nulls, **paths).value
    assert (instance.reference_answer, instance.aliases, instance.kind, instance.hops) == (None, (), None, None)
    # Tables with gaps have whole numbers as 2.0.
    assert scan_one(tmp_path / "a.jsonl", {"n": 2.0}, hops="n").value.hops == 2


@pytest.mark.parametrize(
    ("paths", "record", "problem"),
    [
        ({"reference": "gold"}, {"gold": ["Ada", 7]}, "--map reference=gold: should be a text or a list of texts"),
        ({"reference": "gold"}, {"gold": {"a": 1}}, "--map reference=gold: should be a text or a list of texts"),
        ({"reference": "gold", "aliases": "b"}, {"gold": "Ada", "b": "Rowe"}, "--map aliases=b: should be a list of"),
        ({"reference": "gold", "aliases": "b"}, {"gold": "Ada", "b": [None]}, "--map aliases=b: should be a list of"),
        ({"reference": "gold", "aliases": "b"}, {"gold": None, "b": ["Ada"]}, "are aliases of no reference"),
        ({"kind": "k"}, {"k": 3}, "k: should be a text"),
        ({"hops": "n"}, {"n": "2"}, "n: should be a whole number"),
        ({"hops": "n"}, {"n": True}, "n: should be a whole number"),
        ({"hops": "n"}, {"n": 1e999}, "not JSON"),
        ({"hops": "n"}, {"n": 2.5}, "n: should be a whole number"),
        ({"hops": "n"}, {"n": 0}, "hops: 0 is less than one"),
    ],
)
def test_a_value_of_another_type_is_an_error_of_its_record(paths, record, problem, tmp_path):
    read = scan_one(tmp_path / "a.jsonl", record, **paths)
    assert problem in str(read.error)


def passages(read):
    return [(passage.title, passage.text) for passage in read.value.evidence]


def test_documents_may_be_an_object_by_title(tmp_path):
    documents = {"Bridge": ["Ada Rowe built it.", "It opened."], "Ada Rowe": "Ada Rowe was born in Lund."}
    by_title = [("Bridge", "Ada Rowe built it. It opened."), ("Ada Rowe", "Ada Rowe was born in Lund.")]
    assert passages(scan_one(tmp_path / "a.jsonl", {"docs": documents})) == by_title
    assert passages(scan_one(tmp_path / "a.jsonl", {"docs": json.dumps(documents)})) == by_title
    wrapper = {"results": [{"title": "Bridge", "text": "Ada Rowe built it."}], "summary": "none"}
    document = {"title": "Bridge", "text": "Ada Rowe built it."}
    assert passages(scan_one(tmp_path / "a.jsonl", {"docs": wrapper}))[0] == ("Bridge", "Ada Rowe built it.")
    assert passages(scan_one(tmp_path / "a.jsonl", {"docs": document})) == [("Bridge", "Ada Rowe built it.")]
    texts = {"documents": ["Ada Rowe built it.", "It opened."]}
    assert passages(scan_one(tmp_path / "a.jsonl", {"docs": texts})) == [("", "Ada Rowe built it."), ("", "It opened.")]
    assert "there are no documents" in str(scan_one(tmp_path / "a.jsonl", {"docs": {}}).error)
    assert "has no text" in str(scan_one(tmp_path / "a.jsonl", {"docs": {"Bridge": {"n": 1}}}).error)
    assert "has no text" in str(scan_one(tmp_path / "a.jsonl", {"docs": {"Bridge": ["a", 1]}}).error)


def test_messages_can_be_mapped_with_documents_beside(tmp_path):
    record = {
        "run": {"history": [{"role": "system", "content": "Ada built it."}, {"role": "user", "content": "Who?"}]},
        "reply": "Ada.",
    }
    record["run"]["history"].append({"role": "assistant", "content": "Ada."})
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(record) + "\n")
    settings = ImportSettings(columns={"messages": "run.history", "documents": "run.history[0].content"})
    (instance,) = scan_instances(path, settings=settings)
    (response,) = scan_recorded_responses(path, settings=settings)
    assert instance.value is not None
    assert response.value is not None
    assert (instance.value.question, instance.value.evidence[0].text) == ("Who?", "Ada built it.")
    assert response.value.answer == "Ada."


@pytest.mark.parametrize(("score", "answer"), [(0, "0"), (0.5, "0.5"), (True, "true")])
def test_score_that_is_no_text_is_read_as_the_answer(tmp_path, score, answer):
    path = tmp_path / "grades.jsonl"
    path.write_text(json.dumps({"q": "Which score?", "d": "The answer is Eve.", "s": score}) + "\n")
    settings = ImportSettings(columns={"question": "q", "documents": "d", "answer": "s"})
    (response,) = scan_recorded_responses(path, settings=settings)
    assert response.value.answer == answer


def test_names_fill_what_the_file_leaves_out(log):
    settings = ImportSettings(columns=PATHS, model="m1", dataset="tickets")
    assert next(scan_instances(log, settings=settings)).value.benchmark == "tickets"
    assert next(scan_recorded_responses(log, settings=settings)).value.source.model == "m1"
    assert settings.identity == {"map": PATHS, "model": "m1", "dataset": "tickets"}
    assert ImportSettings().identity == {}
    assert ImportSettings(format=RecordLayout.RAGAS).identity == {"format": "ragas"}


@pytest.mark.parametrize(
    ("layout", "settings", "problem"),
    [
        (RecordLayout.RAGAS, ImportSettings(columns=PATHS), "--map and --format ragas"),
        (RecordLayout.MAPPED, ImportSettings(), "--format mapped needs --map"),
        (RecordLayout.RAGAS, ImportSettings(cases=CaseSelection("span x")), "case, question_at"),
        (RecordLayout.HOTPOT, ImportSettings(dataset="d"), "dataset: .* names the dataset already"),
        (RecordLayout.MUSIQUE, ImportSettings(model="m"), "^model: .* holds no responses"),
        (RecordLayout.ECLOSE, ImportSettings(trace=TraceMode.MARKED), "--trace: .* holds no responses"),
    ],
)
def test_settings_that_do_nothing_are_refused(layout, settings, problem, tmp_path):
    with pytest.raises(SettingError, match=problem):
        resolve_import_settings(tmp_path / "x.jsonl", replace(settings, format=layout))
