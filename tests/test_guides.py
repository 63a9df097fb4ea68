"""What guides show on a console is what the commands print, typed in an empty folder one after the other."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

import eclose
import eclose_train
from eclose import testing
from eclose.cli.main import app
from eclose.files import jsonl
from eclose.values.family import Family
from eclose.values.instance import Instance
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from studies.campaigns import engines
from tests.generating import questions, server
from tests.test_testing import cases, written

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(page):
    """Each command of a page with the lines shown below it."""
    for block in BLOCK.findall((ROOT / page).read_text("utf-8")):
        for part in block.split("$ ")[1:]:
            command, *lines = part.splitlines()
            yield shlex.split(command), lines


@pytest.mark.slow
@pytest.mark.parametrize("page", ["docs/get-started.md", "docs/guides/data.md"])
def test_a_console_shows_what_is_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = 0
    for (program, *arguments), lines in commands(page):
        if program == "cat":
            Path(arguments[0]).write_text("\n".join(lines) + "\n")
            continue
        printed = CliRunner().invoke(app, arguments).output.splitlines()
        if lines[-1] == "...":
            printed[len(lines) - 1 :] = ["..."]
        assert printed == lines, arguments
        ran += 1
    assert ran


@pytest.mark.slow
def test_the_lines_that_talk_to_the_model_run(tmp_path):
    page = (ROOT / "docs" / "guides" / "world.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(from openai.*?)^```$", page, re.MULTILINE | re.DOTALL)
    CliRunner().invoke(app, ["world", "make", "--questions", "1", "--out", str(tmp_path / "world")])
    server = subprocess.Popen(
        [sys.executable, "-m", "eclose.cli.main", "world", "serve"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = re.search(r"http://\S+", server.stdout.readline())[0]
        assert "http://127.0.0.1:8642/v1" in code
        code = code.replace("http://127.0.0.1:8642/v1", address)
        result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    finally:
        server.terminate()
        server.wait(timeout=10)
        server.stdout.close()
    assert result.stderr == ""
    assert "\nFinal answer: " in result.stdout


@pytest.mark.slow
def test_the_lines_that_generate_from_python_run(tmp_path, monkeypatch):
    _, code = code_blocks("docs/guides/generate.md")
    questions(tmp_path / "instances.jsonl", 2)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with server() as model:
        monkeypatch.setenv("ECLOSE_BASE_URL", model.base_url)
        exec(compile(code, "generate.md", "exec"), names)
    assert names["result"].manifest.counts.accepted == 2


@pytest.mark.slow
def test_the_lines_that_judge_in_batches_run(tmp_path, monkeypatch):
    code, _ = code_blocks("docs/guides/generate.md")
    run = written(tmp_path / "runs" / "gpt-x", cases(4))
    (run / "judgments.jsonl").unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    names = {"free": eclose.CallSettings(unpriced=True)}
    code = compile(code.replace("budget=10", "calls=free"), "generate.md", "exec")
    with ModelServerThread(build_world_handlers()) as model:
        monkeypatch.setenv("ECLOSE_BASE_URL", model.base_url)
        with pytest.raises(eclose.errors.Resumable):
            exec(code, names)
        for _ in range(9):
            with suppress(eclose.errors.Resumable):
                exec(code, names)
                break
    assert (run / "judgments.jsonl").is_file()


@pytest.mark.slow
def test_the_lines_of_the_readme_run(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    (code,) = code_blocks("README.md")
    row = {
        "user_input": "Where was the builder of the bridge born?",
        "retrieved_contexts": ["Ada Rowe built the bridge.", "Ada Rowe was born in Lund."],
        "response": "1. Ada Rowe built the bridge.\n2. She was born in Lund.\nFinal answer: Malmö",
        "reference": "Lund",
    }
    monkeypatch.chdir(tmp_path)
    with ModelServerThread(build_world_handlers()) as model:
        code = code.replace('judge="openai/gpt-5-mini", budget=10', f"judge={model.base_url!r}, calls=free")
        exec(compile(code, "README.md", "exec"), {"rows": [row], "free": eclose.CallSettings(unpriced=True)})
    assert (tmp_path / "report" / "report.html").exists()
    assert (tmp_path / "runs" / "mine" / "judgments.jsonl").exists()


def code_blocks(page):
    """The Python blocks of a page that no doctest runs."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if ">>>" not in block]


RUN_HERE = {
    "README.md": 1,
    "docs/guides/data.md": 1,
    "docs/guides/diagnose.md": 2,
    "docs/guides/engines.md": 6,  # three of them by studies/campaigns/engines.py
    "docs/guides/generate.md": 2,
    "docs/guides/keep.md": 4,  # by packages/eclose/tests/api/test_judge.py
    "docs/guides/train.md": 5,
    "docs/guides/world.md": 1,
    "docs/python.md": 1,  # by packages/eclose/tests/cli/test_engine_ray.py
}
"""Pages with Python blocks that tests run, most of them in this file, and how many."""


def test_every_python_block_is_run():
    pages = [ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    counts = {str(page.relative_to(ROOT)): len(code_blocks(page.relative_to(ROOT))) for page in pages}
    # tests/scripts/test_tutorials.py runs the tutorials.
    assert {page: count for page, count in counts.items() if count and "tutorials" not in page} == RUN_HERE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of TRL
@pytest.mark.torch
def test_the_lines_that_mount_the_loss_run():
    pytest.importorskip("peft")
    pytest.importorskip("trl")
    small = importlib.import_module("tests.training.small")
    *_, loss, trainer = code_blocks("docs/guides/train.md")
    model, tokenizer = small.small_model(), small.small_tokenizer()
    names = {"model": model, "tokenizer": tokenizer, "families": small.short_families(2)}
    exec(compile(loss, "train.md", "exec"), names)
    assert all(weight.grad is not None for weight in model.parameters() if weight.requires_grad)
    exec(compile(trainer, "train.md", "exec"), names)
    assert names["EClosureSFTTrainer"].compute_loss is eclose_train.EClosureLossMixin.compute_loss


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of Transformers
@pytest.mark.torch
def test_the_lines_that_load_an_adapter_elsewhere_run(tmp_path, monkeypatch, capsys):
    peft = pytest.importorskip("peft")
    small = importlib.import_module("tests.training.small")
    model, tokenizer = small.small_model(), small.small_tokenizer()
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    settings = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    peft.get_peft_model(model, settings).save_pretrained(tmp_path / "runs" / "first" / "adapter")
    (code,) = (block for block in code_blocks("docs/guides/train.md") if "PeftModel" in block)
    monkeypatch.chdir(tmp_path)
    names = {"MODEL": str(tmp_path / "base")}
    exec(compile(code.replace("max_new_tokens=200", "max_new_tokens=3"), "train.md", "exec"), names)
    assert names["reply"].shape[1] - names["inputs"]["input_ids"].shape[1] <= 3
    assert "Ada Rowe" in tokenizer.decode(names["inputs"]["input_ids"][0])


@pytest.mark.slow
@pytest.mark.torch
def test_the_lines_that_train_on_a_dataset_run(tmp_path, monkeypatch):
    pytest.importorskip("peft")
    pytest.importorskip("datasets")
    small = importlib.import_module("tests.training.small")
    code, *_ = code_blocks("docs/guides/train.md")
    families = small.short_families(4)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for name, part in (("families", families), ("train", families[:3]), ("development", families[3:])):
        jsonl.write_records(tmp_path / "run" / f"{name}.jsonl", part)
    words = ["families", "export", "run", "--format", "datasets", "--out", "my-dataset"]
    assert CliRunner().invoke(app, words).exit_code == 0
    small.small_model().save_pretrained("model")
    small.small_tokenizer().save_pretrained("model")
    quick = "max_steps=1, families_per_update=2, demonstrations=0, lora_rank=2, use_cpu=True, report_to='none'"
    exec(compile(code.replace("model=MODEL", f"model='model', {quick}"), "train.md", "exec"), {})
    for name, part in (("families", families[:3]), ("development", families[3:])):
        assert list(jsonl.read_records(tmp_path / "runs" / "mine" / f"{name}.jsonl", Family)) == list(part)


def test_the_lines_that_read_a_benchmark_of_ones_own_run(tmp_path, monkeypatch):
    (code,) = code_blocks("docs/guides/data.md")
    monkeypatch.chdir(tmp_path)
    for (program, *arguments), lines in commands("docs/guides/data.md"):
        if program == "cat":
            Path(arguments[0]).write_text("\n".join(lines) + "\n")
    exec(compile(code, "data.md", "exec"), {})
    (question,) = jsonl.read_records(tmp_path / "museumqa.jsonl", Instance)
    assert (question.reference_answer, question.aliases, question.benchmark) == ("Lund", ("Lund, Sweden",), "museumqa")


def test_the_lines_that_assert_run(tmp_path, monkeypatch):
    code, _ = code_blocks("docs/guides/diagnose.md")
    written(tmp_path / "runs" / "mine", cases(good=120))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code, "diagnose.md", "exec"), names)
    names["test_responses_are_reliable"]()
    testing.gate_lines.clear()


@pytest.mark.slow
def test_the_lines_that_judge_one_response_run(tmp_path, monkeypatch, capsys):
    _, code = code_blocks("docs/guides/diagnose.md")
    monkeypatch.chdir(tmp_path)
    with ModelServerThread(build_world_handlers()) as model:
        code = code.replace('judge="openai/gpt-x", budget=1', f"judge={model.base_url!r}, calls=free")
        exec(compile(code, "diagnose.md", "exec"), {"free": eclose.CallSettings(unpriced=True)})
    # The world cannot read passages about a bridge in Lund; what matters here is that the lines run to their end.
    assert capsys.readouterr().out.split()[0] in {"True", "False", "None"}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["pandas", "polars", "duckdb"])
def test_the_lines_of_an_engine_label_a_table(engine, tmp_path, monkeypatch):
    pytest.importorskip(engine)
    rows = engines.write_responses(tmp_path / "responses.parquet", 5)
    monkeypatch.chdir(tmp_path)
    with ModelServerThread(build_world_handlers()) as model:
        exec(compile(engines.point_at(engines.read_code(engine), model.base_url), "engines.md", "exec"), {})
    assert engines.check_labels(tmp_path, rows) == []


@pytest.mark.slow
@pytest.mark.torch
def test_the_lines_that_train_run(tmp_path, monkeypatch):
    pytest.importorskip("peft")
    small = importlib.import_module("tests.training.small")
    _, code, *_ = code_blocks("docs/guides/train.md")
    families = small.short_families(4)
    monkeypatch.chdir(tmp_path)
    settings = "families_per_update=8)"
    assert settings in code
    code = code.replace(settings, "families_per_update=4, num_train_epochs=1, use_cpu=True, report_to='none')")
    code = code.replace("resume_from_checkpoint=True", "resume_from_checkpoint=False")  # there is none before the first
    model, tokenizer = small.small_model(), small.small_tokenizer()
    names = {"model": model, "tokenizer": tokenizer, "families": families[:3], "held_out": families[3:]}
    exec(compile(code, "train.md", "exec"), names)
    assert names["trainer"].state.global_step == 1
