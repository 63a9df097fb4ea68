"""Plugin that mounts the E-Closure loss on axolotl's trainer. Written from axolotl's plugin interface, never run on it.

Put this file beside the configuration and name the plugin there:

    plugins: [axolotl_plugin.EClosurePlugin]
    e_closure_families: dataset          # what eclose_train.train takes: a file, a folder or a dataset
    sample_packing: false                # families are packed by the loss
    remove_unused_columns: false

axolotl still wants an entry under ``datasets``, which the plugin replaces by the families, and reckons the number of
steps from it: set ``max_steps``.
"""

from axolotl.core.trainers.base import AxolotlTrainer
from axolotl.integrations.base import BasePlugin

import eclose_train
from eclose.files.jsonl import unwrap_records
from eclose_train.families.files import FamilySplit, open_families


class EClosureAxolotlTrainer(eclose_train.EClosureLossMixin, AxolotlTrainer):
    """axolotl's trainer with the loss on families."""


class EClosurePlugin(BasePlugin):
    """Plugin of axolotl: another trainer, and families in place of its dataset."""

    def get_trainer_cls(self, cfg):  # noqa: ARG002
        """Return the trainer with the loss on families."""
        return EClosureAxolotlTrainer

    def post_trainer_create(self, cfg, trainer):
        """Replace the dataset by families, and the collator by the one that renders them."""
        source = open_families(cfg.e_closure_families, FamilySplit.TRAIN)
        trainer.train_dataset = list(unwrap_records(source.scan()))
        trainer.data_collator = eclose_train.EClosureCollator(trainer.processing_class, seed=trainer.args.seed)
