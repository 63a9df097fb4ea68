"""A real tokenizer and real adapters, made only for tests that ask for them: the others need no torch."""

import pytest


@pytest.fixture(scope="session")
def tiny():
    """Small models; with one thread, so that sums are in one order."""
    for name in ("torch", "transformers", "peft"):
        pytest.importorskip(name, reason="needs the train extra")
    import torch

    from tests.calls.local import tiny

    torch.set_num_threads(1)
    return tiny


@pytest.fixture(scope="session")
def tokenizer(tiny):
    return tiny.tokenizer()


@pytest.fixture(scope="session")
def adapters(tmp_path_factory, tiny):
    """Two adapters that differ."""
    folder = tmp_path_factory.mktemp("adapters")
    return [tiny.adapter(folder / f"checkpoint-{seed}", seed) for seed in (1, 2)]
