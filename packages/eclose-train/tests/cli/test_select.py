"""``eclose select`` as a user meets it, on a small model with real adapters."""

import io
import json
import sys
from itertools import islice

import pytest
from typer.testing import CliRunner

from tests.generating import recipe

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

from eclose.calls.local.transformers_model import TransformersModel
from eclose.cli.main import app
from eclose.files.jsonl import write_records
from eclose_train.cli.select import _show_progress
from eclose_world.make.families import make_world_families
from tests.calls.local import tiny

runner = CliRunner()


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    tiny.model().save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def families(tmp_path):
    path = tmp_path / "dev.jsonl"
    write_records(path, islice(make_world_families("2wiki", 5), 2))
    return path


@pytest.fixture
def run(tmp_path, weights):
    folder = tmp_path / "run"
    for step in (4, 8, 12):
        tiny.adapter(folder / f"checkpoint-{step}", seed=step)
        if step < 12:
            (folder / f"checkpoint-{step}" / "complete.json").write_text(json.dumps({"step": step}))
    recipe = {"model": str(weights), "revision": None, "demonstrations": 0, "order": "evidence_first", "seed": 42}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


def select(run, families, *more, **settings):
    few = recipe(families.parent, max_new_tokens=6, **settings)
    return runner.invoke(app, ["select", str(run), "--families", str(families), *few, *more], catch_exceptions=False)


@pytest.mark.slow
def test_a_run_is_selected_from_and_again_at_no_cost(run, families, monkeypatch):
    result = select(run, families)
    assert result.exit_code == 3, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == f"{families}: 2 received = 2 accepted + 0 rejected + 0 quarantined"
    assert lines[1].startswith("  checkpoint-12: has no complete.json")
    assert lines[3:7] == [
        "2 checkpoints on 2 families",
        "step  original  evidence  question  score  incomplete",
        "   4       0.0       0.0       0.0    0.0           6",
        "   8       0.0       0.0       0.0    0.0           6",
    ]
    assert len(lines) == 7
    assert result.stderr == (
        "eclose: no checkpoint is selected: none of 12 replies submitted an answer; "
        "12 were cut off at the limit of new tokens, so raise max_new_tokens in a recipe.\n"
    )
    assert not (run / "selected").exists()
    replies = [json.loads(line) for line in (run / "selection.replies.jsonl").read_text().splitlines()]
    assert len(replies) == 12
    assert {reply["text"] for reply in replies[:6]} != {reply["text"] for reply in replies[6:]}
    assert {reply["finish"] for reply in replies} == {"length"}

    def never(*_, **__):
        raise AssertionError("there is nothing left to ask")

    monkeypatch.setattr(TransformersModel, "load", never)
    assert select(run, families, batch_tokens=64).stdout == result.stdout


@pytest.mark.slow
def test_the_checkpoint_that_answers_best_is_kept(run, families, monkeypatch):
    """The same path with a model that answers as it should after eight updates, and not before."""
    from eclose.calls.model import FinishReason, Reply, TokenUsage

    class Model:
        name = "scripted"

        def with_adapter(self, folder):
            self.step = folder.name
            return self

        def complete_all(self, requests):
            correct_text = "1. a\nFinal answer: yes no"
            text = correct_text if self.step == "checkpoint-8" else "1. a\nFinal answer: nothing"
            return [Reply(text, FinishReason.STOP, TokenUsage(1, 1)) for _ in requests]

    loaded = []
    monkeypatch.setattr(TransformersModel, "load", lambda name, **settings: loaded.append((name, settings)) or Model())
    monkeypatch.setattr("eclose_train.training.select.match_any_answer", lambda answer, _: answer == "yes no")
    result = select(run, families, "--model", "elsewhere/tiny", batch_tokens=99)
    assert "   8     100.0     100.0     100.0  100.0           0  selected" in result.output
    ((name, settings),) = loaded
    assert (name, settings["revision"], settings["batch_tokens"]) == ("elsewhere/tiny", None, 99)


@pytest.mark.slow
def test_the_other_engine_is_told_the_rank(run, families, monkeypatch):
    from eclose.calls.local.vllm_model import VllmModel
    from eclose.errors import UserError

    engine_settings = {}

    def load(name, **settings):
        engine_settings.update(settings)
        raise UserError("stop here")

    monkeypatch.setattr(VllmModel, "load", load)
    with pytest.raises(UserError, match="stop here"):
        select(run, families, "--engine", "vllm")
    assert engine_settings == {"revision": None, "dtype": "auto", "rank": 4}


@pytest.fixture
def failed(forks, run, families, tmp_path):
    """The sentence of a selection that fails."""

    def select(run=run, *more):
        words = ["select", str(run), "--families", str(families), *more]
        output = tmp_path / "output.txt"
        output.unlink(missing_ok=True)
        code, sentence = forks.run("eclose.cli.main", words, output)
        assert code == 2
        assert "Traceback" not in sentence
        return sentence

    return select


@pytest.mark.slow
def test_families_that_cannot_be_read_are_told(failed, run, families):
    families.write_text(families.read_text() + "no family\n")
    result = select(run, families)
    assert result.exit_code == 3
    assert "1 quarantined (not JSON 1)" in result.output
    families.write_text("no family\n")
    assert "there is no family to select on (1 received" in failed()


@pytest.mark.slow
def test_mistakes_are_sentences(failed, run, tmp_path):
    assert failed(tmp_path / "nowhere").endswith("recipe.json: there is no such file. Check the path.\n")
    assert "no such model here or on the hub" in failed(run, "--model", str(tmp_path / "no-weights"))
    for step in (4, 8):
        (run / f"checkpoint-{step}" / "complete.json").unlink()
    assert "has no finished checkpoint" in failed()


def test_progress_is_for_terminals(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        with _show_progress() as (tell, count):
            tell("checkpoint-4")
            count(3, 12)
        assert bool(stream.getvalue()) == stream.isatty()


def test_the_help_explains_the_columns():
    help_text = runner.invoke(app, ["select", "--help"]).output
    assert "incomplete  replies without a submitted answer; they count as wrong" in help_text
