"""``eclose data intersect``: the questions that every model answered."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import RecordError, UserError
from eclose.files.jsonl import ReadRecord, write_records
from eclose.files.step import PipelineStep
from eclose.values.response import Response, Trace

runner = CliRunner()
COMPLETE, CUT, SILENT = "1. A.\nFinal answer: x", "1. A.\n2. B", "1. A."


def run_of(folder, texts):
    """A finished run with these completions by question."""
    stage = PipelineStep("generate", {"of": folder.name}, (), folder / "responses.jsonl")
    stage.write(
        ReadRecord(id_, value=Response.from_completion(f"{id_}-{folder.name}", id_, text, cut_off=text == CUT))
        for id_, text in texts.items()
    )
    return folder


@pytest.fixture
def runs(tmp_path):
    return [
        run_of(tmp_path / "a", {"q1": COMPLETE, "q2": CUT, "q3": COMPLETE, "q4": COMPLETE, "q5": SILENT}),
        run_of(tmp_path / "b", {"q5": COMPLETE, "q4": COMPLETE, "q3": COMPLETE, "q1": COMPLETE, "q2": COMPLETE}),
        run_of(tmp_path / "c", {"q1": COMPLETE, "q2": COMPLETE, "q4": COMPLETE, "q5": COMPLETE}),
    ]


def intersect(runs, out, *more):
    return runner.invoke(
        app, ["data", "intersect", *map(str, runs), "--out", str(out), *map(str, more)], catch_exceptions=False
    )


def pool(path):
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_a_question_stays_if_every_run_completed_it(runs, tmp_path):
    out = tmp_path / "pool.jsonl"
    result = intersect(runs, out)
    assert result.exit_code == 0
    assert pool(out) == ["q1", "q4"]
    a, b, c = runs
    width = len(str(a))
    assert result.stdout.splitlines() == [
        f"{out}: 5 received = 2 accepted + 3 rejected (incomplete in some run 2, no response in some run 1)"
        " + 0 quarantined",
        "Responses by run",
        f"{'run':<{width}}  responses  complete  cut_off  no_answer_line  in pool",
        f"{a}          5         3        1               1        2",
        f"{b}          5         5        0               0        2",
        f"{c}          4         4        0               0        2",
    ]
    again = intersect(runs, out)
    assert "(done before, nothing to do)" in again.stdout
    assert again.stdout.splitlines()[1:] == result.stdout.splitlines()[1:]


@pytest.mark.parametrize(
    "lines",
    [
        ["q4", "q2", "", "q9"],
        ['{"id": "q4", "eligible": true}', '{"id": "q1", "eligible": false, "reason": "N1"}'],
        ['{"instance_id": "q4", "eligible": true}'],
        ['[{"id": "q4"}, {"id": "q3"}]'],
    ],
)
def test_what_was_screened_out_stays_out(runs, tmp_path, lines):
    screening = tmp_path / "screening.txt"
    screening.write_text("\n".join(lines) + "\n")
    result = intersect(runs, tmp_path / "pool.jsonl", "--eligible", screening)
    assert pool(tmp_path / "pool.jsonl") == ["q4"]
    assert "not eligible 1" in result.stdout


@pytest.mark.parametrize(
    "lines",
    [
        ['{"id": "q4"}', '{"id": "q4", "eligible": false}'],
        ['{"id": "q4", "eligible": "yes"}'],
        ['{"id": "q4", "reason": "N1"}'],
        ['{"id": 4}'],
        ['{"id": "q4"}', "no json"],
    ],
)
def test_screening_that_cannot_be_read_is_refused(runs, tmp_path, lines):
    screening = tmp_path / "screening.jsonl"
    screening.write_text("\n".join(lines) + "\n")
    with pytest.raises(RecordError, match=r"screening\.jsonl line"):
        intersect(runs, tmp_path / "pool.jsonl", "--eligible", screening)
    assert not (tmp_path / "pool.jsonl").exists()


def test_a_run_that_is_not_finished_would_shrink_the_pool(runs, tmp_path):
    (runs[1] / "responses.jsonl.manifest.json").unlink()
    with pytest.raises(UserError, match="holds no finished run"):
        intersect(runs, tmp_path / "pool.jsonl")
    (runs[0] / "responses.jsonl").write_text("")
    with pytest.raises(UserError, match="changed after it was written"):
        intersect(runs[:1], tmp_path / "pool.jsonl")


def test_files_of_responses_are_taken_as_they_are(runs, tmp_path):
    mine = tmp_path / "mine.jsonl"
    write_records(
        mine,
        [
            Response("r1", "q1", Trace.of("A."), "x"),
            Response("r2", "q1", Trace.of("A."), None, answer_lines=0),
            Response("r3", "q4", Trace.of("A."), "x"),
        ],
    )
    intersect([runs[1], mine], tmp_path / "pool.jsonl")
    # One of two responses to q1 has no answer.
    assert pool(tmp_path / "pool.jsonl") == ["q4"]
