"""Everything a test of training needs, small: a tokenizer, models of real classes, a trainer that runs in a second."""

from functools import cache
from itertools import islice

from peft import LoraConfig
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from eclose.prompts.locked_texts import load_prompt_text
from eclose_train.training.config import EClosureConfig
from eclose_train.training.trainer import EClosureTrainer
from eclose_world.make.families import make_world_families
from tests.likelihood.models import build

VOCABULARY = 1_500
_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@cache
def _families():
    families = islice(make_world_families("short-easy", 5), 40)
    return tuple(sorted(families, key=lambda family: sum(len(passage.text) for passage in family.gold.evidence)))


def short_families(count):
    """The shortest of a few dozen families, the same ones at every call."""
    return _families()[:count]


@cache
def small_tokenizer():
    """A byte-level tokenizer of the world's words: a real one, with a vocabulary a test can afford."""
    texts = ["user assistant Passages: Question: Final answer: [0] [1] [2] [3] 1. 2. 3. 4."] * 20
    for family in _families():
        for view in family.views:
            texts += [view.question, view.answer, *view.trace.texts, *(passage.text for passage in view.evidence)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 1,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # One token for the system message, which would be most of the tokens here.
    tokenizer.add_tokens([AddedToken(load_prompt_text("response_system.md").render(), normalized=False)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=_TEMPLATE,
    )


def small_model(name="llama", **settings):
    """A random model of a real class whose vocabulary is the small tokenizer's."""
    return build(name, vocabulary=VOCABULARY, **settings)


def lora(rank=4, **settings):
    """An adapter on every linear layer."""
    return LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM", **settings)


def small_config(folder, **settings):
    """Quick settings: two epochs of updates of four, every update in the log, nothing saved."""
    quick = {
        "use_cpu": True,
        "families_per_update": 4,
        "num_train_epochs": 2,
        "logging_steps": 1,
        "learning_rate": 1e-2,
        "warmup_steps": 0,
        "save_strategy": "no",
        "demonstrations": 0,
        "disable_tqdm": True,
        "report_to": "none",
        # Memory is no concern here, and test_invariants.py holds that a run is the same with it.
        "gradient_checkpointing": False,
    }
    return EClosureConfig(output_dir=str(folder), **{**quick, **settings})


def small_trainer(folder, families, held_out=None, *, model=None, peft_config="lora", callbacks=None, **settings):
    """A trainer on a small model."""
    return EClosureTrainer(
        small_model() if model is None else model,
        small_config(folder, **settings),
        families,
        held_out,
        processing_class=small_tokenizer(),
        peft_config=lora() if peft_config == "lora" else peft_config,
        callbacks=callbacks,
    )


def trajectory(trainer, *names):
    """Values of every update in the log, one row per update."""
    names = names or ("loss", "grad_norm")
    return [[line[name] for name in names] for line in trainer.state.log_history if "loss" in line]
