"""A test of one's own that holds responses to be reliable: it fails as the gate does, and says where to look."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eclose import testing
from eclose.errors import SettingError, UserError
from eclose.files import jsonl
from eclose.testing import assert_reliable
from eclose.values.judgment import NO_REFERENCE_REASON, Criterion
from eclose.values.response import Response, Trace
from tests.diagnosis.test_diagnose import FAILS, case


@pytest.fixture(autouse=True)
def _forgotten():
    """What these tests make the function say is not to be told of this run."""
    yield
    testing.gate_lines.clear()


def cases(good=0, **bad):
    """Reliable responses and others, each to a question of its own."""
    judged_cases = [case(number=number) for number in range(good)]
    for name, count in bad.items():
        judged_cases += [case(number=len(judged_cases) + n, **{name: False}) for n in range(count)]
    return [
        replace(
            judged_case,
            instance=replace(judged_case.instance, id=f"i{n}"),
            response=replace(judged_case.response, instance_id=f"i{n}"),
        )
        for n, judged_case in enumerate(judged_cases)
    ]


def unjudged(one, reason):
    return replace(one, judgment=replace(one.judgment, closed=None, unjudged={Criterion.CLOSURE: reason}))


def written(run, made):
    jsonl.write_records(run / "instances.jsonl", (judged_case.instance for judged_case in made))
    jsonl.write_records(run / "responses.jsonl", (judged_case.response for judged_case in made))
    jsonl.write_records(run / "judgments.jsonl", (judged_case.judgment for judged_case in made))
    return run


def test_reliable_responses_pass_and_are_diagnosed():
    diagnosis = assert_reliable(cases(950, closed=50), min_trr=0.9, max_lgg=0.1, max_unjudged=0.0)
    assert diagnosis.overall.responses == 1_000
    (line,) = testing.gate_lines
    assert line.startswith("cases: passed, 1,000 responses to 1,000 questions, TRR 95.0 % [9")


def test_others_fail_with_the_reason_and_the_responses_to_look_at():
    judged_cases = cases(80, closed=18, aligned=2)
    worse = replace(
        judged_cases[90], judgment=replace(judged_cases[90].judgment, aligned=False, complete=False, correct=False)
    )
    judged_cases[90] = worse
    with pytest.raises(AssertionError) as failed:
        assert_reliable(judged_cases, min_trr=0.9, max_lgg=0.5, worst=3)
    first, reason, look, *responses = str(failed.value).splitlines()
    assert first == "the cases are not reliable enough, 100 responses to 100 questions:"
    assert reason == "  failed: TRR at least 90.0 %: 80.0 % [70.8, 87.3], n = 100, the judge's own rate."
    assert look == "Look at these first, of 20:"
    assert len(responses) == 3
    # Most is against the one in which most fails.
    assert responses[0] == f"  {worse.response.id}: The reasoning pursues something other than the question."
    assert "failed, 100 responses" in testing.gate_lines[-1]


@pytest.mark.parametrize(
    ("limit", "bad", "other"),
    [
        ({"min_accuracy": 0.9}, "correct", "closed"),
        ({"max_lgg": 0.1}, "closed", "correct"),
    ],
)
def test_only_what_speaks_against_a_limit_is_named(limit, bad, other):
    judged_cases = cases(60, **{bad: 20, other: 20})
    with pytest.raises(AssertionError) as failed:
        assert_reliable(judged_cases, **limit, worst=100)
    named = {line.split(":")[0].strip() for line in str(failed.value).splitlines()[3:]}
    assert named == {judged_case.response.id for judged_case in judged_cases[60:80]}


def test_what_was_not_judged_is_named_with_its_reason():
    judged_cases = [*cases(90), *(unjudged(case, "refusal") for case in cases(100)[90:])]
    with pytest.raises(AssertionError, match=r"C without a label at most 5.0 %: 10 of 100") as failed:
        assert_reliable(judged_cases, max_unjudged=0.05, worst=1)
    assert str(failed.value).endswith("Not everything was judged. Without a label: C refusal.")
    with pytest.raises(AssertionError, match="whatever the 10 responses without a label are"):
        assert_reliable(judged_cases, min_trr=0.95)


def test_what_nobody_wanted_judged_is_not_named():
    judged_cases = [*cases(90), *(unjudged(case, NO_REFERENCE_REASON) for case in cases(100)[90:])]
    assert_reliable(judged_cases, max_unjudged=0.0)


def test_a_folder_is_read_and_named(tmp_path):
    judged_cases = cases(100)
    judged_cases[80:] = [
        replace(judged_case, judgment=replace(judged_case.judgment, steps=(FAILS,)))
        for judged_case in judged_cases[80:]
    ]
    run = written(tmp_path, judged_cases)
    assert assert_reliable(str(run), min_lsr=0.6).overall.responses == 100
    with pytest.raises(AssertionError) as failed:
        assert_reliable(run, min_lsr=0.9)
    assert str(failed.value).startswith(f"{run} is not reliable enough")
    assert str(failed.value).endswith(f"`eclose diagnose {run}` shows all of them.")


def test_responses_without_a_judgment_are_not_overlooked(tmp_path):
    judged_cases = cases(90)
    run = written(tmp_path, judged_cases)
    more = [Response(f"more{n}", judged_cases[0].instance.id, Trace.of("Yes."), "yes") for n in range(10)]
    jsonl.write_records(run / "responses.jsonl", [*(judged_case.response for judged_case in judged_cases), *more])
    assert_reliable(run, max_unjudged=0.1)
    with pytest.raises(AssertionError, match=r"10 of 100 responses, such as more0 \(it was not"):
        assert_reliable(run, max_unjudged=0.09)
    with pytest.raises(AssertionError, match=r"cannot tell whether.*\n.*whatever the 10 responses without a label"):
        assert_reliable(run, min_trr=0.9)


@pytest.mark.slow
def test_too_few_responses_fail_unless_they_may_pass():
    judged_cases = cases(19, closed=1)
    with pytest.raises(AssertionError) as failed:
        assert_reliable(judged_cases, min_trr=0.9)
    first, reason, *_ = str(failed.value).splitlines()
    assert first == "cannot tell whether the cases are reliable enough, 20 responses to 20 questions:"
    assert reason.endswith("About 150 responses would decide it if the rate stays as it is.")
    assert assert_reliable(judged_cases, min_trr=0.9, undecided="pass").overall.responses == 20
    assert [line.split(",")[0] for line in testing.gate_lines[-2:]] == ["cases: cannot tell"] * 2
    with pytest.raises(AssertionError, match="not reliable enough"):
        assert_reliable(cases(50, closed=50), min_trr=0.9, undecided="pass")


@pytest.mark.slow
def test_a_run_is_held_against_a_base_run(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "base").mkdir()
    run = written(tmp_path / "run", cases(300, closed=100))
    base = written(tmp_path / "base", cases(390, closed=10))
    with pytest.raises(AssertionError, match=r"failed: TRR at most 5.0 points below .*base: −22.5 points \["):
        assert_reliable(run, against=base, max_trr_drop=0.05)
    assert assert_reliable(base, against=run, max_trr_drop=0.0, max_lgg_rise=0.0).overall.responses == 400
    with pytest.raises(SettingError, match="--against"):
        assert_reliable(run, max_trr_drop=0.05)


def test_limits_that_hold_nothing_and_runs_that_are_none_are_refused(tmp_path):
    with pytest.raises(SettingError, match="lets everything pass"):
        assert_reliable(cases(3))
    with pytest.raises(UserError):
        assert_reliable(tmp_path, min_trr=0.5)
    with pytest.raises(UserError, match="no judged response"):
        assert_reliable([], min_trr=0.5)
