"""Measure the path of one judged response: source files it passes, and frames from the command to the HTTP call.

    python scripts/call_path.py

Runs ``eclose judge`` on one response against the world's server. Files are those whose functions run between the
start of the record and its outcome in the ledger; frames are those of the package on the stack of the HTTP call.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from typer.testing import CliRunner

import eclose
from eclose.calls.record_loop import JobRunner
from eclose.cli.main import app
from eclose_world.demo import write_demo_files
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread

if TYPE_CHECKING:
    from types import FrameType

ROOT = Path(eclose.__file__).parent
CO_OPTIMIZED = 1
"""Flag of the code of functions; class bodies, which run at import, do not have it."""
MOST_FILES, MOST_FRAMES = 32, 12


class CallPath:
    """Files and frames of one response."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.frames: list[str] = []

    def note_call(self, frame: FrameType, event: str, _argument: object) -> None:
        """Note the file of a function of the package that is called."""
        if event == "call" and frame.f_code.co_flags & CO_OPTIMIZED and (name := _name_in_package(frame)):
            self.files.add(name)

    def note_frames(self, frame: FrameType | None) -> None:
        """Keep the deepest stack of package frames."""
        frames = []
        while frame is not None:
            if name := _name_in_package(frame):
                frames.append(f"{name}:{frame.f_code.co_name}")
            frame = frame.f_back
        self.frames = max(self.frames, frames, key=len)


def _name_in_package(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    # The world plays the model server in a thread of its own.
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) and "world" not in path.parts else None


def measure() -> CallPath:
    """Judge one response and return its path."""
    call_path, send, run = CallPath(), aiohttp.ClientSession._request, JobRunner.run

    async def noting_request(session: Any, *arguments: Any, **options: Any) -> Any:
        call_path.note_frames(sys._getframe(1))
        return await send(session, *arguments, **options)

    async def noting_run(runner: Any, records: Any) -> None:
        sys.setprofile(call_path.note_call)
        try:
            await run(runner, records)
        finally:
            sys.setprofile(None)

    with tempfile.TemporaryDirectory() as temporary, ModelServerThread(build_world_handlers()) as server:
        folder = Path(temporary) / "run"
        write_demo_files(folder, questions=1)
        for path in folder.glob("judgments*"):
            path.unlink()
        responses = folder / "responses.jsonl"
        responses.write_text(responses.read_text().splitlines()[0] + "\n")
        aiohttp.ClientSession._request, JobRunner.run = noting_request, noting_run  # type: ignore[method-assign,assignment]
        result = CliRunner().invoke(app, ["judge", str(folder), "--judge", server.base_url, "--no-price"])
        assert result.exit_code == 0, result.output
    return call_path


def main() -> None:
    """Print the path, and one line of JSON for each figure; exit with 1 where a goal is missed."""
    call_path = measure()
    print("\n".join(sorted(call_path.files)), *call_path.frames, sep="\n")
    figures = {
        "files a judged response passes": (len(call_path.files), MOST_FILES),
        "frames from command to HTTP call": (len(call_path.frames), MOST_FRAMES),
    }
    for name, (value, goal) in figures.items():
        print(json.dumps({"name": name, "value": value, "unit": "", "goal": f"<= {goal}", "holds": value <= goal}))
    sys.exit(any(value > goal for value, goal in figures.values()))


if __name__ == "__main__":
    main()
