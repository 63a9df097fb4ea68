"""The reading of ``studies/campaigns/real_exports.py``, on exports that were saved: no package is installed."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from studies.campaigns import real_exports
from studies.campaigns.servers.scripted_agent import ScriptedAgentServer

pytestmark = pytest.mark.study

FIXTURES = Path(__file__).parents[2] / "packages/eclose/tests/fixtures/exports"


@pytest.fixture
def rows(monkeypatch):
    monkeypatch.setattr(real_exports, "judge_row", lambda *_: "L1 A1 C1")
    exporter = real_exports.EXPORTERS[0]

    def read(path):
        return list(real_exports.read_export(path, exporter, real_exports.make_scene(), "unused"))

    return read


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_saved_export_is_counted_as_whole(path, rows):
    assert all(row.whole for row in rows(path))


def test_export_that_is_read_wrongly_or_refused_is_counted(tmp_path, rows):
    record = json.loads((FIXTURES / "openai-agents-new-items.jsonl").read_text("utf-8"))
    record["final_output"] = "Answer: Lund"
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(record) + "\n")
    assert [(row.whole, row.answer) for row in rows(path)] == [(False, False)]
    path.write_text(json.dumps({"question": "Where?"}) + "\n")
    assert rows(path)[0].reading.startswith("refused")


def test_scripted_model_announces_searches_and_answers():
    scene = real_exports.make_scene()
    with ScriptedAgentServer(scene.script) as server:
        texts = [_ask(f"{server.base_url}/tools/agent/v1/chat/completions") for _ in range(3)]
    assert texts == [*(said for said, _ in scene.script.searches), scene.script.reply]


def _ask(url):
    body = json.dumps({"model": "m", "messages": []}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})) as reply:
        return json.loads(reply.read())["choices"][0]["message"]["content"]
