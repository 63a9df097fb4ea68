"""The command with FSDP2 on CPUs: to be started by torchrun with the settings of an Accelerate configuration.

Accelerate shards on accelerators and passes over CPUs without a word. Told that it may, it does on gloo what it does
elsewhere: the same wrapping, the same optimizer, the same checkpoints. Nothing of the trainer is touched.
"""

import os
import sys

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

import eclose_train.likelihood.exactness_check
from eclose.cli.main import main


def allow_cpus():
    ordinary = AcceleratorState.__init__

    def begin(self, *args, fsdp_plugin=None, **kwargs):
        ordinary(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None:
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = begin


def only_the_first_may_try():
    """Where one process alone has read the weights, what another finds out about them is worth nothing."""

    def refuse(*_):
        raise AssertionError("this process has no weights to try")

    if os.environ["RANK"] != "0":
        eclose_train.likelihood.exactness_check.choose_scoring_strategy = refuse


def say_what_is_sharded():
    """One line per process: trained tensors that are sharded, and all of them."""
    from torch.distributed.tensor import DTensor

    from eclose_train.training.trainer import EClosureTrainer

    class ReportingTrainer(EClosureTrainer):
        def training_step(self, model, *args):
            trained = [part for part in model.parameters() if part.requires_grad]
            sharded_count = sum(
                isinstance(part, DTensor) and part.to_local().numel() < part.numel() for part in trained
            )
            sys.stdout.write(f"sharded {sharded_count} of {len(trained)}\n")
            sys.stdout.flush()
            self.__class__ = EClosureTrainer  # once is enough
            return EClosureTrainer.training_step(self, model, *args)

    import eclose_train.training.run

    eclose_train.training.run.EClosureTrainer = ReportingTrainer


if __name__ == "__main__":
    allow_cpus()
    only_the_first_may_try()
    say_what_is_sharded()
    sys.argv[0] = "eclose"
    main()
