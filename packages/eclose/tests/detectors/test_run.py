"""Detectors over a whole run: what they find of planted failures, resuming after a kill, and records of the run.

As a program, this file is a run that kills itself after the n-th reply is stored:
``python test_run.py url folder detector n``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from eclose.calls.batches.run import BatchSettings
from eclose.calls.client import CallSettings
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.resolve import find_model_ref, resolve_model_ref
from eclose.calls.run import RunOptions
from eclose.detectors.run import detect_responses, forecast_detection
from eclose.detectors.scores import DetectorKind, DetectorScore
from eclose.detectors.settings import CHAT_DETECTORS, ChatDetectorSettings
from eclose.errors import SettingError, UserError
from eclose.files import jsonl
from eclose.files.manifest import read_manifest
from eclose.stats.ranking import ScoredResponses, auroc
from eclose.values.response import Response, Trace
from eclose.values.verdict import FailureClass
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply

RAGAS, VERISCORE, ALIGNMENT = CHAT_DETECTORS
CALLS = CallSettings(unpriced=True)
EVERY = pytest.mark.parametrize("kind", CHAT_DETECTORS)


def plant(count, plans=FAILURE_PLANS[:13]):
    return [
        (item.instance, broken)
        for item in islice(make_world_items("short-easy", 3), count)
        for plan in (FailurePlan(), *plans)
        if (broken := break_response(item, plan, "x")) is not None
    ]


def write(folder, cases):
    folder.mkdir(exist_ok=True)
    jsonl.write_records(folder / "instances.jsonl", {instance.id: instance for instance, _ in cases}.values())
    responses = {broken.response.id: broken.response for _, broken in cases}
    jsonl.write_records(folder / "responses.jsonl", responses.values())
    return folder


@pytest.fixture
def run(tmp_path):
    return write(tmp_path / "run", plant(2))


def detect(run, url, kind, options=None, calls=CALLS, **settings):
    return asyncio.run(detect_responses(run, url, ChatDetectorSettings(detector=kind, **settings), calls, options))


def read_scores(run, kind):
    return {score.response_id: score for score in jsonl.read_records(run / f"scores-{kind}.jsonl", DetectorScore)}


def separation(scores, cases, belongs):
    """Return the AUROC of the planted failures that ``belongs`` selects against the reliable responses."""
    reliable = [broken for _, broken in cases if broken.plan == FailurePlan()]
    failed = [broken for _, broken in cases if broken.plan != FailurePlan() and belongs(broken)]
    assert len(reliable) > 5
    assert failed
    values = np.array([scores[broken.response.id].score for broken in (*failed, *reliable)])
    is_failed = np.arange(len(values)) < len(failed)
    return auroc(ScoredResponses(values, is_failed, ~is_failed))


@pytest.fixture(scope="module")
def cases():
    """Return planted responses: an exact model behind each detector shows which failures it can see at all."""
    return plant(12)


@pytest.fixture(scope="module")
def scores(cases, tmp_path_factory):
    folder = write(tmp_path_factory.mktemp("planted"), cases)
    with ModelServerThread(build_world_handlers()) as server:
        for kind in CHAT_DETECTORS:
            detect(folder, server.base_url, kind)
    return {kind: read_scores(folder, kind) for kind in CHAT_DETECTORS}


@pytest.mark.slow
@EVERY
def test_every_response_has_a_score(scores, cases, kind):
    assert set(scores[kind]) == {broken.response.id for _, broken in cases}
    assert all(score.score is not None for score in scores[kind].values())


@pytest.mark.parametrize("kind", [RAGAS, VERISCORE])
def test_unsupported_steps_are_found_by_their_statements(scores, cases, kind):
    assert separation(scores[kind], cases, lambda broken: broken.plan.local is not None) == 1.0


@pytest.mark.parametrize("kind", [RAGAS, VERISCORE])
def test_a_path_deviation_shows_in_no_statement_but_the_answer(scores, cases, kind):
    """Every step of a deviation is supported. Its answer is right for another question, and mostly wrong here."""

    def deviates(broken):
        return broken.plan.broken is FailureClass.PATH_DEVIATION

    labels = {
        id_: [entry["supported"] for entry in next(iter(score.details.values()))] for id_, score in scores[kind].items()
    }
    deviations = [broken for _, broken in cases if deviates(broken)]
    assert [labels[broken.response.id][-1] for broken in deviations] == [
        broken.verdict.correct for broken in deviations
    ]
    # Without the statement made of the answer, a deviation cannot be told from a reliable response.
    of_steps = {id_: replace(scores[kind][id_], score=sum(row[:-1]) / len(row[:-1])) for id_, row in labels.items()}
    assert separation(of_steps, cases, deviates) == 0.5
    assert separation(scores[kind], cases, lambda broken: deviates(broken) and broken.verdict.correct) == 0.5
    assert separation(scores[kind], cases, lambda broken: deviates(broken) and not broken.verdict.correct) == 1.0


@pytest.mark.parametrize("kind", [RAGAS, VERISCORE])
def test_a_decoupled_answer_is_found_by_the_one_statement_made_of_it(scores, cases, kind):
    decoupled = FailureClass.ANSWER_DECOUPLING
    assert separation(scores[kind], cases, lambda broken: broken.plan.broken is decoupled) == 1.0


def test_alignment_finds_path_deviations_and_nothing_else(scores, cases):
    deviation = FailureClass.PATH_DEVIATION
    assert separation(scores[ALIGNMENT], cases, lambda broken: broken.plan.broken is deviation) == 1.0
    assert separation(scores[ALIGNMENT], cases, lambda broken: broken.plan.broken is not deviation) == 0.5


@pytest.mark.slow
@EVERY
def test_a_finished_run_is_not_repeated_and_its_manifest_says_what_was_done(run, kind):
    with ModelServerThread(build_world_handlers()) as server:
        first = detect(run, server.base_url, kind)
        paid = server.bill(keys=False)["totals"]["paid"]
        again = detect(run, server.base_url, kind)
        assert server.bill(keys=False)["totals"]["paid"] == paid
    assert (first.again, again.again) == (False, True)
    manifest = read_manifest(run / f"scores-{kind}.jsonl.manifest.json")
    assert (manifest.stage, manifest.settings["detector"], manifest.settings["model"]) == (
        "detect",
        kind,
        "127.0.0.1/world",
    )
    assert set(manifest.inputs) == {"instances.jsonl", "responses.jsonl"}
    assert manifest.calls["replies"] == paid
    assert manifest.calls["unscored"] == {}
    assert manifest.counts.accepted == len(read_scores(run, kind))


@pytest.mark.slow
def test_detectors_share_a_folder_and_its_ledger(run):
    with ModelServerThread(build_world_handlers()) as server:
        for kind in CHAT_DETECTORS:
            detect(run, server.base_url, kind)
    ids = [set(read_scores(run, kind)) for kind in CHAT_DETECTORS]
    assert ids[0] == ids[1] == ids[2]


@pytest.mark.slow
def test_other_settings_are_refused_and_with_force_pay_for_what_is_new(run):
    with ModelServerThread(build_world_handlers()) as server:
        detect(run, server.base_url, RAGAS)
        paid = server.bill(keys=False)["totals"]["paid"]
        with pytest.raises(UserError, match="other settings"):
            detect(run, server.base_url, RAGAS, attempts=3)
        # More attempts change the run and not its requests: the ledger answers all of them.
        detect(run, server.base_url, RAGAS, RunOptions(force=True), attempts=3)
        assert server.bill(keys=False)["totals"]["paid"] == paid


@pytest.mark.slow
def test_a_second_model_behind_one_detector_has_a_file_of_its_own(run):
    with ModelServerThread(build_world_handlers()) as first, ModelServerThread(build_world_handlers()) as second:
        detect(run, first.base_url, ALIGNMENT)
        settings, other = ChatDetectorSettings(detector=ALIGNMENT, top_logprobs=5), run / "scores-other.jsonl"
        result = asyncio.run(detect_responses(run, second.base_url, settings, CALLS, out=other))
    assert result.stage.out == other
    assert len(other.read_text().splitlines()) == len(read_scores(run, ALIGNMENT))


@pytest.mark.slow
@EVERY
def test_batches_give_the_scores_of_single_calls(run, tmp_path, kind):
    alone = write(tmp_path / "alone", plant(2))
    with ModelServerThread(build_world_handlers()) as server:
        detect(alone, server.base_url, kind)
        lines = []
        options = RunOptions(batch=BatchSettings(poll=0.01, first_wait=0.01), notify=lines.append)
        detect(run, server.base_url, kind, options)
    assert (run / f"scores-{kind}.jsonl").read_bytes() == (alone / f"scores-{kind}.jsonl").read_bytes()
    # Statements are decided in a second batch, once the first has listed them.
    assert len(list((run / "batches").rglob("*"))) > 0
    assert lines


@pytest.mark.slow
def test_changed_responses_make_scores_stale(run):
    with ModelServerThread(build_world_handlers()) as server:
        detect(run, server.base_url, ALIGNMENT)
        lines = (run / "responses.jsonl").read_text().splitlines(keepends=True)
        (run / "responses.jsonl").write_text("".join(lines[:-1]))
        with pytest.raises(UserError, match="other inputs"):
            detect(run, server.base_url, ALIGNMENT)


@pytest.mark.slow
def test_responses_without_a_score_are_counted_by_reason(run):
    cases = plant(2)
    instance = cases[0][0]
    odd = [
        Response("no-trace", instance.id, Trace(()), None),
        Response("odd-1", instance.id, Trace.of("Colourless green ideas sleep."), "x"),
        Response("odd-2", instance.id, Trace.of("Furiously."), "x"),
        Response("stray", "nowhere", Trace.of("Furiously."), "x"),
    ]
    jsonl.write_records(run / "responses.jsonl", [*(broken.response for _, broken in cases), *odd])
    with ModelServerThread(build_world_handlers()) as server:
        results = {kind: detect(run, server.base_url, kind) for kind in CHAT_DETECTORS}
    unscored = {kind: result.manifest.calls["unscored"] for kind, result in results.items()}
    assert unscored == {
        RAGAS: {"no statement": 1, "no usable reply": 2},
        VERISCORE: {"no claim": 1, "no usable reply": 2},
        ALIGNMENT: {"no trace": 1, "no yes or no": 2},
    }
    for kind, result in results.items():
        assert result.manifest.counts.quarantined == {"read: no such question": 1}
        scores = read_scores(run, kind)
        assert Counter(score.unscored for score in scores.values() if score.score is None).total() == 3
        assert scores["no-trace"].score is None
        assert "stray" not in scores


@pytest.mark.slow
def test_a_server_without_log_probabilities_stops_the_run_at_once(run):
    world = build_world_handlers()

    class Silent(HandlerRegistry):
        def handler(self, schema_name):
            def answer(request):
                object.__setattr__(request, "logprobs", False)
                return ScriptedReply("Yes")

            return answer if schema_name is None else world.handler(schema_name)

    with ModelServerThread(Silent()) as server:
        with pytest.raises(SettingError, match=r"reports no log-probabilities.*name another --model"):
            detect(run, server.base_url, ALIGNMENT, calls=CallSettings(unpriced=True, concurrency=1))
        # Two records are in progress with one call at a time.
        assert server.bill(keys=False)["totals"]["paid"] <= 2
        detect(run, server.base_url, RAGAS)
    assert not (run / "scores-alignment.jsonl").exists()


@EVERY
def test_a_model_in_this_process_is_refused_before_it_is_loaded(run, kind):
    needed = "log-probabilities" if kind is ALIGNMENT else "replies of a JSON schema"
    with pytest.raises(SettingError, match=f"needs {needed}.*Use a model server"):
        detect(run, find_model_ref("transformers:no/such-model"), kind)


@pytest.mark.slow
def test_the_forecast_counts_the_calls_and_sends_nothing(run):
    with ModelServerThread(build_world_handlers()) as server:
        model = asyncio.run(resolve_model_ref(server.base_url, 10))
        for kind in CHAT_DETECTORS:
            settings = ChatDetectorSettings(detector=kind)
            forecast = forecast_detection(run, model, settings, CALLS)
            before = server.bill(keys=False)["totals"]
            detect(run, server.base_url, kind)
            after = server.bill(keys=False)["totals"]
            assert forecast.calls == after["paid"] - before["paid"]
            read, written = (after[name] - before[name] for name in ("prompt_tokens", "completion_tokens"))
            if kind is ALIGNMENT:
                assert (forecast.prompt_tokens, forecast.completion_tokens) == (read, 4 * written)
            else:
                # The words of the statements are known after the first call only.
                assert forecast.prompt_tokens == pytest.approx(read, rel=0.02)
                assert forecast.completion_tokens == pytest.approx(written, rel=0.1)
        assert server.bill(keys=False)["totals"]["rejected"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "replies"), [(RAGAS, 7), pytest.param(VERISCORE, 8, marks=pytest.mark.study), (ALIGNMENT, 5)]
)
def test_after_a_kill_nothing_is_paid_twice(run, tmp_path, kind, replies):
    """Killed after the first or the second of the two calls on a response, the run goes on with the next call."""
    whole = write(tmp_path / "whole", plant(2))
    with ModelServerThread(build_world_handlers()) as server:
        arguments = [sys.executable, __file__, server.base_url, str(run), kind, str(replies)]
        killed = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert server.bill(keys=False)["totals"]["paid"] == replies
        assert not (run / f"scores-{kind}.jsonl").exists()
        result = detect(run, server.base_url, kind)
        lines = server.bill()["requests"].values()
        assert {line["paid"] for line in lines} == {1}
        assert len(lines) == result.manifest.calls["replies"] > replies
        detect(whole, server.base_url, kind)
    assert (run / f"scores-{kind}.jsonl").read_bytes() == (whole / f"scores-{kind}.jsonl").read_bytes()


def die_after(replies):
    """Let this process die once so many replies are stored."""
    settle, stored = Ledger.settle, []

    async def settle_and_count(self, reply):
        await settle(self, reply)
        stored.append(reply)
        if len(stored) == replies:
            os.kill(os.getpid(), signal.SIGKILL)

    Ledger.settle = settle_and_count


if __name__ == "__main__":
    die_after(int(sys.argv[4]))
    # One call at a time: none is under way when the process dies.
    detect(Path(sys.argv[2]), sys.argv[1], DetectorKind(sys.argv[3]), calls=CallSettings(unpriced=True, concurrency=1))
