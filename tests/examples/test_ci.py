"""The workflow that users copy is a workflow, its commands are ours as they are now, and its test does what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main
import yaml

from eclose.cli.main import app
from tests.test_testing import cases, written

pytest_plugins = ["pytester"]
FOLDER = Path(__file__).parents[2] / "examples" / "ci"
WORKFLOW = yaml.safe_load((FOLDER / "reliability.yml").read_text("utf-8"))
(JOB,) = WORKFLOW["jobs"].values()
COMMANDS = [
    line.strip()
    for step in JOB["steps"]
    for line in step.get("run", "").splitlines()
    if line.strip().startswith("eclose ")
]


def parsed(words):
    """The command's name and its settings, read as the program reads them; nothing is run."""
    command, name = typer.main.get_command(app), "eclose"
    context = command.make_context(name, list(words))
    while hasattr(command, "resolve_command"):
        arguments = [*getattr(context, "_protected_args", ()), *context.args]
        name, command, words = command.resolve_command(context, arguments)
        context = command.make_context(name, list(words), parent=context)
    return name, context.params


def test_it_is_a_workflow():
    # YAML 1.1 reads the key `on` as a truth value; GitHub does not.
    assert {"name", True, "permissions", "jobs"} <= WORKFLOW.keys()
    assert set(WORKFLOW[True]) == {"pull_request", "push", "workflow_dispatch"}
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert all(("uses" in step) != ("run" in step) for step in JOB["steps"])


def test_actions_of_others_are_pinned_to_a_commit_with_the_version_beside_it():
    """YAML drops comments, so the lines are read as text."""
    lines = [line for line in (FOLDER / "reliability.yml").read_text("utf-8").splitlines() if "uses: " in line]
    assert len(lines) == sum("uses" in step for step in JOB["steps"]) >= 4
    for line in lines:
        assert re.fullmatch(r" +(- )?uses: actions/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    # One hash for each action and version.
    pins = {re.sub(r"/(restore|save)@", "@", line.split("uses: ")[1]) for line in lines}
    assert len(pins) == len({pin.partition("@")[0] for pin in pins})
    checkout = next(step for step in JOB["steps"] if step.get("uses", "").startswith("actions/checkout@"))
    assert checkout["with"]["persist-credentials"] is False


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parents[2].glob(".github/workflows/*.yml")), ids=lambda path: path.name
)
def test_our_own_workflows_pin_actions_too(path):
    lines = [line for line in path.read_text("utf-8").splitlines() if "uses: " in line]
    assert lines
    for line in lines:
        assert re.fullmatch(r" +(- )?uses: [\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


@pytest.mark.slow
def test_every_command_is_one_of_ours(monkeypatch):
    monkeypatch.setenv("ECLOSE_JUDGE", "openai/gpt-x")
    invocations = [parsed(shlex.split(command)[1:]) for command in COMMANDS]
    assert [name for name, _ in invocations] == ["run", "diagnose", "gate"]
    judge, gate = invocations[0][1], invocations[2][1]
    assert judge["judge_model"] == "openai/gpt-x"
    # What one writes the next one reads.
    runs = {Path(str(where)) for where in (judge["out"], gate["run"])}
    assert runs == {Path("run")}
    assert gate["min_trr"] == 0.85
    assert "ECLOSE_JUDGE" in JOB["env"]


def test_a_command_that_is_none_of_ours_would_be_noticed():
    with pytest.raises(Exception, match="No such option"):
        parsed(["gate", "run", "--min-truth", "0.85"])


def test_only_the_step_that_judges_sees_the_key():
    seeing = [step["name"] for step in JOB["steps"] if "secrets." in str(step)]
    assert seeing == ["Judge"]
    assert "secrets." not in str({name: value for name, value in JOB.items() if name != "steps"})
    assert "head.repo.full_name == github.repository" in JOB["if"]


def test_the_report_is_kept_when_the_gate_fails():
    names = [step.get("name") for step in JOB["steps"]]
    upload = JOB["steps"][-1]
    assert names.index("Diagnose") < names.index("Gate") < len(names) - 1
    assert upload["uses"].startswith("actions/upload-artifact@")
    assert upload["if"] == "always()"
    assert "run/report/" in upload["with"]["path"]


@pytest.mark.slow
@pytest.mark.parametrize(("bad", "outcome"), [(0, "passed"), (40, "failed")])
def test_the_test_beside_it_passes_and_fails(pytester, tmp_path, monkeypatch, bad, outcome):
    run = tmp_path / "judged"
    run.mkdir()
    monkeypatch.setenv("RUN", str(written(run, cases(100, closed=bad))))
    pytester.makepyfile(test_reliability=(FOLDER / "test_reliability.py").read_text("utf-8"))
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(**{outcome: 1})
