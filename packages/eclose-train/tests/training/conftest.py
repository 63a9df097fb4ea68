"""Small models, a small tokenizer and short families for every test of training."""

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

from eclose.files.jsonl import write_records
from tests.training.small import short_families, small_model, small_tokenizer


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """One thread, so that sums are in one order."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A small model with its tokenizer, as a user would name it."""
    folder = tmp_path_factory.mktemp("weights") / "small-llama"
    small_model(initializer_range=0.2).save_pretrained(folder)
    small_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def family_file(tmp_path_factory):
    """Six short families."""
    path = tmp_path_factory.mktemp("families") / "families.jsonl"
    write_records(path, short_families(6))
    return path
