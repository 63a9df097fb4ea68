"""Recipes: YAML, flags and Python say the same by the same names, and all mistakes come back together."""

from dataclasses import fields

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from eclose.errors import SettingError, UserError
from eclose_train.training.config import EClosureConfig
from eclose_train.training.recipe import TrainedModelSettings, TrainingRecipe, parse_recipe_flags, read_recipe


def yaml_file(tmp_path, text):
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_yaml_flags_and_python_say_the_same(tmp_path):
    path = yaml_file(
        tmp_path,
        """
model: some/name
lora_rank: 8
method: rm
learning_rate: 1e-4
num_train_epochs: 3
full_determinism: true
target_margin: {S: 0.1, T: 0.2, C: 0.3}
lora_targets: [q_proj, v_proj]
""",
    )
    words = [
        *("--model", "some/name"),
        *("--lora-rank", "8"),
        *("--method", "rm"),
        *("--learning-rate", "1e-4"),
        "--num-train-epochs=3",
        "--full-determinism",
        *("--target_margin", "{S: 0.1, T: 0.2, C: 0.3}"),
        *("--lora-targets", "[q_proj, v_proj]"),
    ]
    written = TrainingRecipe(
        TrainedModelSettings("some/name", lora_rank=8, lora_targets=["q_proj", "v_proj"]),
        {
            "method": "rm",
            "learning_rate": 1e-4,
            "num_train_epochs": 3.0,
            "full_determinism": True,
            "target_margin": {"S": 0.1, "T": 0.2, "C": 0.3},
        },
    )
    assert read_recipe(path, {}) == read_recipe(None, parse_recipe_flags(words)) == written


@pytest.mark.slow
def test_every_field_can_be_set_by_its_name():
    """Of ours and of Transformers'; where a run lies is the command's to say."""
    settings = {field.name for kind in (EClosureConfig, TrainedModelSettings) for field in fields(kind) if field.init}
    problems = []
    for name in sorted(settings - {"output_dir", "model"}):
        try:
            read_recipe(None, {"model": "m", name: object()})
        except SettingError as error:
            problems += [name] if "no such setting" in str(error) else []
    assert problems == []


def test_the_config_is_made_of_the_recipe(tmp_path):
    recipe = read_recipe(None, {"model": "m", "learning_rate": "1e-4", "method": "sft", "use_cpu": True})
    config = recipe.config(tmp_path, eval_strategy="no")
    assert (config.learning_rate, config.method, config.output_dir) == (1e-4, "sft", str(tmp_path))


def test_flags_come_before_the_file(tmp_path):
    path = yaml_file(tmp_path, "model: m\nmethod: sft\nseed: 1\n")
    recipe = read_recipe(path, parse_recipe_flags(["--method", "rm"]))
    assert recipe.training == {"method": "rm", "seed": 1}


@pytest.mark.parametrize("written", ["1e-4", "0.0001", "1.0e-4", "'1e-4'"])
def test_numbers_are_numbers_however_they_are_written(tmp_path, written):
    """YAML reads 1e-4 as a text."""
    recipe = read_recipe(yaml_file(tmp_path, f"model: m\nlearning_rate: {written}\n"), {})
    assert recipe.training["learning_rate"] == 1e-4
    assert (
        read_recipe(None, parse_recipe_flags(["--model", "m", "--learning-rate", written])).training == recipe.training
    )


def test_all_mistakes_are_told_at_once(tmp_path):
    path = yaml_file(
        tmp_path,
        "lerning_rate: 1\nfamilies_per_update: many\nseed: 1.5\nqqqq: 2\noutput_dir: x\nlora_rank: [1]\n",
    )
    with pytest.raises(SettingError) as error:
        read_recipe(path, {})
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "lerning_rate: no such setting; did you mean learning_rate?" in message
    assert "families_per_update = 'many'" in message
    assert "seed = 1.5" in message
    assert "qqqq: no such setting;" in message or "qqqq: no such setting" in message
    assert "output_dir: no such setting" in message
    assert "lora_rank = [1]" in message
    assert "model: is missing; name the weights to train" in message


def test_a_model_must_be_named():
    with pytest.raises(SettingError, match="settings: model: is missing"):
        read_recipe(None, {})
    with pytest.raises(SettingError) as error:
        read_recipe(None, {"model": 7})
    assert "model = 7" in str(error.value)
    assert "is missing" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--bf16", "false"], {"bf16": False}),
        (["--bf16"], {"bf16": True}),
        (["--margin-weight", "-1"], {"margin_weight": -1}),
        (["--report-to=tensorboard"], {"report_to": "tensorboard"}),
        (["--report-to", "none"], {"report_to": "none"}),
        (["--full-determinism", "--seed", "3"], {"full_determinism": True, "seed": 3}),
        (["--model", "a: b: c"], {"model": "a: b: c"}),
        (["--revision="], {"revision": None}),
        ([], {}),
    ],
)
def test_flags(words, expected):
    assert parse_recipe_flags(words) == expected


def test_a_value_without_a_name_is_refused():
    with pytest.raises(SettingError, match="'rm': there is no setting before this value"):
        parse_recipe_flags(["--method", "sft", "rm"])


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words", "", "1: 2\n"])
def test_a_recipe_is_names_and_values(tmp_path, text):
    with pytest.raises(UserError, match="a recipe consists of `name: value` lines"):
        read_recipe(yaml_file(tmp_path, text), {})


def test_what_is_not_yaml_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"recipe\.yaml: is not YAML"):
        read_recipe(yaml_file(tmp_path, "model: [a\n"), {})
    with pytest.raises(UserError, match="there is no such file"):
        read_recipe(tmp_path / "none.yaml", {})


@pytest.mark.parametrize(
    "wrong",
    [{"lr_scheduler_type": "steep"}, {"eval_strategy": "sometimes"}, {"optim": "magic"}, {"save_strategy": "never"}],
)
def test_what_transformers_refuses_is_a_sentence_too(tmp_path, wrong):
    (name,) = wrong
    with pytest.raises(SettingError, match=str(wrong[name])):
        read_recipe(None, {"model": "m", "use_cpu": True, **wrong}).config(tmp_path)
