"""What is wrong with a file is said in a sentence, or mended in a documented way; never a traceback."""

# ruff: noqa: E501 - a table of cases reads best with one case a line

from __future__ import annotations

import copy
import gzip
import json
import re
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from eclose.cli.data import app
from eclose.errors import UserError
from eclose.readers import conversion
from eclose.readers.load import scan_instances

OURS = {
    "id": "q1",
    "question": "Who built it?",
    "evidence": [{"id": "0", "title": "Bridge", "text": "Ada built it."}, {"id": "1", "title": "Town", "text": "A."}],
    "reference_answer": "Ada",
    "support_ids": ["0"],
}
HOTPOT = {
    "_id": "h1",
    "question": "Who built it?",
    "answer": "Ada",
    "type": "bridge",
    "level": "easy",
    "supporting_facts": [["Bridge", 0]],
    "context": [["Bridge", ["Ada built it.", " It stands."]], ["Town", ["A town."]]],
}
HUGGING_FACE = {
    **HOTPOT,
    "supporting_facts": {"title": ["Bridge"], "sent_id": [0]},
    "context": {"title": ["Bridge", "Town"], "sentences": [["Ada built it."], ["A town."]]},
}
TWO_WIKI = {**HOTPOT, "type": "compositional", "evidences": [["Bridge", "builder", "Ada"]], "answer_id": "Q1"}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Who built it?",
    "paragraphs": [
        {"idx": 0, "title": "Bridge", "paragraph_text": "Ada built it.", "is_supporting": True},
        {"idx": 1, "title": "Bridge", "paragraph_text": "A bridge.", "is_supporting": False},
    ],
    "question_decomposition": [{"id": 1}, {"id": 2}],
    "answer": "Ada",
    "answer_aliases": ["Ada L."],
    "answerable": True,
}
RAGAS = {"user_input": "Who built it?", "retrieved_contexts": ["Ada built it."], "response": "Ada", "reference": "Ada"}
RAGCHECKER = {"query_id": "1", "query": "Who?", "gt_answer": "A", "retrieved_context": [{"doc_id": "d", "text": "t"}]}


def line(record, **changes):
    """A record as a line; a change to ... removes the key."""
    changed = {**record, **changes}
    return json.dumps({key: value for key, value in changed.items() if value is not ...}).encode() + b"\n"


def changed(record, path, value):
    """A deep copy with one inner value replaced."""
    record = copy.deepcopy(record)
    target = record
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    return line(record)


def array(*records):
    return json.dumps(records).encode()


@dataclass(frozen=True)
class Case:
    name: str
    data: bytes
    error: str | None = None
    """The record is refused with this text."""
    stops: str | None = None
    """The file is refused with this text."""
    repair: str | None = None
    rejected: str | None = None
    accepted: int = 0
    file: str = "file.jsonl"


TWICE = line(OURS).replace(b'"question"', b'"id": "q2", "question"')
BIG = line(OURS, evidence=[{"id": "0", "title": "T", "text": "word " * 2_000_000}])
ONE_LINE = line(OURS)

FILES = [
    Case("byte order mark", b"\xef\xbb\xbf" + ONE_LINE, accepted=1),
    Case("byte order mark before an array", b"\xef\xbb\xbf" + array(HOTPOT), accepted=1),
    Case("windows line ends", ONE_LINE.replace(b"\n", b"\r\n") + line(OURS, id="q2"), accepted=2),
    Case("blank lines", b"\n  \n" + ONE_LINE + b"\n\n", accepted=1),
    Case("no last line end", ONE_LINE.rstrip(), accepted=1),
    Case("empty file", b"", stops=r"file\.jsonl: holds no records"),
    Case("only blanks", b" \n\n", stops="holds no records"),
    Case("empty array", b"[]", stops="holds no records"),
    Case("top-level scalar", b"42\n", error=r"line 1: is a JSON number, not an object"),
    Case("array of scalars", b'["a", 7, null]', error=r"record 3: is a JSON null, not an object"),
    Case("truncated line", ONE_LINE + ONE_LINE[:60], error=r"line 2: is not JSON: .*column \d+\.", accepted=1),
    Case("cut off after a comma", b'{"id": "a",', error=r"The line seems cut off"),
    Case("truncated array", array(HOTPOT, MUSIQUE)[:-30], stops=r"breaks off after record 1 \(", accepted=1),
    Case("array without its end", array(HOTPOT)[:-1], stops=r"after record 1 \(its end is missing", accepted=1),
    Case("comma before the end", array(HOTPOT)[:-1] + b",]", stops=r"after record 1 \(Expecting value", accepted=1),
    Case("text after the array", array(HOTPOT) + b"[]", stops="something follows the end of the JSON array", accepted=1),
    Case("spread object", json.dumps(OURS, indent=1).encode(), stops="is one object with lists called 'evidence', 'support_ids', so it is open"),
    Case("broken wrapper", b'{"results": [], "x": }', stops=r"is not JSON \(Expecting value"),
    Case("wrapper cut off", b'{"results": [' + ONE_LINE + b"]", stops="is broken or cut off", accepted=1),
    Case("wrapper without a colon", b'{"results": [' + ONE_LINE + b'], "x" 1}', stops="is broken or cut off", accepted=1),
    Case("wrapper with a deep neighbour", b'{"results": [' + ONE_LINE + b'], "x": ' + b"[" * 200_000, stops="nested too deeply", accepted=1),
    Case("lines of wrappers", b'{"results": []}\n{"results": []}\n', stops="or something follows it"),
    Case("truncated gzip", gzip.compress(ONE_LINE * 50)[:-20], stops="compressed file is damaged or cut off"),
    Case("corrupt gzip", gzip.compress(ONE_LINE)[:20] + b"\0" * 40, stops="compressed file is damaged or cut off"),
    Case("UTF-16", ONE_LINE.decode().encode("utf-16"), stops=r"looks like UTF-16\. Save it as UTF-8"),
    Case("UTF-16 without mark", ONE_LINE.decode().encode("utf-16-le"), stops="looks like UTF-16"),
    Case("zip", b"PK\x03\x04" + ONE_LINE, stops=r"is a zip archive\. Unpack it"),
    Case("csv", b"question,contexts\nWho?,a", file="file.csv", stops=r"is a table of texts.*orient='records', lines=True"),
    Case("list as text", line(RAGAS, retrieved_contexts="['Ada built it.']"), error=r"retrieved_contexts: is one text that looks like a list, as CSV files have it\. Write a JSON array"),
    Case("columns of dicts", line(RAGAS, user_input={"0": "Who?"}), error=r"user_input: holds a whole column.*orient='records'"),
    Case("columns of lists", line(RAGAS, user_input=["Who?"]), error=r"user_input: holds a whole column.*orient='records'"),
    Case("other records of ours", line({"id": "r", "instance_id": "q", "trace": {"steps": []}, "evidence": 1}), error="looks like a response, not an instance"),
    Case("not UTF-8", ONE_LINE.replace(b"Ada built", b"Ad\xe9 built"), error=r"line 1: byte \d+ is not UTF-8"),
    Case(
        "not UTF-8 in an array",
        array(HOTPOT, HOTPOT).replace(b"Ada built", b"Ad\xe9 built", 1),
        error="record 1: holds the byte 0xe9, which is not UTF-8",
        accepted=1,
    ),
    Case("raw NUL", ONE_LINE.replace(b"Ada b", b"Ad\0 b"), error="line 1: is not JSON: Invalid control character"),
    Case("duplicate key", TWICE, error=r"line 1: has the key 'id' twice in one object"),
    Case("duplicate key in an array", b"[" + TWICE.strip() + b"," + ONE_LINE + b"]", error="record 1: has the key 'id'", accepted=1),
    Case("NaN", ONE_LINE.replace(b'"Ada"', b"NaN"), error=r"line 1: holds NaN, which is not JSON\. Use null"),
    Case("NaN in an array", b"[" + ONE_LINE.replace(b'"Ada"', b"-Infinity") + b"]", error="record 1: holds -Infinity"),
    Case("deep nesting", b'{"evidence":' + b"[" * 200_000, error="line 1: is nested too deeply"),
    Case("deep nesting in an array", b"[" * 200_000, stops=r"after record 0 \(nested too deeply"),
    Case("some nesting", b'{"evidence":' + b"[" * 400 + b"]" * 400 + b"}", error="line 1: is nested too deeply"),
    Case("huge integer", line(OURS, hops=7777).replace(b"7777", b"7" * 5000), error="a number of 5000 digits"),
    Case("unknown layout", b'{"q": 1, "passages": []}', stops=r"Keys seen: 'passages', 'q'\. .*--format \(hotpot, 2wiki"),
    Case("ambiguous layout", line(HOTPOT, type="comparison", level=...), stops="Say --format hotpot or --format 2wiki"),
    Case("no such Parquet", b"PAR1 not really", stops="not a readable Parquet file", file="file.parquet"),
]  # fmt: skip

RECORDS = [
    Case("escaped NUL", changed(OURS, ("evidence", 1, "text"), "a\0b"), error=r"evidence\[1\]\.text: holds a NUL"),
    Case("escaped NUL in a title", changed(OURS, ("evidence", 0, "title"), "\0"), error=r"evidence\[0\]\.title: holds a NUL"),
    Case("half a surrogate pair", line(OURS, question="\ud83d"), error="question: holds half of a surrogate pair"),
    Case("half a pair in a passage", changed(HOTPOT, ("context", 1, 1, 0), "\udc00"), error=r"context\[1\]\[1\]\[0\]: holds half"),
    Case("half a pair in a key", line({**OURS, "\ud83d": 1}), error="a key: holds half of a surrogate pair"),
    Case("same record twice", ONE_LINE * 2, rejected="duplicate", accepted=1),
    Case("same id, other content", ONE_LINE + line(OURS, question="Why?"), error="line 2: the id 'q1' was used in line 1 for other content", accepted=1),
    Case("same id in an array", array(HOTPOT, {**HOTPOT, "answer": "Bob"}), error="record 2: the id 'h1' was used in record 1", accepted=1),
    Case("unknown field", line(OURS, colour="red"), error="colour: no such field; remove it or check its spelling"),
    Case("control characters in a field name", line({**OURS, "\x1b[2J": 1}), error=r"'\\x1b\[2J': no such field"),
    Case("id is a number", line(OURS, id=7), error="id: should be a valid string"),
    Case("blank id", line(OURS, id=" "), error="id: is empty"),
    Case("missing question", line(OURS, question=...), error="question: is missing"),
    Case("blank question", line(OURS, question=" \t"), error="question: is empty"),
    Case("question is a list", line(OURS, question=["a"]), error="question: should be a valid string"),
    Case("blank reference", line(OURS, reference_answer=""), error="reference_answer: is empty"),
    Case("blank alias", line(OURS, aliases=[""]), error=r"aliases\[0\]: is empty"),
    Case("empty evidence", line(OURS, evidence=[], support_ids=...), error="evidence: is empty; a question needs at least one passage"),
    Case("evidence is a text", line(OURS, evidence="Ada"), error="evidence: should be a valid"),
    Case("passage is a text", line(OURS, evidence=["Ada"]), error=r"evidence\[0\]: should be"),
    Case("passage without text", changed(OURS, ("evidence", 1), {"id": "1", "title": ""}), error=r"evidence\[1\]\.text: is missing"),
    Case("passage id twice", changed(OURS, ("evidence", 1, "id"), "0"), error="the passage id '0' occurs twice"),
    Case("support of no passage", line(OURS, support_ids=["9"]), error="support_ids: '9' is not a passage of the evidence"),
    Case("no hops", line(OURS, hops=0), error="hops: 0 is less than one"),
    Case("hops is a text", line(OURS, hops="2"), error="hops: should be a valid integer"),
    Case("10 MB passage", BIG, error=r"evidence\[0\]\.text: has 10,000,000 characters, at most 1,000,000; split it"),
    Case("three mistakes", line(OURS, id=1, question=2, hops="x"), error="id: .*; question: .*; hops: "),
    # HotpotQA and 2WikiMultiHopQA
    Case("hotpot without question", line(HOTPOT, question=...), error="question: is missing"),
    Case("hotpot without any id", line(HOTPOT, _id=...), repair=conversion.ID_DERIVED, accepted=1),
    Case("hotpot with a number as id", line(HOTPOT, _id=12), repair=conversion.ID_WAS_NUMBER, accepted=1),
    Case("hotpot with a list as id", line(HOTPOT, _id=["x"]), error="id: should be a text"),
    Case("hotpot with a blank id", line(HOTPOT, _id=""), error="id: is empty; leave the key out"),
    Case("hotpot answer is a number", line(HOTPOT, answer=4), error="answer: should be a valid string"),
    Case("hotpot answer is a list", line(HOTPOT, answer=["Ada"]), error="answer: should be a valid string"),
    Case("hotpot answer is blank", line(HOTPOT, answer=" "), repair=conversion.ANSWER_BLANK, accepted=1),
    Case("hotpot context is a text", line(HOTPOT, context="Ada"), stops="context: is a text, and no known layout has that"),
    Case("hotpot paragraph is a text", changed(HOTPOT, ("context", 1), "Ada"), error=r"context\[1\]: should be .*; write \[title, \[sentences\]\]"),
    Case("hotpot paragraph without sentences", changed(HOTPOT, ("context", 1), ["Town"]), error=r"context\[1\]\[1\]: is missing; write"),
    Case("hotpot sentence is a number", changed(HOTPOT, ("context", 1, 1, 0), 3), error=r"context\[1\]\[1\]\[0\]: should be a valid string"),
    Case("hotpot title is null", changed(HOTPOT, ("context", 1, 0), None), error=r"context\[1\]\[0\]: should be a valid string"),
    Case("hotpot empty sentence", changed(HOTPOT, ("context", 0, 1, 1), ""), accepted=1),
    Case("hotpot blank distractor", changed(HOTPOT, ("context", 1, 1), []), repair=conversion.PASSAGE_BLANK, accepted=1),
    Case("hotpot blank supporting passage", changed(HOTPOT, ("context", 0, 1), [""]), error=r"evidence\[0\]\.text: is empty"),
    Case("hotpot empty context", line(HOTPOT, context=[]), error="evidence: is empty"),
    Case("hotpot fact of an absent title", line(HOTPOT, supporting_facts=[["Bridge", 0], ["Moon", 0]]), repair=conversion.SUPPORT_ABSENT, accepted=1),
    Case("hotpot sentence out of range", line(HOTPOT, supporting_facts=[["Bridge", 9]]), repair=conversion.SENTENCE_ABSENT, accepted=1),
    Case("hotpot negative sentence", line(HOTPOT, supporting_facts=[["Bridge", -1]]), repair=conversion.SENTENCE_ABSENT, accepted=1),
    Case("hotpot shared title", changed(HOTPOT, ("context", 1, 0), "Bridge"), repair=conversion.SUPPORT_SHARED, accepted=1),
    Case("hotpot fact is a text", line(HOTPOT, supporting_facts=["Bridge"]), error=r"supporting_facts\[0\]: should be .*; write \[title, sentence number\]"),
    Case("hotpot sentence number is a text", line(HOTPOT, supporting_facts=[["Bridge", "0"]]), error=r"supporting_facts\[0\]\[1\]: should be a valid integer"),
    Case("lists of unequal length", changed(HUGGING_FACE, ("context", "title"), ["Bridge"]), error=r"context: its lists differ in length \(title 1, sentences 2\)"),
    Case("list that is none", changed(HUGGING_FACE, ("supporting_facts", "sent_id"), 0), error=r"supporting_facts\.sent_id: should be a list"),
    Case("2wiki triple of two", line(TWO_WIKI, evidences=[["a", "b"]]), error=r"evidences\[0\]\[2\]: is missing; write \[subject, relation, object\]"),
    Case("2wiki answer_id is a number", line(TWO_WIKI, answer_id=5), error="answer_id: should be a valid string"),
    # MuSiQue
    Case("musique unanswerable", line(MUSIQUE, answerable=False) + line(MUSIQUE), rejected="unanswerable", accepted=1),
    Case("musique paragraphs is an object", line(MUSIQUE, paragraphs={}), error="paragraphs: should be a valid array; write {idx, title"),
    Case("musique paragraph without idx", changed(MUSIQUE, ("paragraphs", 1), {"title": "", "paragraph_text": "x"}), error=r"paragraphs\[1\]\.idx: is missing"),
    Case("musique idx is a text", changed(MUSIQUE, ("paragraphs", 1, "idx"), "1"), error=r"paragraphs\[1\]\.idx: should be a valid integer"),
    Case("musique idx twice", changed(MUSIQUE, ("paragraphs", 1, "idx"), 0), error="the passage id '0' occurs twice"),
    Case("musique support is a number", changed(MUSIQUE, ("paragraphs", 0, "is_supporting"), 1), error=r"paragraphs\[0\]\.is_supporting: should be a valid boolean"),
    Case("musique support half told", changed(MUSIQUE, ("paragraphs", 1, "is_supporting"), None), error=r"paragraphs\[1\]\.is_supporting: is missing, while others"),
    Case("musique aliases is a text", line(MUSIQUE, answer_aliases="x"), error="answer_aliases: should be a valid array"),
    Case("musique blank alias", line(MUSIQUE, answer_aliases=["", "Ada"]), accepted=1),
    Case("musique answerable is a text", line(MUSIQUE, answerable="no"), error="answerable: should be a valid boolean"),
    # Other tools' columns
    Case("ragas conversation", line(RAGAS, user_input=[{"content": "Hi"}]), error="user_input: holds 0 messages of a person"),
    Case("ragas contexts is a text", line(RAGAS, retrieved_contexts="x"), error="retrieved_contexts: should be a valid array"),
    Case("ragas context is a number", line(RAGAS, retrieved_contexts=["a", 1]), error=r"retrieved_contexts\[1\]: .*; write a text or"),
    Case("ragas nothing retrieved", line(RAGAS, retrieved_contexts=[]), error="evidence: is empty"),
    Case("ragas missing question", line(RAGAS, user_input=...), error="user_input: is missing"),
    Case("ragas two mistakes", line(RAGAS, user_input=1, reference=2), error="user_input: .*; reference: should be"),
    Case("ragas has no id", line(RAGAS), repair=conversion.ID_DERIVED, accepted=1),
    Case("ragchecker number ids", line(RAGCHECKER, query_id=4), repair=conversion.ID_WAS_NUMBER, accepted=1),
    Case("ragchecker repeated doc_id", line(RAGCHECKER, retrieved_context=[{"doc_id": 1, "text": "a"}, {"doc_id": 1, "text": "b"}]), repair=conversion.DOC_ID_REPEATED, accepted=1),
    Case("ragchecker chunk without text", line(RAGCHECKER, retrieved_context=[{"doc_id": "1"}]), error=r"retrieved_context\[0\]\.text: is missing"),
]  # fmt: skip

CASES = FILES + RECORDS


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


@pytest.fixture
def path(case, tmp_path):
    path = tmp_path / case.file
    path.write_bytes(case.data)
    return path


def read_all(path):
    """All records, and what stopped the reading."""
    records = []
    try:
        for record in scan_instances(path):
            records.append(record)  # noqa: PERF402 - what was read before the stop counts
    except UserError as error:
        return records, error
    return records, None


def test_is_refused_or_mended_as_documented(case, path):
    records, stopped = read_all(path)
    errors = "\n".join(str(record.error) for record in records if record.error)
    assert sum(record.value is not None for record in records) == case.accepted, (errors, stopped)
    assert bool(errors) == bool(case.error), errors
    assert re.search(case.error or "", errors), errors
    assert bool(stopped) == bool(case.stops), stopped
    assert re.search(case.stops or "", str(stopped)), stopped
    assert {repair for record in records for repair in record.repairs} == ({case.repair} if case.repair else set())
    assert {record.rejected for record in records} - {None} == ({case.rejected} if case.rejected else set())


def test_validate_says_so_without_a_traceback(case, path):
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert result.exit_code == (2 if case.error or case.stops else 0), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    assert re.search(case.error or case.stops or f"{case.accepted} accepted", result.output)
    assert "\x1b" not in result.output


def test_there_are_many_cases():
    assert len(CASES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)
