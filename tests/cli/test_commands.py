"""The table of commands: what it says of each, and what is imported to print it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

from eclose.cli.commands import COMMANDS
from eclose.cli.main import app


@pytest.mark.parametrize("name", COMMANDS)
def test_line_of_a_command_is_the_first_sentence_of_its_help(name):
    command = typer.main.get_command(app).commands[name]
    assert command.get_short_help_str(10_000) == COMMANDS[name].help


def loaded_modules(words):
    program = (
        f"import sys\nfrom eclose.cli.main import app\ntry: app({words!r})\nfinally: print(*sys.modules, sep='\\n')"
    )
    return set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["gate", "--help"]])
def test_help_imports_no_other_command(words):
    targets = {name: entry.target.partition(":")[0] for name, entry in COMMANDS.items()}
    loaded = loaded_modules(words)
    assert [name for name, module in targets.items() if module in loaded] == words[:-1]
    assert not loaded & {"pydantic", "rich", "numpy", "eclose.models.openai.providers"}


def test_unknown_command_names_the_nearest():
    result = CliRunner().invoke(app, ["jugde"])
    assert result.exit_code == 2
    assert "No such command 'jugde'. Did you mean 'judge'?" in result.output


@pytest.mark.parametrize(("group", "own"), [("judge", "--reference-free"), ("detect", "--detector")])
def test_help_of_a_group_shows_the_own_options_of_its_default_command(group, own):
    shown, whole = (CliRunner().invoke(app, [*words, "--help"]).output for words in ([group], [group, "run"]))
    assert own in shown
    for flag in ("--concurrency", "--budget", "--recipe"):
        assert flag not in shown
        assert flag in whole
