"""Settings: the paper's by default, everything wrong refused at once, the same names everywhere."""

import warnings
from dataclasses import fields

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from eclose.errors import SettingError
from eclose.prompts.response_prompt import PromptOrder
from eclose_train.likelihood.score import AttentionBackend, ScoringStrategy
from eclose_train.likelihood.spans import ScoredTokens
from eclose_train.training.config import EClosureConfig
from eclose_train.training.objective import MarginHinge, TrainingMethod
from eclose_train.training.recipe import MODEL_HELP, RESULT_NEUTRAL_SETTINGS, TrainedModelSettings
from tests.training.small import short_families, small_config, small_trainer

pytestmark = pytest.mark.torch

HELP = {
    field.name: field.metadata.get("help", "")
    for field in fields(EClosureConfig)
    if field.name in EClosureConfig.__annotations__
}


@pytest.mark.parametrize("given", [{}, {"gradient_checkpointing": False}])
def test_settings_that_transformers_renamed_warn_of_nothing(given):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        config = EClosureConfig(output_dir="nowhere", use_cpu=True, **given)
    assert config.gradient_checkpointing is given.get("gradient_checkpointing", True)
    assert getattr(config, "activation_checkpointing", config.gradient_checkpointing) is config.gradient_checkpointing
    assert not {"gradient_checkpointing", "activation_checkpointing"} - RESULT_NEUTRAL_SETTINGS


@pytest.mark.skipif(
    "activation_checkpointing" not in {field.name for field in fields(EClosureConfig)},
    reason="Transformers before 5.23 knows the first name alone",
)
def test_the_new_name_of_a_setting_decides():
    config = EClosureConfig(output_dir="nowhere", use_cpu=True, activation_checkpointing=False)
    assert not config.gradient_checkpointing


def test_defaults_are_the_papers():
    """The table of training hyperparameters, row by row (appendix D.4)."""
    config = EClosureConfig(output_dir="nowhere", use_cpu=True)
    model = TrainedModelSettings("any")
    assert model.lora_targets == "all-linear"
    assert (model.lora_rank, model.lora_alpha, model.lora_dropout) == (16, 32, 0)
    assert config.gradient_checkpointing
    # One pack on each of four GPUs, two microsteps: an update is eight, whatever the hardware.
    assert config.families_per_update == 8
    assert config.gradient_accumulation_steps == 1
    assert config.num_train_epochs == 5
    assert config.seed == 42
    assert config.optim in ("adamw_torch", "adamw_torch_fused")
    assert config.learning_rate == 5e-5
    assert (config.lr_scheduler_type, config.warmup_steps) == ("linear", 50)
    assert (config.weight_decay, config.max_grad_norm) == (0, 1.0)
    assert config.max_length == 8_192
    assert config.save_strategy == "epoch"
    assert config.margin_weight == 1
    assert (config.target_margin, config.smoothing) == (0.5, 0.1)
    assert set(config.hinges().values()) == {MarginHinge(0.5, 0.1)}
    assert config.method == "e_closure"


def test_the_papers_budget_follows():
    """2,566 families in five epochs are 1,605 updates, 321 an epoch."""
    config = EClosureConfig(output_dir="nowhere", use_cpu=True)
    assert 5 * -(-2_566 // config.families_per_update) == 1_605


def test_half_precision_is_taken_where_a_gpu_offers_it(monkeypatch):
    assert EClosureConfig(output_dir="nowhere", use_cpu=True).bf16 is False
    assert EClosureConfig(output_dir="nowhere", use_cpu=True, bf16=True).bf16 is True


def test_all_mistakes_are_told_at_once():
    with pytest.raises(SettingError) as error:
        small_config(
            "nowhere",
            method="ppo",
            order="random",
            response_tokens="some",
            strategy="forest",
            backend="magic",
            families_per_update=0,
            tokens_per_forward=0,
            max_length=-1,
            margin_weight=-1.0,
            target_margin=0.0,
            smoothing={"S": 0.1, "T": -0.1},
            gradient_accumulation_steps=2,
        )
    message = str(error.value)
    for part in (
        "method = 'ppo': choose one of sft, cf_sft, rm, e_closure",
        "order = 'random': choose one of evidence_first, question_first",
        "response_tokens = 'some': choose one of full, content",
        "strategy = 'forest': choose one of auto, naive, dedup, tree",
        "backend = 'magic': choose one of auto, sdpa, columns",
        "families_per_update = 0: must be at least 1",
        "tokens_per_forward = 0: must be at least 1",
        "max_length = -1: must be at least 1",
        "margin_weight = -1.0: must not be negative",
        "target_margin = 0.0: must be a positive number",
        "smoothing: one number for each of S, T, C, not for S, T",
        "smoothing = -0.1: must be a positive number",
        "gradient_accumulation_steps: an update has families_per_update families",
    ):
        assert part in message


@pytest.mark.parametrize("value", [True, "much", None, float("nan"), {}, {"S": 1, "T": 1, "C": 1, "Z": 1}])
def test_margins_are_positive_numbers(value):
    with pytest.raises(SettingError, match="target_margin"):
        small_config("nowhere", target_margin=value)


def test_hinges_may_differ_by_edge():
    hinges = small_config("nowhere", target_margin={"S": 0.1, "T": 0.2, "C": 0.3}, smoothing=0.4).hinges()
    assert {edge: (hinges[edge].target, hinges[edge].smoothing) for edge in "STC"} == {
        "S": (0.1, 0.4),
        "T": (0.2, 0.4),
        "C": (0.3, 0.4),
    }
    # Written as a text, as a command line would.
    assert small_config("nowhere", target_margin='{"S": 0.1, "T": 0.2, "C": 0.3}').hinges() == {
        **hinges,
        **{name: MarginHinge(hinge.target, 0.1) for name, hinge in hinges.items()},
    }


def test_the_order_of_edges_changes_no_hinge():
    margins = {"S": 0.1, "T": 0.2, "C": 0.3}
    hinges = [
        small_config("nowhere", target_margin=value).hinges() for value in (margins, dict(reversed(margins.items())))
    ]
    assert hinges[0] == hinges[1]
    assert hinges[0]["response"].target == 0.1


@pytest.mark.parametrize("method", TrainingMethod)
def test_every_method_can_be_named(method):
    assert small_config("nowhere", method=method.value).method == method


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("method", TrainingMethod),
        ("strategy", ScoringStrategy),
        ("backend", AttentionBackend),
        ("order", PromptOrder),
        ("response_tokens", ScoredTokens),
    ],
)
def test_help_names_every_choice(name, choices):
    assert [choice for choice in choices if choice not in HELP[name]] == []


def test_every_setting_of_ours_is_explained():
    assert {"method", "families_per_update", "processes", "num_train_epochs", "save_strategy"} <= set(HELP)
    assert all(len(meaning) > 15 and meaning.endswith(".") for meaning in (*HELP.values(), *MODEL_HELP.values()))
    assert set(MODEL_HELP) == {field.name for field in fields(TrainedModelSettings)}


def test_another_number_of_processes_is_refused(tmp_path):
    with pytest.raises(SettingError, match=r"processes = 4, but 1 started.*torchrun --nproc_per_node 4"):
        small_trainer(tmp_path, short_families(1), processes=4)
    small_trainer(tmp_path, short_families(1), processes=1)


def test_a_tokenizer_is_needed(tmp_path):
    from eclose_train.training.trainer import EClosureTrainer

    with pytest.raises(SettingError, match="tokenizer"):
        EClosureTrainer(None, small_config(tmp_path), short_families(1))
