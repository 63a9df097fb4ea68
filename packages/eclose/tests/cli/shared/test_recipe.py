"""Recipes: which value a command takes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.cli.shared.recipe import RecipeKey
from eclose.detectors import calibrate as calibration
from eclose.errors import SettingError
from eclose.judging import screen as screen_questions
from tests.generating import recipe

WORDS = ("screen", "questions.jsonl", "--out", "run", "--dry-run")


@pytest.fixture
def screen(monkeypatch):
    """Run ``eclose screen``; return what it would do and the result."""
    monkeypatch.delenv("ECLOSE_DEADLINE", raising=False)

    def run(*words, **environment):
        arguments = {}

        def forecast(_instances, model, settings, calls, *, imported):
            arguments.update(model=model.name, attempts=settings.attempts, calls=calls, imported=imported)
            raise typer.Exit

        monkeypatch.setattr(screen_questions, "forecast_screening", forecast)
        return arguments, CliRunner().invoke(app, [*WORDS, *words], env=environment)

    return run


JUDGE = ("--judge", "http://127.0.0.1:1/v1/m")


def test_recipe_sets_options_and_settings_without_a_flag(screen, tmp_path):
    settings = {"judge": "openai/gpt-x", "attempts": 3, "deadline": 30, "format": "ragas", "no_price": "true"}
    arguments, result = screen(*recipe(tmp_path, **settings))
    assert result.exit_code == 0, result.output
    assert (arguments["model"], arguments["attempts"], arguments["imported"].format) == ("openai/gpt-x", 3, "ragas")
    assert (arguments["calls"].deadline, arguments["calls"].unpriced) == (30.0, True)


def test_flag_precedes_environment_precedes_recipe_precedes_default(screen, tmp_path):
    words = [*JUDGE, *recipe(tmp_path, concurrency=3, deadline=30)]
    assert screen(*JUDGE)[0]["calls"].concurrency == 64
    assert screen(*words)[0]["calls"].concurrency == 3
    arguments, _ = screen(*words, ECLOSE_CONCURRENCY="5", ECLOSE_DEADLINE="20")
    assert (arguments["calls"].concurrency, arguments["calls"].deadline) == (5, 20.0)
    assert screen(*words, "--concurrency", "7", ECLOSE_CONCURRENCY="5")[0]["calls"].concurrency == 7


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["screen", "q.jsonl", "--deadline", "3"], "deadline: 3"),
        (["construct", "q.jsonl", "--no-reverify"], "reverify: false"),
        (["judge", "run", "--joint"], "joint: true"),
        (["judge", "run", "--judge", "m", "--model=x"], "model: x"),
        (["detect", "run", "--window", "3", "1"], "window: [3, 1]"),
        (["detect", "calibrate", "run", "--head", "support", "--head", "closure"], "head: [support, closure]"),
    ],
)
def test_flag_of_a_setting_of_recipes_is_refused_with_the_line_to_write(words, setting):
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, SettingError)
    assert f"is a setting of recipes. Write `{setting}` to a file and pass --recipe FILE.yaml." in str(result.exception)


def list_leaf_commands(command, words=()):
    """Yield every command that has none below it, with the words that call it."""
    children = getattr(command, "commands", {})
    if not children:
        yield words, command
    for name, child in children.items():
        yield from list_leaf_commands(child, (*words, name))


@pytest.mark.slow
def test_help_and_guide_name_every_setting_of_recipes():
    guide = (Path(__file__).parents[5] / "docs" / "recipes.md").read_text("utf-8")
    keys = {
        " ".join(words): {parameter.opts[0] for parameter in command.params if isinstance(parameter, RecipeKey)}
        for words, command in list_leaf_commands(typer.main.get_command(app))
    }
    assert len(keys["judge run"]) > 20
    for words, names in keys.items():
        help_text = " ".join(CliRunner().invoke(app, [*words.split(), "--help"]).output.split())
        assert all(name in help_text for name in names), words
        assert ("--recipe" in help_text) is (bool(names) or words == "train"), words
        assert [name for name in names if f"`{name}`" not in guide] == [], words


def test_one_value_of_a_repeatable_option_needs_no_list(monkeypatch, tmp_path):
    recorded_heads = []
    monkeypatch.setattr(
        calibration, "calibrate_run", lambda *_, settings, **__: recorded_heads.append(settings.heads) or {}
    )
    for heads in ("support", ["support", "closure"]):
        assert CliRunner().invoke(app, ["detect", "calibrate", "run", *recipe(tmp_path, head=heads)]).exit_code == 0
    assert recorded_heads == [("support",), ("support", "closure")]


@pytest.mark.parametrize("name", ["dead_line", "recipe", "instances", "help"])
def test_unknown_name_in_a_recipe_is_refused(screen, tmp_path, name):
    _, result = screen(*JUDGE, *recipe(tmp_path, **{name: 3}))
    assert isinstance(result.exception, SettingError)
    assert f"recipe.yaml: {name}: no such setting" in str(result.exception)


@pytest.mark.parametrize(
    ("name", "value"), [("deadline", 0), ("deadline", "soon"), ("attempts", 0), ("concurrency", 0)]
)
def test_wrong_value_in_a_recipe_is_named(screen, tmp_path, name, value):
    _, result = screen(*JUDGE, *recipe(tmp_path, **{name: value}))
    assert result.exit_code == 2
    assert name in result.output
