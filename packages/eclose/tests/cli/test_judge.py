"""From judged responses to how far the judge can be trusted, and whether they pass."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import islice

import pytest
from typer.testing import CliRunner

import eclose
from eclose.api.results import diagnose
from eclose.calls.retry import ServiceDown
from eclose.cli.main import app
from eclose.diagnosis.number_format import format_percent_with_interval, format_signed_percent
from eclose.errors import UserError
from eclose.files import jsonl
from eclose.judging.validate import validate_judges
from eclose.judging.validation_file import read_validation
from eclose.metrics.judge_against_people import JudgedLabel
from eclose.values.instance import Instance
from eclose.values.judgment import Criterion, Judgment
from eclose.values.verdict import SettledVerdict
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply
from eclose_world.server.faults import ServerBehaviour, ServerFault
from tests.generating import recipe
from tests.judging.requested_handlers import register_requested_handlers


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def points(text):
    """A number with a sign as it is printed."""
    return float(text.replace("−", "-"))


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A run judged by somebody who errs in a tenth of the cases, and what is true of it."""
    run = tmp_path_factory.mktemp("run")
    planted = [
        (item.instance, broken)
        for item in islice(make_world_items("short-easy", 3), 12)
        for plan in (FailurePlan(), FailurePlan(None, FAILURE_PLANS[11].broken), *FAILURE_PLANS[:4])
        if (broken := break_response(item, plan, f"{plan}")) is not None
    ]
    jsonl.write_records(run / "instances.jsonl", {instance.id: instance for instance, _ in planted}.values())
    unique = {broken.response.id: (instance, broken) for instance, broken in planted}
    jsonl.write_records(run / "responses.jsonl", (broken.response for _, broken in unique.values()))
    verdicts = [
        SettledVerdict(broken.response.id, instance.id, broken.verdict, "world") for instance, broken in unique.values()
    ]
    jsonl.write_records(run / "people.jsonl", verdicts)
    with ModelServerThread(build_world_handlers(judge_noise=0.1)) as server:
        command("judge", run, "--judge", server.base_url, "--no-price")
    return run, verdicts


@pytest.mark.slow
def test_a_judge_is_held_against_people(judged, tmp_path):
    run, verdicts = judged
    output = command("judge", "validate", run, "--verdicts", run / "people.jsonl")
    assert f"{len(verdicts)} of {len(verdicts)} responses are labelled" in output
    table = output[: output.index("Missed failures")]
    lines = {line.split()[0]: line for line in table.splitlines() if line.strip()}
    assert {"L", "A", "C", "K", "Acc", "G", "TRR", "LGG"} <= lines.keys()
    validation = json.loads((run / "validation.json").read_text())
    # Label, n, n0, then agreement, F1 of failures, balanced accuracy, kappa and the difference of rates.
    failures = sum(row.verdict.locally_sound is False for row in verdicts)
    estimate, difference = r" +\d+\.\d % \[\d+\.\d, \d+\.\d\]", r" +[+−]?\d+\.\d \[[+−]?\d+\.\d, [+−]?\d+\.\d\]$"
    assert re.match(rf"L +{len(verdicts)} +{failures}{4 * estimate}{difference}", lines["L"])
    scores = validation["overall"]["rows"]["L"]["scores"]
    assert f"{100 * scores['failure_f1'][0]:.1f} %" in lines["L"]
    # Of sound traces, not of failures: the sign is that of the rates in every table.
    assert f"{format_signed_percent(-scores['failure_difference'][0])} [" in lines["L"]
    reliability = re.search(r"\S+ \[\S+ \S+\]$", lines["TRR"])[0]
    assert points(reliability.split()[0])
    assert output.count(f"  {reliability}") == 2
    assert "differences: rate to the judge minus rate to people" in output
    assert "difference of failure rates" not in output
    whole = output[output.index("The judge as a whole") :].splitlines()[2]
    differences = [abs(validation["overall"]["rows"][label]["scores"]["failure_difference"][0]) for label in "LACK"]
    differences.append(abs(validation["overall"]["rows"]["Acc"]["scores"]["failure_difference"][0]))
    assert validation["overall"]["largest_failure_difference"] == max(differences)
    assert f"  {100 * max(differences):.1f}  " in whole
    # The difference of TRR may be larger: the column is of the five labels that a judge gives.
    assert "largest of L, A, C, K, Acc, without sign" in output
    row = validation["overall"]["rows"]["L"]
    missed = next(line for line in output[output.index("Missed failures") :].splitlines() if line.startswith("L "))
    assert f"  {row['misses']} of {row['misses'] + row['found']}  " in missed
    share = read_validation(run / "validation.json").overall.rows[JudgedLabel.LOCAL_SOUNDNESS].missed
    assert f"  {format_percent_with_interval(*share[:2])}  " in missed
    assert (validation["judge"], validation["labelled"]) == ("127.0.0.1/world", len(verdicts))
    disagreement = validation["overall"]["rows"]["A"]["misses"] + validation["overall"]["rows"]["A"]["false_alarms"]
    assert 0 < disagreement < 0.3 * len(verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [ServerFault.GZIP_PAGE, ServerFault.ENCODED, ServerFault.OVERSIZED])
def test_trouble_on_the_way_gives_no_label_and_no_reply(judged, tmp_path, fault):
    """A proxy that compresses or pours: the run stops with 75, and the same command judges everything."""
    run, verdicts = judged
    words = ["judge", run, "--no-price", "--out", tmp_path]
    with ModelServerThread(
        build_world_handlers(), ServerBehaviour(faults={fault: 1.0}, max_faults_per_key=99)
    ) as server:
        port, url = int(server.base_url.split(":")[2].split("/")[0]), server.base_url
        stopped = CliRunner().invoke(app, [*map(str, words), "--judge", url, *recipe(tmp_path, breaker_seconds=1)])
        assert isinstance(stopped.exception, ServiceDown)
    assert not (tmp_path / "judgments.jsonl").exists()
    with ModelServerThread(build_world_handlers(), port=port) as server:
        whole = command(*words, "--judge", url, "--dry-run")
        command(*words, "--judge", url)
        assert f" {server.bill(keys=False)['totals']['paid']} calls" in whole  # nothing was kept as an answer
    judgments = list(jsonl.read_records(tmp_path / "judgments.jsonl", Judgment))
    assert len(judgments) == len(verdicts)
    assert not [judgment for judgment in judgments if "invalid" in judgment.unjudged.values()]


@pytest.mark.slow
def test_a_forecast_needs_no_key(judged, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ECLOSE_API_KEY", raising=False)
    run, _ = judged
    words = ["--judge", "openai/gpt-4o", "--no-price", "--out", tmp_path]
    assert "openai/gpt-4o: " in command("judge", run, *words, "--dry-run")
    assert "openai/gpt-4o: " in command(
        "generate", run / "instances.jsonl", "--model", "openai/gpt-4o", *words[2:], "--dry-run"
    )
    assert "openai/gpt-4o: " in command("screen", run / "instances.jsonl", *words, "--dry-run")
    result = CliRunner().invoke(app, ["judge", str(run), *map(str, words)])
    assert "Set OPENAI_API_KEY" in str(result.exception)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.figures
def test_a_diagnosis_ends_with_a_report_that_says_how_far_to_trust_it(judged, tmp_path):
    run, verdicts = judged
    output = command("diagnose", run, "--out", tmp_path / "before", "--validation", _validated(run))
    assert f"{len(verdicts)} responses to 12 questions" in output
    assert {path.name for path in (tmp_path / "before").iterdir()} == {
        "report.html", "report.md", "diagnosis.json", "junit.xml", "tables.tex", "figures"
    }  # fmt: skip
    text = (tmp_path / "before" / "report.md").read_text()
    assert f"Validated against people on {len(verdicts)} of {len(verdicts)} responses." in text
    assert "not been validated" not in text


def _validated(run):
    path = run / "another.json"
    command("judge", "validate", run, "--verdicts", run / "people.jsonl", "--out", path)
    return path


@pytest.mark.slow
def test_without_a_validation_the_report_says_so(judged, tmp_path):
    run, _ = judged
    (run / "validation.json").unlink(missing_ok=True)
    command("diagnose", run, "--out", tmp_path)
    assert "not been validated" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_a_gate_lets_pass_or_tells_why_not(judged):
    run, verdicts = judged
    assert "passed" in command("gate", run, "--min-trr", 0.01, "--max-unjudged", 0.0)
    output = command("gate", run, "--min-trr", 0.99, "--max-lgg", 0.001, code=100)
    assert "failed: TRR at least 99.0 %: " in output
    assert "failed: LGG at most 0.1 %: " in output
    assert f"failed, {len(verdicts)} responses" in output


@pytest.mark.slow
def test_a_gate_without_limits_is_refused(judged):
    result = CliRunner().invoke(app, ["gate", str(judged[0])])
    assert "lets everything pass" in str(result.exception)


def test_a_folder_that_was_not_judged_is_told(tmp_path):
    result = CliRunner().invoke(app, ["gate", str(tmp_path), "--min-trr", "0.5"])
    assert "instances.jsonl" in str(result.exception)


@pytest.mark.slow
def test_a_judge_that_is_asked_three_times_in_one_call_each_tells_how_often_it_flips(judged, tmp_path):
    run, verdicts = judged
    with ModelServerThread(build_world_handlers(judge_noise=0.1)) as server:
        words = ["judge", run, "--judge", server.base_url, "--no-price", "--out", tmp_path / "out", "--repeat", 3]
        words += recipe(tmp_path, joint=True)
        forecast = command(*words, "--dry-run")
        assert f"{3 * len(verdicts)} calls" in forecast
        assert not (tmp_path / "out").exists()
        output = command(*words)
        assert server.bill(keys=False)["totals"]["paid"] == 3 * len(verdicts)
    (line,) = [line for line in output.splitlines() if "the repetitions differ about" in line]
    flipped = int(line.split("C in ")[1].split()[0])
    # Three draws that err one time in ten are not all alike in 27 of a hundred.
    assert 0.15 * len(verdicts) < flipped < 0.4 * len(verdicts)


TONE = {"name": "tone", "question": "Is the answer polite?", "labels": ["polite", "rude"], "sees": ["answer"]}


@pytest.mark.slow
def test_what_is_asked_on_request_is_paid_once_and_stands_beside_the_rates(tmp_path):
    """A criterion and hints of a recipe, and passages by a flag; the labels of the paper are those without them."""
    run = tmp_path / "run"
    command("world", "make", "--out", run, "--questions", 6, "--failure", "answer_decoupling=0.3")
    settings = recipe(tmp_path, criteria=[TONE], domain="film history", reason_language="German")
    registry = build_world_handlers()
    register_requested_handlers(registry)
    with ModelServerThread(registry) as server:
        words = ["judge", run, "--judge", server.base_url, "--no-price"]
        command(*words, "--out", tmp_path / "plain")
        plain = server.bill(keys=False)["totals"]["paid"]
        asked = [*words, "--out", tmp_path / "asked", "--passages", *settings]
        forecast = command(*asked, "--dry-run")
        command(*asked)
        paid = server.bill(keys=False)["totals"]["paid"] - plain
        assert f"{paid:,} calls" in forecast
        command(*asked, "--force")
        assert server.bill(keys=False)["totals"]["paid"] == plain + paid
    before, after = (eclose.diagnose(tmp_path / name) for name in ("plain", "asked"))
    assert [case.verdict for case in before] == [case.verdict for case in after]
    assert before.diagnosis.requested == {}
    rates = after.diagnosis.requested
    answered = sum(case.response.answer is not None for case in after)
    assert (rates["criterion_tone"].n, rates["criterion_tone"].estimate.value) == (answered, 1)
    assert rates["context_recall"].estimate.value == 1
    # The oracle needs some of the passages, and those in between are not.
    assert 0 < rates["context_precision"].estimate.value < 1
    shown = command("judge", "show", tmp_path / "asked", after.cases[0].response.id)
    assert "judge_own" in shown
    assert "judge_passages" in shown
    assert "film history" in shown


@pytest.mark.slow
def test_two_judges_are_held_against_each_other_on_what_people_said(judged, tmp_path):
    run, verdicts = judged
    with ModelServerThread(build_world_handlers()) as server:
        command("judge", run, "--judge", server.base_url, "--no-price", "--out", tmp_path)
    words = ("--verdicts", run / "people.jsonl", "--out", tmp_path / "v.json")
    output = command("judge", "validate", run, *words, "--against", tmp_path, "--against", run)
    first, second = output.split("Compared with the other judge (")[1:]
    lines = {line.split()[0]: line.split() for line in first.splitlines() if line.strip()}
    # The other one never errs, so the one that errs in a tenth of the cases is worse on every label.
    for label in ("L", "A", "C", "K", "Acc"):
        assert lines[label][1] == f"{len(verdicts)}"
        assert lines[label][4:6] == ["100.0", "%"]
        assert -20 < points(lines[label][6]) < 0
    assert points(lines["mean"][1]) < 0
    assert "0.0 [0.0, 0.0]" in second
    whole = output[output.index("The judges as a whole") : output.index("Compared with the other judge")]
    exact = next(line for line in whole.splitlines() if line.startswith(str(tmp_path)))
    assert exact.split()[1:4] == [f"{len(verdicts)}", "100.0", "%"]
    assert exact.count("0.0 [0.0, 0.0]") == 2
    others = json.loads((tmp_path / "v.json").read_text())["others"]
    assert others[str(tmp_path)]["largest_failure_difference"] == 0
    assert others[str(run)]["largest_failure_difference"] > 0


def unreadable_judge(question="judge_soundness"):
    """The world's judge, but every reply to one question has a property that was not asked for."""
    registry, world = HandlerRegistry(), build_world_handlers()

    def spoiled(request):
        return ScriptedReply({**world.handler(question)(request).content, "comment": "hm"})

    for name in world.schema_names:
        registry.register(name, spoiled if name == question else world.handler(name))
    return registry


@pytest.mark.slow
def test_labels_that_are_missing_are_counted_by_reason_and_too_many_exit_with_3(judged, tmp_path):
    run, verdicts = judged
    count = len(verdicts)
    with ModelServerThread(unreadable_judge()) as server:
        words = ["judge", run, "--judge", server.base_url, "--no-price", "--out", tmp_path]
        output = command(*words, code=3)
        # Done before: the same is said of it again.
        again = command(*words, code=3)
        assert "nothing to do" in again
        allowed = command(*words, "--max-unjudged-share", 1)
    for printed in (output, again, allowed):
        assert f"Not judged, of {count} responses" in printed
        assert f"L      the reply does not have the requested form  {count}  100.0 %" in printed
        assert "for example: " in printed
        assert "'comment' was unexpected" in printed
    assert "L has no label for 100.0 % of the responses, more than 20.0 % (--max-unjudged-share)" in output
    assert "more than" not in allowed
    reasons = {
        row.unjudged[Criterion.LOCAL_SOUNDNESS] for row in jsonl.read_records(tmp_path / "judgments.jsonl", Judgment)
    }
    assert all(reason.startswith("invalid: ") for reason in reasons)


@pytest.mark.slow
def test_nothing_is_called_accepted_where_no_label_exists(judged, tmp_path):
    """A judgment without a label is written with its reasons; it is no response that was accepted."""
    run, verdicts = judged
    registry = HandlerRegistry()
    for name in build_world_handlers().schema_names:
        registry.register(name, lambda _request: ScriptedReply({"comment": "hm"}))
    with ModelServerThread(registry) as server:
        words = ["judge", run, "--judge", server.base_url, "--no-price", "--out", tmp_path]
        outputs = [command(*words, code=3), command(*words, code=3)]
    for printed in outputs:
        assert f"{len(verdicts)} received = {len(verdicts)} written + 0 rejected + 0 quarantined" in printed
        assert f"{len(verdicts)} of {len(verdicts)} responses are without any label" in printed
        # Stages that lost nothing have no line of their own.
        assert "accepted" not in printed


@pytest.mark.slow
def test_a_missing_label_on_the_evidence_is_explained_everywhere(judged, tmp_path):
    run, verdicts = judged
    with ModelServerThread(unreadable_judge("judge_sufficiency")) as server:
        printed = command("judge", run, "--judge", server.base_url, "--no-price", "--out", tmp_path)
    assert f"evidence  the reply does not have the requested form  {len(verdicts)}  100.0 %" in printed
    assert "no usable reply" not in printed
    rows = list(jsonl.read_records(tmp_path / "judgments.jsonl", Judgment))
    assert all(row.evidence_unjudged.startswith("invalid: ") for row in rows)
    output = command("judge", "show", tmp_path, rows[0].response_id, "--brief")
    assert re.search(r"^evidence .*not judged +the reply does not have the requested form: .*unexpected", output, re.M)
    for run_file in ("instances.jsonl", "responses.jsonl"):
        (tmp_path / run_file).write_bytes((run / run_file).read_bytes())
    assert diagnose(tmp_path).to_dicts()[0]["unjudged"].startswith("evidence: invalid: ")


@pytest.mark.slow
def test_a_run_with_every_label_prints_no_table_of_what_is_missing(judged, tmp_path):
    run, _ = judged
    with ModelServerThread(build_world_handlers()) as server:
        words = ["judge", run, "--judge", server.base_url, "--no-price", "--out", tmp_path]
        assert "Not judged" not in command(*words)
        # What was not to be judged is listed, and is no reason to fail.
        free = command(*words[:-1], tmp_path / "free", "--reference-free", "--max-unjudged-share", 0)
    assert "Acc    judged without the reference" in free


@pytest.mark.slow
def test_each_dataset_is_told_on_its_own(judged, tmp_path):
    run, verdicts = judged
    rows = [replace(row, benchmark=f"part-{number % 2}") for number, row in enumerate(verdicts)]
    jsonl.write_records(tmp_path / "people.jsonl", rows)
    words = ("--verdicts", tmp_path / "people.jsonl", "--out", tmp_path / "v.json")
    output = command("judge", "validate", run, *words)
    table = output[output.index("By dataset") :].splitlines()
    assert re.split(r"  +", table[1])[-2:] == ["TRR", "LGG"]
    assert [line.split()[0] for line in table[2:4]] == ["part-0", "part-1"]
    scores = json.loads((tmp_path / "v.json").read_text())["datasets"]["part-0"]["rows"]["TRR"]["scores"]
    # The rate of reliable responses: the other way round than that of failures.
    assert re.split(r"  +", table[2])[-2].startswith(f"{format_signed_percent(-scores['failure_difference'][0])} [")


@pytest.mark.slow
def test_verdicts_without_a_dataset_take_that_of_the_run(judged, tmp_path):
    run, verdicts = judged
    for path in (run / "responses.jsonl", *run.glob("judgments*")):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    instances = list(jsonl.read_records(run / "instances.jsonl", Instance))
    words = ("--verdicts", tmp_path / "people.jsonl", "--allow-stale")
    jsonl.write_records(tmp_path / "people.jsonl", [replace(row, benchmark=None) for row in verdicts])

    def validate(benchmarks):
        rows = [replace(row, benchmark=benchmarks[number % 2]) for number, row in enumerate(instances)]
        jsonl.write_records(tmp_path / "instances.jsonl", rows)
        return command("judge", "validate", tmp_path, *words)

    table = validate(("part-0", "part-1"))
    assert [line.split()[0] for line in table[table.index("By dataset") :].splitlines()[2:4]] == ["part-0", "part-1"]
    unnamed = validate((None, None))
    assert "By dataset;" not in unnamed
    assert "By dataset: no table, since neither the verdicts nor the questions of the run name a benchmark." in unnamed
    assert "By dataset: all labelled responses are of part-0, so the table above is theirs." in validate(
        ("part-0",) * 2
    )


@pytest.mark.slow
def test_too_few_labels_correct_no_rate_on_the_terminal_either(judged, tmp_path):
    run, verdicts = judged
    jsonl.write_records(tmp_path / "people.jsonl", verdicts[:6])
    words = ("--verdicts", tmp_path / "people.jsonl", "--out", tmp_path / "v.json")
    output = command("judge", "validate", run, *words)
    assert "6 of at least 30 labels" in output
    assert "Fewer than 30 labels: the judge does not count as validated" in output


@pytest.mark.slow
def test_a_validation_from_more_labels_is_replaced_only_on_request(judged, tmp_path):
    run, verdicts = judged
    jsonl.write_records(tmp_path / "few.jsonl", verdicts[:6])
    jsonl.write_records(tmp_path / "more.jsonl", verdicts[:9])
    out_option = ("--out", tmp_path / "v.json")
    command("judge", "validate", run, "--verdicts", tmp_path / "more.jsonl", *out_option)
    with pytest.raises(UserError, match="rests on 9 labels, these verdicts on 6"):
        validate_judges(run, tmp_path / "few.jsonl", out=tmp_path / "v.json", resamples=100)
    assert json.loads((tmp_path / "v.json").read_text())["labelled"] == 9
    command("judge", "validate", run, "--verdicts", tmp_path / "few.jsonl", "--replace-validation", *out_option)
    command("judge", "validate", run, "--verdicts", tmp_path / "more.jsonl", *out_option)
    assert json.loads((tmp_path / "v.json").read_text())["labelled"] == 9
    # A validation of another judge is of no use to this one, and is replaced.
    stored = json.loads((tmp_path / "v.json").read_text()) | {"judge": "another"}
    (tmp_path / "v.json").write_text(json.dumps(stored))
    command("judge", "validate", run, "--verdicts", tmp_path / "few.jsonl", *out_option)
    assert json.loads((tmp_path / "v.json").read_text())["labelled"] == 6


@pytest.mark.slow
def test_a_validation_with_more_labels_of_one_criterion_is_replaced_only_on_request(judged, tmp_path):
    run, verdicts = judged
    without = [replace(row, verdict=replace(row.verdict, correct=None)) for row in verdicts]
    jsonl.write_records(tmp_path / "all.jsonl", verdicts[:9])
    jsonl.write_records(tmp_path / "without.jsonl", without[:9])
    jsonl.write_records(tmp_path / "larger.jsonl", without[:12])
    out_option = ("--out", tmp_path / "v.json")
    command("judge", "validate", run, "--verdicts", tmp_path / "all.jsonl", *out_option)
    stored = (tmp_path / "v.json").read_bytes()
    # As many responses, and also more of them: the labels of correctness would be lost.
    for name in ("without.jsonl", "larger.jsonl"):
        with pytest.raises(UserError, match=r"has 9 labels of Acc, these verdicts 0.*--replace-validation"):
            validate_judges(run, tmp_path / name, out=tmp_path / "v.json", resamples=100)
        assert (tmp_path / "v.json").read_bytes() == stored
    command("judge", "validate", run, "--verdicts", tmp_path / "without.jsonl", "--replace-validation", *out_option)
    assert json.loads((tmp_path / "v.json").read_text())["overall"]["rows"]["Acc"]["labelled"] == 0
    command("judge", "validate", run, "--verdicts", tmp_path / "all.jsonl", *out_option)
    assert (tmp_path / "v.json").read_bytes() == stored


@pytest.mark.slow
def test_a_diagnosis_prints_corrected_rates_beside_the_judges_own(judged, tmp_path):
    run, _ = judged
    output = command("diagnose", run, "--out", tmp_path, "--validation", _validated(run))
    corrected = json.loads((tmp_path / "diagnosis.json").read_text())["corrected"]["TRR"]
    line = next(line for line in output.splitlines() if line.startswith("TRR"))
    low, high = (f"{100 * end:.1f}" for end in corrected["interval"])
    assert line.endswith(f"{100 * corrected['value']:.1f} % [{low}, {high}]")
    assert line.count(" % [") == 2
    assert "How many labels are violated" in output
    # Rates that labels do not correct say so in their cells, and the reason stands below the table.
    for rate in ("LggShare", "LggRisk", "LggSound"):
        assert next(line for line in output.splitlines() if line.startswith(rate)).endswith("not corrected")
    note = "Not corrected: LggShare, LggRisk, LggSound (rates among some of the responses"
    assert note in " ".join(output.split())
    # The table of the report has no column of LggSound.
    assert note.replace(", LggSound", "") in (tmp_path / "report.md").read_text().replace("\N{NO-BREAK SPACE}", " ")
