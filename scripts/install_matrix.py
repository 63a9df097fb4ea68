"""Install the wheels with each extra alone in a fresh environment, and try what the extra is for.

    python scripts/install_matrix.py                                every extra, and a cold installation with pip
    python scripts/install_matrix.py --only local train             these extras alone
    python scripts/install_matrix.py --python python3.12 python3.13 the base on further interpreters
    python scripts/install_matrix.py --lowest                       tests on the lowest versions allowed

Environments are made with ``uv``, which must be on the path and keeps what it downloaded: seconds are those of a filled
cache from the second run on. The cold installation uses pip without a cache. The last line is the result as JSON.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the helpers of perf

from studies.perf.first_minutes import build_wheels, new_user_environment, run
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
BASE = "(base)"
START = ("eclose --version", "eclose demo", "eclose gate demo --min-trr 0.3")
"""Commands that work with any extra; the demo leaves the files that those of the extras read."""
CHECKS = {
    BASE: "eclose judge run demo --judge m --base-url http://127.0.0.1:9/v1 --no-price --out judged --dry-run",
    "annotate": "eclose annotate init project demo/responses.jsonl --instances demo/instances.jsonl",
    "construct": "eclose construct --help",
    "experiment": "python -m snakemake --version",
    "figures": "eclose report demo --format figures",
    "inspect": "python -c 'import eclose.integrations.inspect.registry'",
    "local": "python -c 'import eclose.calls.local.weights, peft, torch, transformers'",
    "parquet": "eclose data labels demo --out labels.parquet",
    "postgres": "python -c 'import psycopg; psycopg.pq.version()'",
    "prices": "python -c 'import eclose.calls.prices, genai_prices'",
    "ray": "python -c 'import eclose.calls.cluster.workers, ray'",
    "train": "python -c 'import eclose_train.training.run, accelerate, peft'",
    "world": "python -c 'import eclose_world.server.app, aiohttp'",
}
"""A command that works with the extra only, by extra."""
NEEDS_TORCH = frozenset({"local", "train"})
LIGHT = ("annotate", "construct", "figures", "parquet", "postgres", "prices", "world")
"""Extras of the lowest versions: without PyTorch, Ray, Snakemake, a native model server, and Inspect, which asks for
newer versions of what the package itself needs."""
TESTS = tuple(f"packages/eclose/tests/{name}" for name in ("values", "stats", "metrics", "diagnosis"))
TEST_TOOLS = ("hypothesis", "krippendorff", "psutil", "pytest", "pytest-xdist", "scikit-learn", "scipy")


@dataclass(frozen=True)
class Installation:
    """An extra in a fresh environment: what it took and whether its command works."""

    extra: str
    python: str
    seconds: float
    packages: int
    megabytes: float
    failure: str = ""

    def format(self) -> str:
        """Return the row of the table."""
        figures = f"{self.seconds:7.1f}  {self.packages:8d}  {self.megabytes:6.0f}"
        return f"{self.extra:<11} {self.python:>7}  {figures}  {self.failure or 'works'}"


def read_project() -> dict[str, list[str]]:
    """Return the libraries that each extra brings, by itself or by a house, and of the base under its own name."""
    project, hook = read_house("eclose")
    extras = {
        extra: [library for requirement in requirements for library in list_libraries(requirement)]
        for extra, requirements in hook["optional-dependencies"].items()
    }
    return {BASE: project["dependencies"], **extras}


def read_house(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a house requires: its project, and what is filled in with the version when it is built."""
    settings = tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text("utf-8"))
    return settings["project"], settings["tool"]["hatch"]["metadata"]["hooks"]["uv-dynamic-versioning"]


def list_libraries(requirement: str) -> list[str]:
    """Return a requirement of a library as it is, and for one of a house those of the house but for the base."""
    house = re.fullmatch(r"(eclose[a-z-]*)(?:\[(\w+)\])?==.*", requirement)
    if house is None:
        return [requirement]
    if house[1] == "eclose":
        return []
    project, hook = read_house(house[1])
    requirements = [*hook["dependencies"], *(project["optional-dependencies"][house[2]] if house[2] else ())]
    return [library for part in requirements for library in list_libraries(part)]


def read_torch_pin() -> str:
    """Return the build of PyTorch that ``make setup`` installs."""
    return str(re.findall(r"torch==[\d.]+", (ROOT / "Makefile").read_text("utf-8"))[0])


def call(words: Sequence[str | Path], folder: Path, programs: Path | None = None) -> str:
    """Run a command and return the end of its output where it fails, else an empty string."""
    environment = new_user_environment()
    if programs is not None:
        environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    command = list(map(str, words))
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    output = [line for line in (process.stdout + process.stderr).splitlines() if line.strip()]
    return f"exit code {process.returncode}: {output[-1] if output else ''}" if process.returncode else ""


def measure_size(environment: Path) -> tuple[int, float]:
    """Return the number of packages of an environment and the size of their files in MB."""
    (packages,) = environment.glob("lib/python*/site-packages")
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
    return len(list(packages.glob("*.dist-info"))), size / 1e6


def create_environment(folder: Path, python: str) -> Path:
    """Create an empty environment and return its folder."""
    run(["uv", "venv", "--quiet", "--python", python, folder / "venv"], folder)
    return folder / "venv"


def list_wheels(wheel: Path) -> list[Path]:
    """Return the wheels of all houses, which lie beside that of eclose."""
    return sorted(wheel.parent.glob("eclose*.whl"))


def install_extra(extra: str, wheel: Path, python: str) -> Installation:
    """Install eclose with one extra from the folder of its wheel, run the demo and the command of the extra."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = create_environment(folder, python)
        programs = environment / "bin"
        install: list[str | Path] = ["uv", "pip", "install", "--quiet", "--python", programs / "python"]
        # The houses need each other at exactly their version, which no index has.
        wheels = folder / "wheels.txt"
        wheels.write_text("".join(f"{path.name.partition('-')[0]} @ {path.as_uri()}\n" for path in list_wheels(wheel)))
        start = time.perf_counter()
        # The CPU build comes first: resolving would pull one with gigabytes of libraries for other devices.
        failure = call([*install, read_torch_pin()], folder) if extra in NEEDS_TORCH else ""
        wanted = "eclose" if extra == BASE else f"eclose[{extra}]"
        failure = failure or call([*install, "--constraint", wheels, wanted], folder)
        seconds = time.perf_counter() - start
        for command in (*START, CHECKS[extra]):
            failure = failure or call(shlex.split(command), folder, programs)
        version = run([programs / "python", "-c", "import platform; print(platform.python_version())"], folder).strip()
        return Installation(extra, version, seconds, *measure_size(environment), failure)


def install_cold(wheel: Path, python: str) -> float:
    """Print and return the seconds from an empty folder to the first report, with pip and without a cache."""
    with tempfile.TemporaryDirectory() as name:
        folder, total = Path(name), 0.0
        programs = folder / "venv" / "bin"
        steps: dict[str, list[str | Path]] = {
            "python -m venv": [python, "-m", "venv", "venv"],
            "pip install": [programs / "python", "-m", "pip", "install", "--quiet", "--no-cache-dir", wheel],
            "eclose demo": [programs / "eclose", "demo"],
        }
        for step, words in steps.items():
            start = time.perf_counter()
            run(words, folder)
            seconds = time.perf_counter() - start
            total += seconds
            print(f"  {step:<15} {seconds:6.1f} s", flush=True)
        return total


def run_on_lowest(wheel: Path, python: str, tests: list[str]) -> int:
    """Run commands and tests on the lowest versions that the requirements allow, and return the first exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = create_environment(folder, python) / "bin"
        install: list[str | Path] = ["uv", "pip", "install", "--quiet", "--python", programs / "python"]
        # Requirements of a wheel are not direct ones, and would be taken at their newest.
        requirements = sorted({name for extra in (BASE, *LIGHT) for name in read_project()[extra]})
        run([*install, "--resolution", "lowest-direct", *requirements], folder)
        run([*install, "--no-deps", *list_wheels(wheel)], folder)
        # Tools of the tests come later: they are direct requirements too, and their lowest versions say nothing.
        run([*install, *TEST_TOOLS], folder)
        freeze = run(["uv", "pip", "freeze", "--python", programs / "python"], folder)
        installed = dict(line.split("==") for line in freeze.splitlines() if "==" in line)
        for requirement in requirements:
            distribution = re.split(r"[<>=~!]", requirement)[0]
            print(f"  {requirement:<28} {installed[distribution.lower()]}", flush=True)
        for command in (*START, *(CHECKS[extra] for extra in (BASE, *LIGHT))):
            if failure := call(shlex.split(command), folder, programs):
                print(f"  {command}: {failure}")
                return 1
        # Old versions warn of what they no longer do; pyproject.toml would make errors of that.
        pytest = [
            programs / "python",
            "-m",
            "pytest",
            "-q",
            "-W",
            "ignore",
            "-n",
            "2",
            "-p",
            "no:cacheprovider",
            *tests,
        ]
        return subprocess.run(list(map(str, pytest)), cwd=ROOT, env=new_user_environment(), check=False).returncode


def print_matrix(options: argparse.Namespace, wheel: Path) -> int:
    """Install every chosen extra, print the table and the result line."""
    print(f"{wheel.name}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    print(f"{'extra':<11} {'Python':>7}  seconds  packages      MB  result")
    pairs = [(extra, sys.executable) for extra in options.only or CHECKS]
    installations = []
    for extra, python in [*pairs, *((BASE, python) for python in options.python)]:
        installation = install_extra(extra, wheel, python)
        installations.append(installation)
        print(installation.format(), flush=True)
    print("cold, with pip and without a cache, from an empty folder to the first report:")
    cold = install_cold(wheel, sys.executable)
    working = sum(not installation.failure for installation in installations)
    return print_result(
        name="installations in fresh environments that work",
        value=working,
        unit=f"of {len(installations)}; seconds from a cold pip install to the first report",
        goal="all",
        holds=working == len(installations),
        cold_seconds=round(cold, 1),
    )


def main() -> int:
    """Build the wheels and run the chosen lane."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), help="extras to install; every one by default")
    parser.add_argument("--python", nargs="+", default=[], help="further interpreters for the base installation")
    parser.add_argument("--lowest", action="store_true", help="run tests on the lowest versions instead")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), help="tests to run with --lowest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheels(Path(folder))
        if not options.lowest:
            return print_matrix(options, wheel)
        code = run_on_lowest(wheel, sys.executable, options.tests)
    return print_result(
        name="exit code of commands and tests on the lowest versions", value=code, unit="", goal="0", holds=code == 0
    )


if __name__ == "__main__":
    sys.exit(main())
