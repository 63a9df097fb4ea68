"""``eclose train`` as a user meets it: flags by name, one line of result, mistakes as sentences."""

import json
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from safetensors import safe_open
from typer.testing import CliRunner

import eclose_train
from eclose.cli.main import app
from eclose.errors import UserError
from eclose.files.jsonl import encode_json_line
from eclose_train.training import run as training_run
from eclose_train.training import trainer
from eclose_train.training.api import forecast_training
from tests.training.small import short_families, small_model, small_tokenizer

pytestmark = pytest.mark.torch

runner = CliRunner()
QUICK = {
    "--families-per-update": "2",
    "--max-steps": "1",
    "--demonstrations": "0",
    "--report-to": "none",
    "--lora-rank": "2",
    "--method": "sft",
    "--logging-steps": "1",
    "--learning-rate": "1e-3",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, and a file of two families, a repeated one and a line that is none."""
    folder = tmp_path_factory.mktemp("train")
    small_model().save_pretrained(folder / "model")
    small_tokenizer().save_pretrained(folder / "model")
    first, second = (encode_json_line(family) for family in short_families(2))
    (folder / "families.jsonl").write_bytes(b"\n".join([first, second, first, b"no JSON", first, first]) + b"\n")
    return folder


def train(place, *words):
    quick = ["--use-cpu", *(word for pair in QUICK.items() for word in pair)]
    return runner.invoke(app, ["train", str(place / "families.jsonl"), "--model", str(place / "model"), *quick, *words])


def test_a_run_says_where_it_is_and_what_was_left_out(place, tmp_path):
    out = tmp_path / "run"
    result = train(place, "--out", str(out), "--seed", "7")
    assert result.exit_code == 0, result.output
    first, *rest = result.stdout.splitlines()
    assert first.startswith(f"{out / 'adapter'}: 6 received = 2 accepted + 3 rejected (duplicate 3) + 1 quarantined")
    assert "  line 3: duplicate" in rest
    assert f"  and 1 more record: {out / 'left_out.jsonl'}" in rest
    assert rest[-1].startswith("  loss ")
    assert json.loads((out / "recipe.json").read_text())["seed"] == 7
    again = train(place, "--out", str(out), "--seed", "7")
    assert again.exit_code == 0
    assert "(done before, nothing to do)" in again.stdout
    other = train(place, "--out", str(out), "--seed", "8")
    assert isinstance(other.exception, UserError)
    assert "other settings" in str(other.exception)


def test_flags_and_recipe_are_the_same_run(place, tmp_path):
    out = tmp_path / "run"
    assert train(place, "--out", str(out)).exit_code == 0
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "use_cpu: true\nfamilies_per_update: 2\nmax_steps: 1\ndemonstrations: 0\nlora_rank: 2\nmethod: rm\n"
        f"logging_steps: 1\nlearning_rate: 1e-3\nreport_to: none\nmodel: {place / 'model'}\n"
    )
    words = ["--recipe", str(recipe), "--method", "sft", "--out", str(out)]
    result = runner.invoke(app, ["train", str(place / "families.jsonl"), *words])
    assert "(done before, nothing to do)" in result.stdout, result.exception


def test_mistakes_are_told_together(place, tmp_path):
    result = train(place, "--out", str(tmp_path / "run"), "--lerning-rate", "1", "--max-length", "long")
    assert isinstance(result.exception, UserError)
    assert "lerning_rate: no such setting; did you mean learning_rate?" in str(result.exception)
    assert "max_length = 'long'" in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_settings_before_the_families_are_a_sentence(place, tmp_path):
    out = str(tmp_path / "run")
    words = ["train", "--model", str(place / "model"), str(place / "families.jsonl"), "--out", out]
    result = runner.invoke(app, words)
    assert isinstance(result.exception, UserError)
    assert "settings come after the families" in str(result.exception)


def test_help_answers_without_loading_anything_heavy():
    loaded = "import sys, eclose.cli.main; print([m for m in ('torch', 'transformers', 'peft') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    help_result = runner.invoke(app, ["train", "--help"])
    assert help_result.exit_code == 0
    assert "--learning-rate 1e-4" in help_result.stdout


@pytest.mark.slow
def test_a_mistake_is_a_sentence_and_exit_code_two(forks, place, tmp_path):
    words = ["train", str(place / "families.jsonl"), "--model", str(place / "nowhere"), "--out", str(tmp_path / "run")]
    code, output = forks.run("eclose.cli.main", words, tmp_path / "output.txt")
    assert code == 2
    assert output.splitlines()[-1].startswith("eclose: ")
    assert "no such model here or on the hub" in output
    assert "Traceback" not in output


def test_a_dry_run_says_what_would_be_trained_and_leaves_no_trace(place, tmp_path, monkeypatch):
    """Families in and out, updates, tokens, trained parameters and folder, as the run then has them."""
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(training_run, "load_causal_model", None)
        result = train(place, "--out", str(out), "--dry-run")
    assert result.exit_code == 0, (result.output, result.exception)
    assert not out.exists()
    printed = result.stdout
    assert "  families: 6 received = 2 accepted + 3 rejected (duplicate 3) + 1 quarantined" in printed
    assert "  line 3: duplicate" in printed
    assert "  1 update of 2 families, 1 epoch\n" in printed
    assert f"  folder: {out} (new)" in printed
    assert train(place, "--out", str(out)).exit_code == 0
    with safe_open(out / "adapter" / "adapter_model.safetensors", "pt") as weights:
        trained = sum(weights.get_tensor(name).numel() for name in weights.keys())  # noqa: SIM118
    assert re.search(r"trained parameters: ([\d,]+) of", printed)[1] == f"{trained:,}"
    state = json.loads((out / "checkpoint-1" / "trainer_state.json").read_text())
    assert state["max_steps"] == 1
    assert "(done before, nothing to do)" in train(place, "--out", str(out), "--dry-run").stdout
    refused = train(place, "--out", str(out), "--dry-run", "--seed", "9")
    assert isinstance(refused.exception, UserError)
    assert "holds a finished run with other settings" in str(refused.exception)


def test_the_tokens_of_a_dry_run_are_those_of_training(place, tmp_path, monkeypatch):
    settings = {"model": str(place / "model"), "use_cpu": True, "families_per_update": 2, "demonstrations": 0}
    settings |= {"report_to": "none", "lora_rank": 2, "num_train_epochs": 1, "strategy": "tree", "backend": "sdpa"}
    counted = []
    original = trainer.EClosureTrainer._weighted_loss

    def count(self, model, forest):
        counted.append((forest.tokens, forest.plain_tokens))
        return original(self, model, forest)

    monkeypatch.setattr(trainer.EClosureTrainer, "_weighted_loss", count)
    families = short_families(3)
    forecast = forecast_training(families, out=tmp_path / "run", **settings)
    assert not counted
    eclose_train.train(families, out=tmp_path / "run", **settings)
    assert (forecast.tokens.computed, forecast.tokens.plain) == tuple(map(sum, zip(*counted, strict=True)))
    assert (forecast.updates, forecast.counts.accepted, forecast.tokens.counted) == (2, 3, 3)
    again = forecast_training(families, out=tmp_path / "run", **settings)
    assert again.finished
