"""What tests of several folders share: processes that have torch already."""

import pytest

from tests.forking import ForkServer

MODULES = ("torch", "transformers.trainer", "accelerate", "peft", "eclose.cli.main", "eclose_train.training.run")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "ACCELERATE_USE_CPU": "true",
}


@pytest.fixture(scope="session")
def forks():
    """A process that has imported what a run needs: importing takes longer than running."""
    with ForkServer(*MODULES, **ENVIRONMENT) as server:
        yield server
