"""A note beside a result that is not finished yet: with which settings its work was begun.

Without it, a run that stopped half way and is started with another server, model or setting would begin anew without a
word, and pay for everything again. The note goes when the result is written.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from eclose.errors import UserError
from eclose.store.records.atomic import AtomicFile
from eclose.store.runs.step import sibling_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eclose.store.runs.step import RunStep


def write_start_note(stage: RunStep, *, force: bool = False) -> None:
    """Write the note of a stage; raise where other work was begun for the same result, unless forced."""
    path, work = _path(stage), stage.work
    earlier = _read(path)
    if earlier.get("work") == work:
        return
    if earlier and not force:
        raise UserError(
            f"{stage.out}: a run with other settings was begun here and is not finished "
            f"({_differences(earlier.get('settings'), stage.settings)}). Give the earlier settings to go on, or pass "
            "--force to begin anew. If it is the same server at a new address, give its earlier name: --server-name."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with AtomicFile(path) as file:
        file.write(json.dumps({"work": work, "settings": dict(stage.settings)}, indent=2, default=str).encode() + b"\n")


def remove_start_note(stage: RunStep) -> None:
    """Remove the note of a stage whose result is written."""
    _path(stage).unlink(missing_ok=True)


def _path(stage: RunStep) -> Path:
    return sibling_path(stage.out, "begun.json")


def _read(path: Path) -> dict[str, Any]:
    """Return the note; a file that is none counts as no note."""
    try:
        note = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _differences(earlier: object, now: Mapping[str, Any]) -> str:
    before = earlier if isinstance(earlier, dict) else {}
    plain = json.loads(json.dumps(dict(now), default=str))
    names = [name for name in dict.fromkeys([*before, *plain]) if before.get(name) != plain.get(name)]
    return "; ".join(f"{name}: {before.get(name)!r} then, {plain.get(name)!r} now" for name in names) or "other inputs"
