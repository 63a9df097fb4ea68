"""The sets of the verifier campaign can be scored by another detector."""

from __future__ import annotations

import json

from studies.campaigns.detect_verifier import main


def read(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_sets_are_written_with_their_labels(tmp_path, monkeypatch):
    monkeypatch.delenv("ECLOSE_DATA", raising=False)
    assert main(["--test", "--groups", "2", "--write", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["confusable-long", "confusable-short"]
    for folder in tmp_path.iterdir():
        responses, verdicts = read(folder / "responses.jsonl"), read(folder / "verdicts.jsonl")
        assert [row["id"] for row in responses] == [row["response_id"] for row in verdicts]
        assert {row["instance_id"] for row in responses} == {row["id"] for row in read(folder / "instances.jsonl")}
