"""``eclose switch`` as a user meets it: a tiny random model, adapters on it, families of the world."""

import json
import re
import shutil
from itertools import product
from pathlib import Path
from statistics import mean

import pytest
from typer.testing import CliRunner

from tests.generating import recipe

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

from eclose.cli.main import app
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import read_records
from eclose_train.families.comparisons import Edge
from eclose_train.training.api import SwitchSettings, _Systems, require_torch
from eclose_train.training.switch_test import FamilySwitchScores
from tests.tiny_models import model, save_adapter, tokenizer

pytestmark = pytest.mark.torch

runner = CliRunner()


def run(*arguments):
    result = runner.invoke(app, [*map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A model, two adapters, three families; the prompt without demonstrations, to be quick."""
    folder = tmp_path_factory.mktemp("switch")
    model().save_pretrained(folder / "tiny")
    tokenizer().save_pretrained(folder / "tiny")
    for number in (1, 2):
        save_adapter(folder / f"run{number}" / "adapter", seed=number)
        recipe = {"model": str(folder / "tiny"), "demonstrations": 0, "order": "evidence_first", "method": "sft"}
        (folder / f"run{number}" / "recipe.json").write_text(json.dumps(recipe))
    for profile, count in (("2wiki", 2), ("hotpot", 1)):
        run("world", "make", "--families", count, "--profile", profile, "--out", folder / profile)
    both = [(folder / profile / "families.jsonl").read_text() for profile in ("2wiki", "hotpot")]
    (folder / "families.jsonl").write_text("".join(both))
    return folder


def backbone(home, *more, families="families.jsonl"):
    return run("switch", home / families, "--model", home / "tiny", "--demonstrations", 0, *more)


def test_tables_counts_and_done_before(home, tmp_path):
    out = tmp_path / "switches.jsonl"
    result = backbone(home, "--out", out)
    assert "3 received = 3 accepted + 0 rejected + 0 quarantined" in result.output
    lines = [line.split() for line in result.output.splitlines() if line.startswith(("world-", "all"))]
    assert [line[:2] for line in lines] == [
        [name, edge] for name in ("world-2wiki", "world-hotpot", "all") for edge in "STC"
    ]
    rows = list(read_records(out, FamilySwitchScores))
    assert [row.benchmark for row in rows] == ["world-2wiki", "world-2wiki", "world-hotpot"]
    assert [len(rows[0].scores), len(rows[0].margins)] == [12, 6]
    before = out.stat().st_mtime_ns
    again = backbone(home, "--out", out)
    assert "(done before, nothing to do)" in again.output
    # The second run reads what the first has written, and shows the same.
    assert again.stdout.splitlines()[1:] == result.stdout.splitlines()[1:]
    assert out.stat().st_mtime_ns == before
    with pytest.raises(UserError, match="other settings"):
        backbone(home, "--out", out, *recipe(tmp_path, order="question_first"))


def test_adapters_are_compared_on_one_backbone(home, tmp_path):
    adapters = [home / f"run{number}" / "adapter" for number in (1, 2)]
    out = tmp_path / "all.jsonl"
    result = run(
        "switch",
        home / "families.jsonl",
        "--adapter",
        adapters[0],
        "--adapter",
        adapters[1],
        "--backbone",
        "--out",
        out,
    )
    assert "9 received = 9 accepted" in result.output
    assert "mean over 2 datasets of equal weight; gain over the first row" in result.output
    table = result.output.split("gain over the first row")[1].splitlines()[2:5]
    assert [line.split()[0] for line in table] == ["backbone", *map(str, adapters)]
    assert re.search(r"backbone +- +- +\d+\.\d +- +-", table[0])
    assert re.search(r"adapter +sft +42 +\d+\.\d +[+-]\d+\.\d", table[1])
    together = {}
    for row in read_records(out, FamilySwitchScores):
        together.setdefault(row.system, []).append(row.margins)
    assert together["backbone"] != together[str(adapters[0])] != together[str(adapters[1])]
    # What one adapter leaves behind must not reach the next: each alone says the same.
    # Rows say where they come from, so that scoring runs can be joined: the recipes name no seed, which means 42.
    sources = {(row.system, row.model, row.method, row.seed) for row in read_records(out, FamilySwitchScores)}
    assert sources == {
        ("backbone", "tiny", None, None),
        *((str(adapter), "tiny", "sft", 42) for adapter in adapters),
    }
    head = result.output.split("gain over the first row")[1].splitlines()[1]
    assert head.split()[:3] == ["system", "method", "seed"]
    assert table[1].split()[:3] == [str(adapters[0]), "sft", "42"]
    alone = tmp_path / "alone.jsonl"
    run("switch", home / "families.jsonl", "--adapter", adapters[1], "--out", alone)
    assert [row.margins for row in read_records(alone, FamilySwitchScores)] == together[str(adapters[1])]


@pytest.fixture(scope="module")
def grid(home, tmp_path_factory):
    """Two methods on two backbones with two seeds: eight adapters."""
    folder = tmp_path_factory.mktemp("grid")
    shutil.copytree(home / "tiny", folder / "other")
    adapters = []
    for number, (method, weights, seed) in enumerate(
        product(("sft", "e_closure"), (home / "tiny", folder / "other"), (42, 43)), start=1
    ):
        adapter = save_adapter(folder / f"run{number}" / "adapter", seed=number)
        recipe = {"model": str(weights), "demonstrations": 0, "order": "evidence_first", "method": method, "seed": seed}
        (folder / f"run{number}" / "recipe.json").write_text(json.dumps(recipe))
        adapters.append(adapter)
    return adapters


@pytest.mark.slow
def test_seeds_and_backbones_are_pooled(home, grid, tmp_path):
    words = [word for adapter in grid for word in ("--adapter", adapter)]
    out = tmp_path / "switches.jsonl"
    result = run("switch", home / "families.jsonl", *words, "--backbone", "--out", out)
    assert "30 received = 30 accepted" in result.output
    assert "by method over 2 backbones, 2 seeds, 2 datasets" in result.output
    table = result.output.split("Switch rates by method")[1].splitlines()[2:5]
    assert [line.split()[0] for line in table] == ["backbone", "sft", "e_closure"]
    rows = list(read_records(out, FamilySwitchScores))
    assert {(row.system, row.model) for row in rows if row.method is None} == {
        ("backbone tiny", "tiny"),
        ("backbone other", "other"),
    }
    document = json.loads(run("switch", home / "families.jsonl", *words, "--backbone", "--out", out, "--json").stdout)
    pooled = document["pooled"]
    assert (pooled["backbones"], pooled["seeds"]) == (["tiny", "other"], [42, 43])
    # Every setting has the same weight: 2 families of one dataset and 1 of the other on each backbone.
    means = [
        mean(
            mean(row.switched(edge) for row in rows if key(row) == cell)
            for cell in {key(row) for row in rows if row.method == "sft"}
        )
        for edge in Edge
    ]
    (method,) = (method for method in pooled["methods"] if method["method"] == "sft")
    assert [method["edges"][edge.value]["rate"] for edge in Edge] == pytest.approx(means)
    missing = run("switch", home / "families.jsonl", *words[:-2])
    assert "Seeds and backbones are not pooled: a paired comparison needs" in missing.output


def key(row):
    return row.method, row.model, row.seed, row.benchmark


def test_json(home):
    document = json.loads(backbone(home, "--json").stdout)
    assert document["counts"] == {"received": 3, "accepted": 3, "rejected": {}, "quarantined": {}, "repaired": {}}
    assert [group["benchmark"] for group in document["groups"]] == ["world-2wiki", "world-hotpot", None]
    assert [(group["model"], group["method"], group["seed"]) for group in document["groups"]] == [
        ("tiny", None, None)
    ] * 3
    support = document["groups"][2]["edges"]["S"]
    assert set(support) == {"O", "CF", "SW", "margins"}
    assert support["SW"]["n"] == 3
    assert document["contrasts"][0]["edges"]["S"]["gain"] is None
    assert document["settings"]["demonstrations"] == 0


def test_what_cannot_be_used_is_counted(home, tmp_path):
    lines = (home / "families.jsonl").read_text().splitlines()
    longer = json.loads(lines[1])
    for view in (
        longer["source"],
        longer["gold"],
        longer["question_edit"]["view"],
        *[e["view"] for e in longer["evidence_edits"]],
    ):
        view["evidence"].append({"id": "99", "title": "More", "text": "and on " * 3_000})
    mine = tmp_path / "families.jsonl"
    mine.write_text("\n".join([lines[0], json.dumps(longer), '{"id": "x"}', lines[0]]) + "\n")
    out = tmp_path / "switches.jsonl"
    settings = ("--model", home / "tiny", "--demonstrations", 0, *recipe(tmp_path, max_length=3_000))
    result = run("switch", mine, *settings, "--out", out)
    assert result.exit_code == 3
    assert (
        "4 received = 1 accepted + 2 rejected (duplicate 1, longer than max_length 1) + 1 quarantined" in result.output
    )
    assert "line 3" in Path(f"{out}.quarantined.jsonl").read_text()
    # Without a file to write to, the counts and the exit code are the same.
    unwritten = run("switch", mine, *settings)
    assert unwritten.exit_code == 3
    assert "4 received = 1 accepted" in unwritten.output
    assert "--out FILE keeps the records that could not be read" in unwritten.output


def test_nothing_usable_is_no_table(home, tmp_path):
    mine = tmp_path / "families.jsonl"
    mine.write_text('{"id": "x"}\n')
    result = run("switch", mine, "--model", home / "tiny", "--demonstrations", 0)
    assert (result.exit_code, "Switch rates" in result.output) == (3, False)
    mine.write_text("")
    with pytest.raises(UserError, match="holds no family"):
        run("switch", mine, "--model", home / "tiny", "--demonstrations", 0)


@pytest.fixture
def untouched(monkeypatch):
    """Refusals come before any weights are loaded."""
    monkeypatch.setattr("eclose_train.training.api.require_torch", lambda _: pytest.fail("weights would be loaded"))


@pytest.mark.usefixtures("untouched")
def test_an_adapter_is_asked_as_it_was_trained(home, tmp_path):
    adapter, families = home / "run1" / "adapter", home / "families.jsonl"
    systems = _Systems.of(SwitchSettings(adapters=(adapter,)))
    (backbone_,) = systems.backbones
    assert (backbone_.model, systems.prompt.demonstrations, systems.untuned) == (str(home / "tiny"), 0, False)
    with pytest.raises(SettingError, match=r"demonstrations: the command says 1, the recipe of .*adapter says 0"):
        run("switch", families, "--adapter", adapter, "--demonstrations", 1)
    with pytest.raises(SettingError, match="order: the command says question_first, the recipe of"):
        run("switch", families, "--adapter", adapter, *recipe(tmp_path, order="question_first"))
    with pytest.raises(SettingError, match="model: the command says other/model"):
        run("switch", families, "--adapter", adapter, "--model", "other/model")
    # The same model in another place is the same model.
    elsewhere = SwitchSettings(model="/elsewhere/tiny", adapters=(adapter,), demonstrations=0)
    assert [backbone_.model for backbone_ in _Systems.of(elsewhere).backbones] == ["/elsewhere/tiny"]
    other = tmp_path / "run3"
    shutil.copytree(adapter, other / "adapter")
    (other / "recipe.json").write_text(json.dumps({"model": "x/tiny", "demonstrations": 1}))
    with pytest.raises(SettingError, match=r"demonstrations: .*test these adapters one by one"):
        run("switch", families, "--adapter", adapter, "--adapter", other / "adapter")


@pytest.mark.usefixtures("untouched")
def test_mistakes_are_sentences(home, tmp_path):
    families, adapter = home / "families.jsonl", tmp_path / "bare"
    shutil.copytree(home / "run1" / "adapter", adapter)
    with pytest.raises(SettingError, match="--model: is missing, and no adapter's recipe names one"):
        run("switch", families, "--adapter", adapter)
    with pytest.raises(SettingError, match="given twice"):
        run(
            "switch",
            families,
            "--model",
            "m",
            "--adapter",
            adapter,
            "--adapter",
            tmp_path / ".." / tmp_path.name / "bare",
        )
    with pytest.raises(UserError, match=r"holds no adapter_model\.safetensors"):
        run("switch", families, "--model", "m", "--adapter", tmp_path)
    with pytest.raises(UserError, match=r"nowhere\.jsonl: there is no such file"):
        run("switch", tmp_path / "nowhere.jsonl", "--model", "m")
    with pytest.raises(SettingError, match="--force: nothing is written without --out"):
        run("switch", families, "--model", "m", "--force")
    for text in ("{", "[]"):
        (adapter / "recipe.json").write_text(text)
        with pytest.raises(UserError, match=r"recipe\.json: is no"):
            run("switch", families, "--model", "m", "--adapter", adapter)


def test_an_adapter_that_changes_nothing_is_refused(home, tmp_path):
    adapter = save_adapter(tmp_path / "fresh", changing=False)
    with pytest.raises(UserError, match="changes no prediction"):
        run("switch", home / "families.jsonl", "--model", home / "tiny", "--adapter", adapter, "--demonstrations", 0)


def test_without_torch_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr("eclose_train.training.api.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"scoring needs torch, transformers, peft. Run: pip install 'eclose\[train\]'"):
        require_torch("scoring")


def test_a_sick_model_is_said_to_be_sick(home, tmp_path):
    import torch

    ill = model()
    with torch.no_grad():
        ill.lm_head.weight.fill_(float("nan"))
    ill.save_pretrained(tmp_path / "ill")
    tokenizer().save_pretrained(tmp_path / "ill")
    result = run("switch", home / "families.jsonl", "--model", tmp_path / "ill", "--demonstrations", 0)
    assert result.exit_code == 0
    assert "3 rows with a score that is not finite, such as family-world-2wiki" in result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("all") and " S " in line]
    assert line.split() == ["all", "S", "-", "-", "-", "-", "-", "-", "0", "3", "-", "-"]
