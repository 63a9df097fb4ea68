"""Questions are screened before any response is seen: one reason each, in a fixed order."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import islice

import pytest
from typer.testing import CliRunner

from eclose.calls.model import FinishReason, Reply, TokenUsage
from eclose.calls.record_loop import RecordRejection
from eclose.cli.main import app
from eclose.files import jsonl
from eclose.judging.screen import screen_question
from eclose.readers.sampling import load_eligibility_test
from eclose.values.judgment import NO_REFERENCE_REASON, Ineligibility, QuestionScreening
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread


class Judge:
    name = "house/judge"

    def __init__(self, **told):
        self.told = {"reason": "Because.", **told}

    async def complete(self, request):
        material = json.loads(request.messages[-1]["content"])
        assert material.keys() == {"question", "evidence", "reference", "aliases"}
        return Reply(json.dumps(self.told), FinishReason.STOP, TokenUsage(1, 1))


INSTANCE = next(make_world_items("short-easy", 1)).instance


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"eligible": True, "code": None}, (True, None, "Because.")),
        ({"eligible": False, "code": "N2"}, (False, Ineligibility.MISSING_LINK, "Because.")),
    ],
)
def test_what_a_judge_says_is_kept(told, found):
    assert asyncio.run(screen_question(INSTANCE, Judge(**told))) == QuestionScreening(
        INSTANCE.id, "house/judge", *found
    )


@pytest.mark.parametrize("told", [{"eligible": True, "code": "N1"}, {"eligible": False, "code": None}])
def test_what_contradicts_itself_is_no_label(told):
    screening = asyncio.run(screen_question(INSTANCE, Judge(**told)))
    assert (screening.eligible, screening.code) == (None, None)
    assert screening.reason == "contradictory"


def test_without_a_reference_there_is_nothing_to_screen():
    assert asyncio.run(screen_question(replace(INSTANCE, reference_answer=None), Judge())) == RecordRejection(
        NO_REFERENCE_REASON
    )


@pytest.mark.slow
def test_the_command_screens_a_file_and_intersect_reads_it(tmp_path):
    good = [item.instance for item in islice(make_world_items("short-easy", 2), 6)]
    stripped = replace(good[0], id="stripped", evidence=good[0].evidence[-1:], support_ids=None)
    wrong = replace(good[1], id="wrong", reference_answer="Atlantis", aliases=())
    jsonl.write_records(
        tmp_path / "q.jsonl", [*good, stripped, wrong, replace(good[2], id="bare", reference_answer=None)]
    )
    with ModelServerThread(build_world_handlers()) as server:
        judged = ["screen", tmp_path / "q.jsonl", "--judge", server.base_url, "--no-price", "-o", tmp_path / "run"]
        result = CliRunner().invoke(app, list(map(str, judged)))
        assert result.exit_code == 0, (result.output, result.exception)
        words = ["generate", tmp_path / "q.jsonl", "--model", server.base_url, "--no-price", "-o", tmp_path / "gen"]
        assert CliRunner().invoke(app, list(map(str, words))).exit_code == 0
    assert "6 questions eligible, 2 not (N" in result.output
    assert f"{NO_REFERENCE_REASON} 1" in result.output
    by_id = {
        record.id: record for record in jsonl.read_records(tmp_path / "run" / "screening.jsonl", QuestionScreening)
    }
    assert by_id["wrong"].code == Ineligibility.INCOMPATIBLE_REFERENCE
    pool = ["data", "intersect", tmp_path / "gen", "--eligible", tmp_path / "run" / "screening.jsonl"]
    result = CliRunner().invoke(app, [*map(str, pool), "--out", str(tmp_path / "pool.jsonl")])
    assert result.exit_code == 0, (result.output, result.exception)
    assert len((tmp_path / "pool.jsonl").read_text().splitlines()) == 6


def test_a_question_without_a_label_is_not_in_the_pool(tmp_path):
    jsonl.write_records(
        tmp_path / "s.jsonl", [QuestionScreening("a", "j", True), QuestionScreening("b", "j", reason="refusal")]
    )
    eligible = load_eligibility_test(tmp_path / "s.jsonl")
    assert [eligible(name) for name in "abc"] == [True, False, False]


def test_a_dry_run_tells_what_screening_would_take_and_asks_nobody(tmp_path):
    instances = tmp_path / "i.jsonl"
    jsonl.write_records(instances, [item.instance for item in islice(make_world_items("short-easy", 1), 5)])
    words = ["screen", instances, "--judge", "openai/gpt-x", "--no-price", "--out", tmp_path / "run", "--dry-run"]
    result = CliRunner().invoke(app, [*map(str, words)], env={"OPENAI_API_KEY": "none"})
    assert result.exit_code == 0, (result.output, result.exception)
    assert "5 calls" in result.output
    assert not (tmp_path / "run").exists()
