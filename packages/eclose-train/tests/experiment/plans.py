"""A small plan of an experiment, as a file and as its values."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import yaml

from eclose.files.jsonl import write_records
from eclose_world.make.families import make_world_families
from eclose_world.make.instances import make_world_items

if TYPE_CHECKING:
    from pathlib import Path

QUICK = {
    "use_cpu": True,
    "families_per_update": 2,
    "max_steps": 1,
    "warmup_steps": 0,
    "demonstrations": 0,
    "lora_rank": 2,
    "report_to": "none",
    "save_strategy": "steps",
    "save_steps": 1,
    "eval_strategy": "no",
    "disable_tqdm": True,
}
"""Settings of training for a run of one update."""


def write_data(folder: Path, *, families: int = 2, questions: int = 2) -> None:
    """Write families and questions of the world."""
    write_records(folder / "train.jsonl", islice(make_world_families("short-easy", 5), families))
    write_records(folder / "development.jsonl", islice(make_world_families("short-easy", 6), families))
    write_records(
        folder / "questions.jsonl", [item.instance for item in islice(make_world_items("short-easy", 3), questions)]
    )


def plan_values(**more: Any) -> dict[str, Any]:
    """Return the values of a plan with one backbone, two methods and two seeds."""
    return {
        "backbones": [{"name": "Small", "weights": "small-model", "learning_rate": 0.01}],
        "methods": ["sft", "e_closure"],
        "seeds": [1, 2],
        "train_families": "train.jsonl",
        "development_families": "development.jsonl",
        "questions": "questions.jsonl",
        "judge": {"model": "world", "base_url": "http://127.0.0.1:9/v1", "unpriced": True},
        **more,
    }


def write_plan(folder: Path, **more: Any) -> Path:
    """Write a plan into a folder and return its path."""
    path = folder / "plan.yaml"
    # Through JSON, so that tuples and paths become what YAML knows.
    path.write_text(yaml.safe_dump(json.loads(json.dumps(plan_values(**more), default=str))))
    return path


def read_results(folder: Path) -> dict[Path, bytes]:
    """Return every result by its path; times, versions and ledgers differ between two runs."""
    names = ("responses.jsonl", "judgments.jsonl", "switches.jsonl", "selection.replies.jsonl")
    paths = [path for path in folder.rglob("*") if path.name in (*names, "adapter_model.safetensors")]
    return {path.relative_to(folder): _comparable(path, folder) for path in paths if "checkpoint-" not in str(path)}


def _comparable(path: Path, folder: Path) -> bytes:
    # Switch scores name the folder of their adapter, which is another one in another experiment.
    data = path.read_bytes().replace(str(folder).encode(), b"")
    # The key hashes adapter_config.json, in which PEFT lists target modules in the order of a set: another one in every
    # process.
    return re.sub(rb'"key":"[^"]*"', b"", data) if path.name == "selection.replies.jsonl" else data


def read_tables(folder: Path) -> dict[str, bytes]:
    """Return the tables of a report by file, without recorded times, which differ between two runs."""
    report = json.loads((folder / "experiment.json").read_text())
    assert report.pop("cost")
    report["tables"] = [table for table in report["tables"] if table["key"] != "cost"]
    tables = {path.name: path.read_bytes() for path in folder.glob("*.csv")}
    return {**tables, "experiment.json": json.dumps(report, indent=1).encode()}
