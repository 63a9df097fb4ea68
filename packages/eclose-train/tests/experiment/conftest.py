"""Weights, judge and plans of experiments that are run to their end."""

from functools import partial

import pytest

from eclose.files.jsonl import write_records
from eclose_train.experiment.folder import init_experiment, load_experiment
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from tests.built import build_once
from tests.experiment.plans import QUICK, write_plan


@pytest.fixture(scope="session")
def material(tmp_path_factory):
    """Weights that answer in the right layout, because they know two families by heart, and the data of a plan."""
    return build_once(tmp_path_factory, "experiment-material", _build_material)


def _build_material(folder):
    torch = pytest.importorskip("torch", reason="needs the train extra")
    # Weights need torch, and the tests of plans do without it.
    from eclose_train.training.api import train
    from tests.training.small import short_families, small_model, small_tokenizer

    torch.set_num_threads(1)
    small_model().save_pretrained(folder / "random")
    small_tokenizer().save_pretrained(folder / "random")
    families = short_families(2)
    for name in ("train", "development"):
        write_records(folder / f"{name}.jsonl", families)
    write_records(folder / "questions.jsonl", [family.source for family in families])
    learn = {**QUICK, "max_steps": 120, "learning_rate": 1e-2, "lr_scheduler_type": "constant", "lora_rank": 0}
    learn |= {"model": str(folder / "random"), "method": "sft", "save_strategy": "no", "gradient_checkpointing": False}
    train(folder / "train.jsonl", out=folder / "learned", **learn)


@pytest.fixture(scope="module")
def judge():
    with ModelServerThread(build_world_handlers()) as model:
        yield model


def write_quick_plan(folder, material, model, **more):
    """Write a plan of one backbone, one method and one seed."""
    values = {
        "backbones": [{"name": "Small", "weights": material / "learned" / "adapter", "learning_rate": 1e-4}],
        "methods": ["e_closure"],
        "seeds": [1],
        "training": QUICK,
        "judge": {"model": "world", "base_url": model.base_url, "unpriced": True},
        "max_new_tokens": 120,
        "selection_max_new_tokens": 120,
        **{name: material / f"{name.partition('_')[0]}.jsonl" for name in ("train_families", "questions")},
        "development_families": material / "development.jsonl",
    }
    return write_plan(folder, **values | more)


@pytest.fixture
def write(material, judge, tmp_path):
    """Write a plan into the folder of the test."""
    return partial(write_quick_plan, tmp_path, material, judge)


@pytest.fixture
def finished_experiment(material, tmp_path_factory):
    """An experiment that was run to its end, which no test may change."""

    def build(folder):
        # Stages need torch.
        from eclose_train.experiment.run import run_experiment

        with ModelServerThread(build_world_handlers()) as judge:
            plan = write_quick_plan(folder, material, judge)
            assert not run_experiment(init_experiment(plan, folder / "experiment")).failed

    return load_experiment(build_once(tmp_path_factory, "experiment-finished", build) / "experiment")
