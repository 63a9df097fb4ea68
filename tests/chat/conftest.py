"""Small models with a real tokenizer; skipped where there is none."""

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("transformers", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Sums in one order."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer():
    from tests.chat import tiny

    return tiny.tokenizer()


@pytest.fixture(scope="session")
def adapters(tmp_path_factory, tokenizer):
    """Two adapters that differ."""
    from tests.chat import tiny

    folder = tmp_path_factory.mktemp("adapters")
    return [tiny.adapter(folder / f"checkpoint-{seed}", seed) for seed in (1, 2)]
