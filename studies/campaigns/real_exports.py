"""Real agents of ten packages: what each exports is read and judged, and the truth is known.

Each package is installed into an environment of its own and runs a small agent: one question of the world, a tool that
searches, an answer. Its model is a server on loopback that says the same claims to each, in the form that the package
asks for. Messages, results and spans are saved as the package writes them, read as ``eclose judge`` reads them, and
judged by the exact judge of the world. A reading is whole where steps, answer and passages are those of the scene.

    python studies/campaigns/real_exports.py                     # installs from PyPI: some minutes, 3 GB below build/
    python studies/campaigns/real_exports.py --only dspy crewai
    python studies/campaigns/real_exports.py --keep              # reads the exports that are there again
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

import eclose
from eclose.calls.client import CallSettings
from eclose.errors import UserError
from eclose.readers.import_settings import ImportSettings
from eclose.readers.layouts import RecordLayout
from eclose.readers.load import detect_file_layout, scan_instances, scan_recorded_responses
from eclose.readers.spans.selection import CaseSelection
from eclose_world.make.instances import make_world_item
from eclose_world.roles.judge import register_judge_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.chat_requests import HandlerRegistry
from studies.campaigns.servers.scripted_agent import AgentScript, ScriptedAgentServer
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.values.instance import Instance
    from eclose.values.response import Response

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "real_exports"
PROGRAMS = Path(__file__).parent / "exporters"
MINUTES = 5
"""How long a package may take to install, and its program to run."""
GOAL = 0.9
_SPANS = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-json-file")


class Exporter(NamedTuple):
    """A program that runs an agent, and the packages that it needs."""

    name: str
    program: str
    packages: tuple[str, ...]
    """What is installed; the first is the package in question."""
    question: str | None = None
    """Where its spans have the question, if not where questions are looked for."""


EXPORTERS = (
    Exporter("openai-agents", "openai_agents.py", ("openai-agents", "openinference-instrumentation-openai-agents")),
    Exporter(
        "langgraph",
        "langgraph_agent.py",
        ("langgraph", "langchain", "langchain-openai", "openinference-instrumentation-langchain"),
    ),
    Exporter("pydantic-ai", "pydantic_ai_agent.py", ("pydantic-ai-slim[openai]",)),
    Exporter("smolagents", "smolagents_agent.py", ("smolagents[openai]", "openinference-instrumentation-smolagents")),
    Exporter("haystack", "haystack_agent.py", ("haystack-ai", "openinference-instrumentation-haystack")),
    Exporter("autogen", "autogen_agent.py", ("autogen-agentchat", "autogen-ext[openai]")),
    Exporter("dspy", "dspy_agent.py", ("dspy", "openinference-instrumentation-dspy")),
    Exporter(
        "llama-index",
        "llama_index_agent.py",
        ("llama-index-core", "llama-index-llms-openai-like", "openinference-instrumentation-llama-index"),
    ),
    Exporter(
        "crewai", "crewai_agent.py", ("crewai", "openinference-instrumentation-crewai"), "/crew_tasks/0/description"
    ),
    Exporter("openinference", "openai_loop.py", ("openinference-instrumentation-openai", "openai")),
    Exporter(
        "otel-genai",
        "openai_loop.py otel",
        # It needs httpx and does not say so.
        ("opentelemetry-instrumentation-genai-openai", "openai", "httpx"),
    ),
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A question of the world with what its search finds, and what the agent says."""

    question: str
    results: dict[str, list[dict[str, str]]]
    script: AgentScript

    @property
    def steps(self) -> tuple[str, ...]:
        """The claims of the agent, in order."""
        said = [text for text, _ in self.script.searches[1:]]
        return (*said, *(f"{text}." for text in self.script.conclusion.removesuffix(".").split(". ")))

    @property
    def passages(self) -> set[str]:
        """The texts that the searches find."""
        return {passage["text"] for found in self.results.values() for passage in found}


def make_scene() -> Scene:
    """Return the scene, whose claims are in the words of the world, so that its judge can read them."""
    item = make_world_item("short-easy", 3, 0)
    found = [{"title": passage.title, "text": passage.text} for passage in item.instance.evidence]
    novel, author = map(int, item.instance.support_ids or ())
    others = [number for number in range(len(found)) if number not in (novel, author)]
    script = AgentScript(
        searches=(
            ("Let me look for the author of Sleeping Pilgrim.", "author of Sleeping Pilgrim"),
            ("Sleeping Pilgrim was written by Petra Sorel.", "Petra Sorel"),
        ),
        conclusion="Norholt University is the university where Petra Sorel studied. It follows that the university of "
        "the person who wrote the book Sleeping Pilgrim is Norholt University.",
        answer="Norholt University",
    )
    results = {
        "Sleeping Pilgrim": [found[novel], found[others[0]]],
        "Petra Sorel": [found[author], found[others[1]]],
    }
    return Scene(item.instance.question, results, script)


def find_uv() -> str:
    """Return the path of uv: on the path, or where ``make setup`` puts it."""
    places = (shutil.which("uv"), ROOT / "build/uv/bin/uv")
    found = next((str(place) for place in places if place is not None and Path(place).is_file()), None)
    return found or sys.exit("uv is not installed. Run: pip install uv")


def install(exporter: Exporter, uv: str) -> str:
    """Install the packages of a program into an environment of its own; return the version, or why it is none."""
    environment = BUILD / exporter.name
    python = environment / "bin" / "python"
    if not python.is_file():
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(environment)], check=True)
    command = [uv, "pip", "install", "-q", "--prerelease", "if-necessary-or-explicit", "--python", str(python)]
    ended = run_limited([*command, *exporter.packages, *_SPANS])
    if ended:
        raise UserError(f"does not install: {ended}")
    package = exporter.packages[0].partition("[")[0]
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def run_limited(command: list[str], environment: dict[str, str] | None = None) -> str:
    """Run a command within the time that a package has; return the end of its error, empty where it ended well."""
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60 * MINUTES, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"took more than {MINUTES} minutes"
    lines = ended.stderr.strip().splitlines() or ["no message"]
    return "" if ended.returncode == 0 else f"exit code {ended.returncode}: {lines[-1][:200]}"


def export(exporter: Exporter, scene: Scene, models: str) -> None:
    """Run the program of a package; its exports are in a folder of their own afterwards."""
    folder = BUILD / "exports" / exporter.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    program, *arguments = exporter.program.split()
    description = BUILD / "scene.json"
    description.write_text(json.dumps({"question": scene.question, "results": scene.results}), "utf-8")
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**outside, "SCENE": str(description), "EXPORTS": str(folder), "MODELS": models}
    python = str(BUILD / exporter.name / "bin" / "python")
    if ended := run_limited([python, str(PROGRAMS / program), *arguments], environment):
        raise UserError(f"does not run: {ended}")


@dataclass(frozen=True, slots=True)
class Row:
    """How one response of an export was read and judged."""

    export: str
    reading: str
    steps: int = 0
    answer: bool = False
    passages: int = 0
    verdict: str = ""
    whole: bool = False


def read_export(path: Path, exporter: Exporter, scene: Scene, judge: str) -> Iterator[Row]:
    """Yield a row for each response of a file, or for the reason why it has none."""
    settings = ImportSettings(cases=CaseSelection(question=exporter.question))
    try:
        layout = detect_file_layout(path)
        records = scan_instances(path, settings=settings if layout is RecordLayout.OTLP else None)
        instances = {record.value.id: record.value for record in records if record.value is not None}
        exported = path.read_text("utf-8")
        responses = list(scan_recorded_responses(path, settings=settings if layout is RecordLayout.OTLP else None))
    except UserError as error:
        yield Row(path.stem, f"refused: {str(error).partition(': ')[2][:90]}")
        return
    for record in responses:
        if record.value is None:
            reason = record.rejected or str(record.error).removeprefix(str(path))
            yield Row(f"{path.stem} ({layout})", f"rejected: {reason[:90]}")
        else:
            instance = instances[record.value.instance_id]
            row = build_row(scene, exported, instance, record.value, judge)
            yield replace(row, export=f"{path.stem} ({layout})")


def build_row(scene: Scene, exported: str, instance: Instance, response: Response, judge: str) -> Row:
    """Return how one response was read, beside the claims that its file holds, and what the exact judge says of it."""
    reading = response.reading
    status = "protocol" if reading is None else f"{reading.status}, {reading.rule}, {reading.origin or 'no steps'}"
    texts = {" ".join(passage.text.split()) for passage in instance.evidence}
    passages = sum(" ".join(text.split()) in texts for text in scene.passages)
    has_answer = (response.answer or "").strip(" .") == scene.script.answer
    is_whole = (
        response.trace.texts == tuple(step for step in scene.steps if step in exported)
        and has_answer
        and instance.question == scene.question
        and {len(texts), passages} <= {len(scene.passages)}
    )
    verdict = judge_row(instance, response, judge)
    return Row("", status, len(response.trace.texts), has_answer, passages, verdict, is_whole)


def judge_row(instance: Instance, response: Response, judge: str) -> str:
    """Return the labels L, A and C of the exact judge; there is no reference answer for the others."""
    free = CallSettings(unpriced=True)
    verdict = eclose.judge(instance, response, judge="world", base_url=judge, calls=free).verdict
    labels = {"L": verdict.locally_sound, "A": verdict.aligned, "C": verdict.closed}
    return " ".join(f"{name}{'?' if label is None else int(label)}" for name, label in labels.items())


def show_row(row: Row, number: int) -> str:
    """Return a row as a line, with how many records of the file it stands for."""
    figures = f"{row.steps} steps, {row.passages} passages, {row.verdict}" if row.verdict else ""
    return f"  {'ok' if row.whole else '--'} {number:>2}x {row.export:<36} {row.reading:<46} {figures}".rstrip()


def main() -> int:
    """Print a table for each package, and the share of whole readings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[exporter.name for exporter in EXPORTERS])
    parser.add_argument("--keep", action="store_true", help="read the exports of an earlier run")
    options = parser.parse_args()
    scene, counts = make_scene(), Counter[str]()
    registry = HandlerRegistry()
    register_judge_handlers(registry)
    uv = find_uv()
    with ScriptedAgentServer(scene.script) as models, ModelServerThread(registry) as judge:
        for exporter in EXPORTERS:
            if exporter.name not in options.only:
                continue
            try:
                version = install(exporter, uv)
                if not options.keep:
                    export(exporter, scene, models.base_url)
            except UserError as error:
                print(f"{exporter.packages[0]}: {error}")
                counts["packages that do not run"] += 1
                continue
            print(f"{exporter.packages[0]} {version}")
            for path in sorted((BUILD / "exports" / exporter.name).glob("*.jsonl")):
                rows = Counter(read_export(path, exporter, scene, judge.base_url))
                counts["whole" if all(row.whole for row in rows) else "not whole"] += 1
                for row, number in rows.items():
                    print(show_row(row, number))
    exports = counts["whole"] + counts["not whole"]
    share = counts["whole"] / exports if exports else None
    return print_result(
        name="exports of real packages read whole",
        value=share and round(share, 3),
        unit=f"of {exports} files",
        goal=f">= {GOAL}",
        holds=share is not None and share >= GOAL and not counts["packages that do not run"],
    )


if __name__ == "__main__":
    sys.exit(main())
