"""A small plan of an experiment, as a file and as its values."""

from __future__ import annotations

import json
from itertools import islice

import yaml

from eclose.store.records.jsonl import write_records
from eclose.world.make.families import make_world_families
from eclose.world.make.instances import make_world_items


def write_data(folder, *, families=2, questions=2):
    """Write families and questions of the world."""
    write_records(folder / "train.jsonl", islice(make_world_families("short-easy", 5), families))
    write_records(folder / "development.jsonl", islice(make_world_families("short-easy", 6), families))
    write_records(
        folder / "questions.jsonl", [item.instance for item in islice(make_world_items("short-easy", 3), questions)]
    )


def plan_values(**more):
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


def write_plan(folder, **more):
    """Write a plan into a folder and return its path."""
    path = folder / "plan.yaml"
    # Through JSON, so that tuples and paths become what YAML knows.
    path.write_text(yaml.safe_dump(json.loads(json.dumps(plan_values(**more), default=str))))
    return path
