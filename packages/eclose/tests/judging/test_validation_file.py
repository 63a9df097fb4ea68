"""A judge validated against the truth of the world, and the file that says so."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

from eclose.calls.model import FinishReason, Reply, TokenUsage
from eclose.errors import RecordError, SettingError, UserError
from eclose.files import jsonl
from eclose.judging import validation_file as validating
from eclose.judging.judge_response import judge_response
from eclose.judging.settings import JudgeSettings
from eclose.judging.validate import list_label_doubts
from eclose.judging.validation_file import (
    JudgedRun,
    build_validation,
    compare_judge_runs,
    correct_rates_by_validation,
    hash_judged_responses,
    read_validation,
    require_validated_judge,
    write_validation,
)
from eclose.metrics.judge_against_people import DIRECT_LABELS, LABEL_METRICS, JudgedLabel
from eclose.values.judgment import Judgment, StepJudgment
from eclose.values.response import Response, Trace
from eclose.values.verdict import SettledVerdict, Verdict
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles import judge as world_judging
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.chat_requests import ChatRequest

SETTINGS = JudgeSettings().identity
SOUND, UNSOUND = StepJudgment(substantive=True, sound=True), StepJudgment(substantive=True, sound=False)


def rng(seed=0):
    return np.random.default_rng(seed)


def judgment(response_id, sound=True, aligned=True, closed=True, judge="house/judge"):
    step = SOUND if sound else UNSOUND
    return Judgment(response_id, judge, (step,), aligned=aligned, closed=closed, complete=True, correct=True)


def settled(response_id, instance_id, sound=True, aligned=True, closed=True, benchmark="b"):
    return SettledVerdict(response_id, instance_id, Verdict(sound, aligned, closed, True, True), benchmark)


def response(response_id, instance_id):
    return Response(response_id, instance_id, Trace.of("So."), "So")


# Twelve judged, r0 to r11, two a question; the first four labelled. The judge fails L of r0 and r8 to r11.
RUN = [judgment(f"r{i}", sound=i not in (0, 8, 9, 10, 11)) for i in range(12)]
TRUTH = [settled(f"r{i}", f"q{i // 2}", sound=i != 1) for i in range(4)]
RESPONSES = [response(f"r{i}", f"q{i // 2}") for i in range(12)]


def validated(judgments=RUN, verdicts=TRUTH, responses=RESPONSES, seed=0, **settings):
    return build_validation(judgments, verdicts, responses, settings=SETTINGS, rng=rng(seed), resamples=50, **settings)


def test_judgments_and_verdicts_meet_by_response():
    result = validated(verdicts=[*TRUTH, settled("elsewhere", "q99")])
    assert (result.judge, result.judged, result.labelled, result.not_in_run) == ("house/judge", 12, 4, 1)
    row = result.overall.rows[JudgedLabel.LOCAL_SOUNDNESS]
    # r0 is a false alarm, r1 missed.
    assert (row.n, row.found, row.misses, row.false_alarms) == (4, 0, 1, 1)
    assert row.scores.agreement.value == 2 / 4
    assert list(result.datasets) == ["b"]
    rate = result.corrected[JudgedLabel.LOCAL_SOUNDNESS]
    # The judge passes 7 of 12. People pass 2 of the 3 it passes and the one it fails, so its word has no weight.
    assert (rate.judge, rate.human, rate.trust, rate.value) == (7 / 12, 3 / 4, 0, 3 / 4)
    assert rate.labelled == 4


def test_the_unlabelled_responses_are_grouped_by_question_where_that_is_known():
    # A question whose three responses share their label counts for less than three questions.
    many = [judgment(f"r{i}", sound=i // 3 % 2 == 0) for i in range(60)]
    truth = [settled(f"r{i}", f"q{i // 3}", sound=i // 3 % 2 == 0) for i in range(0, 60, 3)]
    grouped = validated(many, truth, [response(f"r{i}", f"q{i // 3}") for i in range(60)])
    single = validated(many, truth, [])
    label = JudgedLabel.LOCAL_SOUNDNESS
    assert grouped.corrected[label].value == single.corrected[label].value
    assert np.diff(grouped.corrected[label].interval)[0] > 1.2 * np.diff(single.corrected[label].interval)[0]


def test_a_validation_is_read_back_as_it_was_written(tmp_path):
    validation = validated([*RUN[:11], replace(RUN[11], closed=None)])
    write_validation(tmp_path / "v.json", validation)
    assert read_validation(tmp_path / "v.json") == validation
    text = (tmp_path / "v.json").read_text()
    assert json.loads(text)["schema"] == 1
    assert "NaN" not in text
    assert len(text) < 100_000
    assert validation.overall.rows[JudgedLabel.CORRECTNESS].scores.kappa.value is None


@pytest.mark.parametrize(
    "spoil", [lambda v: v | {"schema": 2}, lambda v: v | {"extra": 1}, lambda v: v | {"judged": "12"}, lambda _: []]
)
def test_another_file_is_refused(tmp_path, spoil):
    write_validation(tmp_path / "v.json", validated())
    spoiled = spoil(json.loads((tmp_path / "v.json").read_text()))
    (tmp_path / "v.json").write_text(json.dumps(spoiled))
    with pytest.raises(UserError, match=r"v\.json: is no validation of this version"):
        read_validation(tmp_path / "v.json")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.json"):
        read_validation(tmp_path / "none.json")


def test_the_same_judge_asked_the_same_way_is_accepted_and_no_other():
    validation = validated()
    require_validated_judge(validation, "house/judge", SETTINGS)
    with pytest.raises(SettingError, match="is of house/judge, the run was judged by other/judge"):
        require_validated_judge(validation, "other/judge", SETTINGS)
    changed = SETTINGS["guidelines"] | {"judge_closure": "sha256:0"}
    with pytest.raises(SettingError, match="other settings: guidelines judge_closure differ"):
        require_validated_judge(validation, "house/judge", SETTINGS | {"guidelines": changed})
    with pytest.raises(SettingError, match="temperature differ"):
        require_validated_judge(validation, "house/judge", SETTINGS | {"temperature": 1.0})
    # What is asked before there is a response decides no label of one.
    screened = SETTINGS["guidelines"] | {"screen_eligibility": "sha256:0"}
    require_validated_judge(validation, "house/judge", SETTINGS | {"guidelines": screened})


def test_a_validation_read_back_still_fits_its_judge(tmp_path):
    write_validation(tmp_path / "v.json", validated())
    require_validated_judge(read_validation(tmp_path / "v.json"), "house/judge", SETTINGS)


def test_settings_without_guidelines_are_refused():
    with pytest.raises(SettingError, match="lack the guideline of a criterion"):
        build_validation(RUN, TRUTH, settings={"temperature": 0.0}, rng=rng())


@pytest.mark.parametrize(
    "judgments,verdicts,message",
    [
        ([*RUN, judgment("r1")], TRUTH, "response r1: was judged twice"),
        ([*RUN, judgment("new", judge="other")], TRUTH, "by house/judge and other"),
        ([], TRUTH, "by no judge"),
        (RUN, [*TRUTH, settled("r1", "q0", sound=True)], "response r1: has two different verdicts"),
        (RUN, [settled("x", "q")], "no verdict is on a response of this run"),
    ],
)
def test_files_that_do_not_fit_are_refused(judgments, verdicts, message):
    with pytest.raises((UserError, RecordError), match=message):
        validated(judgments, verdicts)


def test_a_verdict_that_stands_there_twice_counts_once():
    assert validated(verdicts=[*TRUTH, TRUTH[0]]) == validated()


def test_strata_weigh_the_labelled_responses():
    strata = {f"r{i}": "a" if i < 2 else "b" for i in range(12)}
    rate = validated(strata=strata).corrected[JudgedLabel.LOCAL_SOUNDNESS]
    # r0 and r1 stand for one response each, r2 and r3 for five: people pass (1 + 0 + 5 + 5) of 12.
    assert rate.human == pytest.approx(11 / 12, abs=1e-15)
    with pytest.raises(SettingError, match="no response of the stratum 'c' is labelled"):
        validated(strata=strata | {"r11": "c"})
    with pytest.raises(SettingError, match="response r11 has no stratum"):
        validated(strata={name: stratum for name, stratum in strata.items() if name != "r11"})


def test_the_run_that_was_validated_has_its_own_rates_and_another_has_them_carried_over():
    validation = validated()
    own = correct_rates_by_validation(validation, JudgedRun.of(RUN[::-1], RESPONSES), settings=SETTINGS, rng=rng())
    assert (own.rates, own.carried_over) == (validation.corrected, False)
    assert hash_judged_responses(RUN[::-1]) == validation.run != hash_judged_responses(RUN[1:])
    other = correct_rates_by_validation(validation, JudgedRun.of(RUN[1:], RESPONSES), settings=SETTINGS, rng=rng())
    assert other.carried_over
    assert other.rates[JudgedLabel.LOCAL_SOUNDNESS].judged == 11
    other_run = JudgedRun.of([judgment("r1", judge="other/judge")])
    with pytest.raises(SettingError, match="other/judge"):
        correct_rates_by_validation(validation, other_run, settings=SETTINGS, rng=rng())


def test_labels_drawn_by_what_the_judge_said_correct_their_own_run_alone():
    strata = {row.response_id: "all" for row in RUN}
    validation = validated(strata=strata)
    assert (validation.stratified, validated().stratified) == (True, False)
    assert not correct_rates_by_validation(
        validation, JudgedRun.of(RUN, RESPONSES), settings=SETTINGS, rng=rng()
    ).carried_over
    with pytest.raises(SettingError, match="Label responses of this run"):
        correct_rates_by_validation(validation, JudgedRun.of(RUN[1:], RESPONSES), settings=SETTINGS, rng=rng())


def test_two_judges_are_compared_on_what_both_saw():
    better = [judgment(f"r{i}", sound=i != 1, judge="second") for i in range(3)]
    compared = compare_judge_runs(RUN, better, TRUTH, rng=rng(), resamples=50)
    label = JudgedLabel.LOCAL_SOUNDNESS
    assert compared.n[label] == 3
    assert (compared.first[label].agreement.value, compared.second[label].agreement.value) == (1 / 3, 1)
    assert compared.difference[label].agreement.value == pytest.approx(-2 / 3)
    with pytest.raises(UserError, match="of both judges"):
        compare_judge_runs(RUN, [judgment("x", judge="second")], TRUTH, rng=rng())


def test_files_are_read_as_records(tmp_path):
    jsonl.write_records(tmp_path / "j.jsonl", RUN)
    jsonl.write_records(tmp_path / "v.jsonl", TRUTH)
    assert validating.read_judgments(tmp_path / "j.jsonl") == RUN
    assert validating.read_people_verdicts(tmp_path / "v.jsonl") == TRUTH


@pytest.mark.parametrize("name", ["labels.csv", "labels.TSV", "labels.xlsx"])
def test_a_spreadsheet_in_place_of_verdicts_names_the_command_that_imports_it(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(UserError, match="there is no such file"):
        validating.read_people_verdicts(path)
    path.write_bytes(b"PK" if name.endswith("xlsx") else b"response_id,annotator,L\nr1,A,1\n")
    with pytest.raises(UserError, match="eclose annotate import") as refused:
        validating.read_people_verdicts(path)
    assert "verdicts.jsonl" in str(refused.value)
    assert ("as CSV" in str(refused.value)) is name.endswith("xlsx")


# The world, without HTTP.

# In short: two draws of a judge that errs one time in ten.
NOISE = [*(pytest.param(noise, 5, marks=pytest.mark.study) for noise in (0.02, 0.10)), (0.10, 2)]


class InProcess:
    """The world's judge, asked directly."""

    name = "world/judge"

    def __init__(self, noise, seed):
        self.registry = build_world_handlers(seed=seed, judge_noise=noise)

    async def complete(self, request):
        schema = {"name": request.schema.name, "schema": dict(request.schema.schema), "strict": True}
        chat = ChatRequest.of(
            {
                "model": "world",
                "messages": list(request.messages),
                "response_format": {"type": "json_schema", "json_schema": schema},
            }
        )
        return Reply(
            json.dumps(self.registry.handler(chat.schema_name)(chat).content), FinishReason.STOP, TokenUsage(1, 1)
        )


@pytest.fixture(scope="module")
def planted():
    """Responses to twenty questions, each with what was planted."""
    pairs = []
    for index, item in enumerate(islice(make_world_items("2wiki", 11), 20)):
        plans = [plan for number, plan in enumerate((FailurePlan(), *FAILURE_PLANS)) if (number + index) % 2 == 0]
        pairs += [
            (item.instance, broken) for plan in plans if (broken := break_response(item, plan, repr(plan))) is not None
        ]
    return pairs


@pytest.fixture(scope="module")
def judged_by(planted):
    """The judgments of a judge that errs so often. What is true of a response is found out once for all of them."""
    once = {question: cache(handler) for question, handler in world_judging._HANDLERS.items()}

    @cache
    def judged(noise, seed=0):
        model = InProcess(noise, seed)

        async def all_of_them():
            return [await judge_response(instance, broken.response, model) for instance, broken in planted]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world_judging, "_HANDLERS", once)
            return asyncio.run(all_of_them())

    return judged


@pytest.fixture(scope="module")
def truth(planted):
    return [
        SettledVerdict(broken.response.id, instance.id, broken.verdict, instance.benchmark)
        for instance, broken in planted
    ]


@pytest.mark.slow
def test_an_exact_judge_agrees_with_the_world_and_is_not_called_certain(judged_by, truth):
    validation = build_validation(judged_by(0), truth, settings=SETTINGS, rng=rng(), resamples=20)
    assert len(truth) > 150
    for row in validation.overall.rows.values():
        assert (row.n, row.misses, row.false_alarms) == (len(truth), 0, 0)
        assert row.disagreement.interval.low == 0 < row.disagreement.interval.high


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "seeds"), NOISE)
def test_a_validation_in_the_world_recovers_how_often_the_judge_errs(judged_by, truth, noise, seeds):
    hits = []
    for seed in range(seeds):
        validation = build_validation(judged_by(noise, seed), truth, settings=SETTINGS, rng=rng(seed), resamples=5)
        rows = [validation.overall.rows[label] for label in DIRECT_LABELS]
        hits += [row.disagreement.interval.low <= noise <= row.disagreement.interval.high for row in rows]
        assert abs(np.mean([row.disagreement.value for row in rows]) - noise) < 0.03
    # A 95 % interval may miss one in twenty.
    assert sum(hits) >= 0.92 * len(hits)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "seeds"), NOISE)
def test_a_hundred_labels_put_the_rates_of_the_world_right(planted, judged_by, truth, noise, seeds):
    hits = []
    real = {label: np.mean([metric.hit(row.verdict) for row in truth]) for label, metric in LABEL_METRICS.items()}
    for seed in range(seeds):
        sample = [truth[index] for index in rng(seed).permutation(len(truth))[:100]]
        responses = [broken.response for _, broken in planted]
        judged = judged_by(noise, seed)
        validation = build_validation(judged, sample, responses, settings=SETTINGS, rng=rng(seed), resamples=5)
        assert validation.labelled == 100
        hits += [rate.interval.low <= real[label] <= rate.interval.high for label, rate in validation.corrected.items()]
    assert sum(hits) >= 0.92 * len(hits)


@pytest.mark.slow
def test_labels_that_were_exchanged_or_chosen_are_doubted(judged_by, truth):
    def list_doubts(labels):
        validation = build_validation(judged_by(0.1), labels, settings=SETTINGS, rng=rng(), resamples=100)
        return list(list_label_doubts(validation))

    assert list_doubts([truth[index] for index in rng(1).permutation(len(truth))[:100]]) == []
    exchanged = [
        replace(row, verdict=replace(row.verdict, locally_sound=not row.verdict.locally_sound)) for row in truth
    ]
    assert any(doubt.startswith("L") and "less than by chance" in doubt for doubt in list_doubts(exchanged))
    # Most responses of these plans fail, so reliable ones alone are no sample of them.
    chosen = [row for row in truth if row.verdict.reliable][:40]
    assert any("otherwise than with equal chances" in doubt for doubt in list_doubts(chosen))
