"""The packaged action: its script does what it says, prints no secret, and its inputs are values and never code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.report.test_gate_comment import written
from tests.report.test_overview import asked

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parents[2] / ".github" / "actions" / "reliability"
ACTION = yaml.safe_load((FOLDER / "action.yml").read_text("utf-8"))
SECRET = "sk-secret-0123456789"


def test_inputs_reach_the_script_through_the_environment_alone():
    (step,) = ACTION["runs"]["steps"]
    assert "uses" not in step, "an action inside would have to be pinned"
    assert "${{" not in step["run"]
    named = set(re.findall(r"inputs\.([\w-]+)", " ".join(step["env"].values())))
    assert named == set(ACTION["inputs"])
    script = (FOLDER / "run.sh").read_text("utf-8")
    assert "set -x" not in script
    assert {name for name in step["env"] if name.startswith("INPUT_")} == set(re.findall(r"INPUT_[A-Z_]+", script)) - {
        "INPUT_"
    }


@pytest.fixture
def workspace(tmp_path):
    """A judged run, and the commands that the script calls."""
    written(tmp_path / "run", [asked(number=number, closed=number % 3 > 0) for number in range(60)])
    programs = tmp_path / "bin"
    programs.mkdir()
    commands = {
        "eclose": f'exec {sys.executable} -c "from eclose.cli.main import main; main()" "$@"',
        "gh": f'echo "$GH_TOKEN" > {tmp_path}/token; echo "$@" >> {tmp_path}/asked',
    }
    for name, line in commands.items():
        (programs / name).write_text(f"#!/bin/bash\n{line}\n")
        (programs / name).chmod(0o755)
    return tmp_path


def run_action(workspace, **inputs):
    environment = {
        "PATH": f"{workspace / 'bin'}:{os.environ['PATH']}", "HOME": str(workspace),
        "GITHUB_OUTPUT": str(workspace / "output"), "GITHUB_STEP_SUMMARY": str(workspace / "summary"),
        "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "o/r", "GITHUB_RUN_ID": "7",
        "INPUT_RUN": "run", "INPUT_LIMITS": "max-lgg 0.05\nmax-unjudged 0.1\n", "INPUT_GITHUB_TOKEN": SECRET,
        "INPUT_API_KEY": SECRET, "PULL_REQUEST": "12", **inputs,
    }  # fmt: skip
    return subprocess.run(
        [FOLDER / "run.sh"], cwd=workspace, env=environment, capture_output=True, text=True, check=False
    )


def test_a_broken_limit_fails_and_comments(workspace):
    result = run_action(workspace)
    assert result.returncode == 100, result.stderr
    assert "outcome=failed" in (workspace / "output").read_text()
    assert "### Reliability: ❌ failed" in (workspace / "summary").read_text("utf-8")
    assert "https://github.com/o/r/actions/runs/7" in (workspace / "summary").read_text("utf-8")
    assert "repos/o/r/issues/12/comments --field body=@run/report/comment.md" in (workspace / "asked").read_text()
    assert (workspace / "token").read_text().strip() == SECRET
    assert SECRET not in result.stdout + result.stderr + (workspace / "asked").read_text()


@pytest.mark.parametrize(
    "limits",
    [
        "max-lgg 0.05; touch hacked",
        "$(touch hacked) 1",
        "max-lgg `touch hacked`",
        "--seed 1",
        "max-lgg 0.05 --seed 1",
    ],
)
def test_limits_are_values_and_not_code(workspace, limits):
    result = run_action(workspace, INPUT_LIMITS=limits)
    assert result.returncode == 2
    assert "limits: write one a line" in result.stderr
    assert not (workspace / "hacked").exists()


def test_a_variable_of_the_key_cannot_be_any_variable(workspace):
    result = run_action(workspace, INPUT_RESPONSES="r.jsonl", INPUT_JUDGE="m", INPUT_API_KEY_VARIABLE="PATH")
    assert result.returncode == 2
    assert "api-key-variable" in result.stderr


def test_inputs_on_reading_responses_become_options_of_judge(workspace):
    command = workspace / "bin" / "eclose"
    command.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" > {workspace}/words\nexit 9\n')
    reading = {
        "INPUT_INSTANCES": "my questions.jsonl",
        "INPUT_FORMAT": "ragas",
        "INPUT_TRACE": "prose",
        "INPUT_MAP": "question=input.text\ndocuments=hits[*].text\n",
    }
    judging = {"INPUT_RESPONSES": "r.jsonl", "INPUT_JUDGE": "m", "INPUT_BUDGET": "5"}
    assert run_action(workspace, **judging, **reading).returncode == 9
    words = (workspace / "words").read_text().splitlines()
    assert words[:7] == [
        "judge",
        "r.jsonl",
        "--instances=my questions.jsonl",
        "--format=ragas",
        "--trace=prose",
        "--map=question=input.text",
        "--map=documents=hits[*].text",
    ]
    # Without these inputs the command line is as short as before.
    run_action(workspace, **judging)
    assert (workspace / "words").read_text().splitlines()[:3] == ["judge", "r.jsonl", "--judge"]
