"""Recipes: which value a command takes, and what is refused."""

from __future__ import annotations

import pytest
import typer
from tests.generating import recipe
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import SettingError
from eclose.judging import screen_questions

WORDS = ("screen", "questions.jsonl", "--out", "run", "--dry-run")


@pytest.fixture
def screen(monkeypatch):
    """Run ``eclose screen``; return what it would do and the result."""
    monkeypatch.delenv("ECLOSE_DEADLINE", raising=False)

    def run(*words, **environment):
        seen = {}

        def forecast(_instances, model, settings, calls, *, layout):
            seen.update(model=model.name, attempts=settings.attempts, calls=calls, layout=layout)
            raise typer.Exit

        monkeypatch.setattr(screen_questions, "forecast_screening", forecast)
        return seen, CliRunner().invoke(app, [*WORDS, *words], env=environment)

    return run


JUDGE = ("--judge", "http://127.0.0.1:1/v1/m")


def test_recipe_sets_options_and_settings_without_a_flag(screen, tmp_path):
    settings = {"judge": "openai/gpt-x", "attempts": 3, "deadline": 30, "format": "ragas", "no_price": "true"}
    seen, result = screen(*recipe(tmp_path, **settings))
    assert result.exit_code == 0, result.output
    assert (seen["model"], seen["attempts"], seen["layout"]) == ("openai/gpt-x", 3, "ragas")
    assert (seen["calls"].deadline, seen["calls"].unpriced) == (30.0, True)


def test_flag_precedes_environment_precedes_recipe_precedes_default(screen, tmp_path):
    words = [*JUDGE, *recipe(tmp_path, concurrency=3, deadline=30)]
    assert screen(*JUDGE)[0]["calls"].concurrency == 64
    assert screen(*words)[0]["calls"].concurrency == 3
    seen, _ = screen(*words, ECLOSE_CONCURRENCY="5", ECLOSE_DEADLINE="20")
    assert (seen["calls"].concurrency, seen["calls"].deadline) == (5, 20.0)
    assert screen(*words, "--concurrency", "7", ECLOSE_CONCURRENCY="5")[0]["calls"].concurrency == 7


def test_setting_of_a_recipe_is_no_flag_and_not_in_the_help(screen):
    _, result = screen(*JUDGE, "--deadline", "3")
    assert result.exit_code == 2
    assert "No such option: --deadline" in result.output
    assert "deadline" not in CliRunner().invoke(app, ["screen", "--help"]).output


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
