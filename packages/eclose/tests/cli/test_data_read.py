"""``eclose data read``: what it prints of the responses of a file."""

from __future__ import annotations

import json

import pytest

from eclose.errors import SettingError, UserError
from tests.cli.test_data import lines, run

TEXTS = ["1. Ada built it.\nAnswer: Ada", "Hall A has 320 seats. 展厅B有410个座位。", "Lund"]


@pytest.fixture
def rows(tmp_path):
    records = [
        {"question": f"Who {number}?", "contexts": ["A."], "response": text} for number, text in enumerate(TEXTS)
    ]
    return lines(tmp_path / "rows.jsonl", *records, {"question": 1})


def test_read_prints_a_line_for_each_rule_and_counts_every_record(rows):
    result = run("read", rows)
    assert result.exit_code == 3
    first, head, *rules = result.output.splitlines()
    assert "4 received = 3 accepted + 0 rejected + 1 quarantined" in first
    assert head == f"How 3 responses were read; eclose data read {rows} --rule RULE shows them:"
    assert [line.split("  ")[1].strip() for line in rules[:3]] == ["trace", "trace", "no trace"]
    assert all("answer: " in line for line in rules[:3])


def test_read_of_one_rule_prints_every_response_whole(rows):
    result = run("read", rows, "--rule", "named line 'Answer'")
    assert result.output.splitlines()[1:] == ["  1. Ada built it.", "  answer: Ada"]
    (record,) = map(json.loads, run("read", rows, "--rule", "named line 'Answer'", "--json").output.splitlines())
    assert (record["steps"], record["answer"]) == (["Ada built it."], "Ada")


def test_read_in_json_holds_the_rules_and_the_counts(rows):
    fields = json.loads(run("read", rows, "--json").output)
    assert sum(row["responses"] for row in fields["readings"]) == 3
    assert fields["counts"]["quarantined"]


def test_check_writes_the_responses_that_were_read_wrongly(rows, tmp_path):
    chosen = json.loads(run("read", rows, "--json").output)["readings"][0]["example"]
    result = run("read", rows, "--check", chosen, "--out", tmp_path / "cases.jsonl")
    assert result.output.endswith("cases.jsonl: 1 written\n")
    assert json.loads((tmp_path / "cases.jsonl").read_text())["response"]["id"] == chosen
    # The layout counts here as well: records of another one cannot be read.
    with pytest.raises(UserError, match="has no response with the id"):
        run("read", rows, "--check", chosen, "--format", "hotpot", "--out", tmp_path / "none.jsonl")
    with pytest.raises(SettingError, match="--check and --out go together"):
        run("read", rows, "--check", chosen)


def test_convert_shows_how_the_responses_were_read(rows, tmp_path):
    result = run("convert", rows, "--out", tmp_path / "q.jsonl", "--responses", tmp_path / "r.jsonl")
    assert (
        f"How 3 responses were read; eclose data read {tmp_path / 'r.jsonl'} --rule RULE shows them:" in result.output
    )
