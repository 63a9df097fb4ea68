"""The table of commands: what it says of each, and what is imported to print it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

from eclose.cli import commands
from eclose.cli.commands import find_command_tables, find_commands, merge_commands
from eclose.cli.main import app, main

COMMANDS = find_commands()


@pytest.mark.parametrize("name", COMMANDS)
def test_line_of_a_command_is_the_first_sentence_of_its_help(name):
    command = typer.main.get_command(app).commands[name]
    assert command.get_short_help_str(10_000) == COMMANDS[name].help


def test_commands_of_absent_packages_are_listed_in_their_places_with_the_line_that_installs_them(monkeypatch):
    monkeypatch.setattr(commands, "find_commands", lambda: merge_commands([]))
    listing = CliRunner().invoke(app, ["--help"]).output
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in listing.partition("Commands:")[2].splitlines()[1:]}
    assert list(rows) == list(COMMANDS)
    for name, extra in {"train": "train", "label": "annotate", "world": "world"}.items():
        assert rows[name] == f"pip install 'eclose[{extra}]'"
    assert rows["gate"].startswith("Check a judged run")


def test_a_command_of_an_absent_package_prints_the_line_that_installs_it_and_exits_with_2(monkeypatch, capsys):
    monkeypatch.setattr(commands, "find_commands", lambda: merge_commands([]))
    monkeypatch.setattr(sys, "argv", ["eclose", "train", "families.jsonl"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (
        2,
        "eclose: train is not installed. Run: pip install 'eclose[train]'\n",
    )


def test_tables_are_found_through_the_entry_points_of_a_package_and_run(monkeypatch, tmp_path):
    metadata = tmp_path / "strange_commands-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: strange-commands\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[eclose.commands]\nzz-strange = strange_commands:COMMANDS\n")
    (tmp_path / "strange_commands.py").write_text(
        "from eclose.cli.command_entry import CommandEntry\n"
        "COMMANDS = {'train': CommandEntry('strange_commands:greet', 'Train.'),"
        " 'greet': CommandEntry('strange_commands:greet', 'Greet.'),"
        " 'judge': CommandEntry('strange_commands:greet', 'Not the command of this package.')}\n"
        "def greet():\n    print('hello')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(commands, "find_commands", lambda: merge_commands(find_command_tables()))
    # In the place of its name; a name that this package does not know comes last.
    assert list(commands.find_commands()) == [*COMMANDS, "greet"]
    assert commands.find_commands()["judge"] == COMMANDS["judge"]
    for name in ("train", "greet"):
        assert CliRunner().invoke(app, [name]).output == "hello\n"


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
    assert not loaded & {"pydantic", "rich", "numpy", "eclose.calls.http.providers"}


def test_unknown_command_names_the_nearest():
    result = CliRunner().invoke(app, ["jugde"])
    assert result.exit_code == 2
    assert "No such command 'jugde'. Did you mean 'judge'?" in result.output


@pytest.mark.parametrize(("group", "own"), [("judge", "--reference-free"), ("detect", "--detector")])
def test_help_of_a_group_shows_the_own_options_of_its_default_command(group, own):
    summary, whole = (CliRunner().invoke(app, [*words, "--help"]).output for words in ([group], [group, "run"]))
    assert own in summary
    for flag in ("--concurrency", "--budget", "--recipe"):
        assert flag not in summary
        assert flag in whole
