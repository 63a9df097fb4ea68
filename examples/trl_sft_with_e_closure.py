"""Train E-Closure with TRL's SFTTrainer: its settings, callbacks and logging, the loss on families.

    pip install 'eclose[train,parquet]' trl datasets
    eclose world make --families 64 --profile short-easy --out families
    eclose families export families/families.jsonl --format datasets --out dataset
    python examples/trl_sft_with_e_closure.py dataset HuggingFaceTB/SmolLM2-135M-Instruct runs/trl

Any other setting of SFTConfig can follow as ``name=value``, such as ``max_steps=2``.
"""

import sys

import yaml
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

import eclose_train


class EClosureSFTTrainer(eclose_train.EClosureLossMixin, SFTTrainer):
    """TRL's trainer with the loss on families."""


def main(dataset: str, model: str, out: str, *settings: str) -> EClosureSFTTrainer:
    """Train an adapter on the families of an exported dataset."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    trainer = EClosureSFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        args=SFTConfig(
            output_dir=out,
            # Families are rendered by the collator, so TRL must neither tokenize them nor drop their columns.
            dataset_kwargs={"skip_prepare_dataset": True},
            remove_unused_columns=False,
            **dict(yaml.safe_load(setting.replace("=", ": ", 1)).popitem() for setting in settings),
        ),
        train_dataset=load_dataset(dataset)["train"],
        data_collator=eclose_train.EClosureCollator(tokenizer, method="e_closure", demonstrations=0),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(out)
    return trainer


if __name__ == "__main__":
    main(*sys.argv[1:])
