"""Several processes: started as the guide says, they train what one process trains, and go on where any number stopped.

Where a launcher is not what is tried, processes are forked from one that has imported torch, with the variables that
torchrun would set.
Sums over processes are taken in another order, so numbers agree to rounding: the tolerances below are about ten times
what was measured.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from safetensors.torch import load_file

from eclose.files.jsonl import write_records
from eclose_train.training.recipe import read_recipe
from tests.training.small import short_families

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[4]
HELPER = Path(__file__).with_name("sharded.py")
RECIPES = ROOT / "packages" / "eclose-train" / "recipes"
MAY_DIFFER = ("runtime", "per_second", "tree/", "total_flos", "train_loss")
"""Times, how an update was cut into forwards, and the mean loss since the process began."""
# This checkout's package, also where another one is installed.
SOURCES = os.pathsep.join(map(str, (ROOT, *sorted(ROOT.glob("packages/*")), *sorted(ROOT.glob("packages/*/src")))))
QUIET = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1", "PYTHONPATH": SOURCES}
PATIENCE = 300

# Seven families in updates of three: two processes have two and one of them, then one and a stand-in. A forward takes
# one family, so that processes also differ in their number of forwards. Checkpoints in the middle of an epoch are for
# safety and gone at the end; packages/eclose-train/tests/training/test_kill.py goes on from one.
SETTINGS = {
    "families-per-update": 3,
    "tokens-per-forward": 1,
    "num-train-epochs": 2,
    "learning-rate": 1e-3,
    "warmup-steps": 0,
    "logging-steps": 1,
    "save-strategy": "steps",
    "save-steps": 2,
    "demonstrations": 0,
    "lora-rank": 4,
    "use-cpu": True,
}
UPDATES = 6
ROUNDING = {"loss": 3e-6, "margin": 3e-5, "weight": 3e-5}
SHARDED_ROUNDING = {"loss": 1e-5, "margin": 5e-5, "weight": 2e-4}


def start(command, **environment):
    """What a command said; it and all it started are ended when it takes too long."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **QUIET, **environment},
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        pytest.fail(f"no end after {PATIENCE} seconds: {' '.join(command)}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, output


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def torchrun(processes, *words):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
    return [*launcher, "--master_addr", "127.0.0.1", "--master_port", free_port(), *words]


@pytest.fixture(scope="module")
def forked(forks, tmp_path_factory):
    """Run a program in a number of forked processes: its exit code and output."""

    def begin(processes, program, words, **environment):
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": str(processes)}
        group |= {"LOCAL_WORLD_SIZE": str(processes)} | environment
        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), **group} for rank in range(processes)]
        output = tmp_path_factory.mktemp("output") / "output.txt"
        return forks.run(program, words, output, [environment] if processes == 1 else ranks)

    return begin


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Seven families to train on, three to evaluate on."""
    folder = tmp_path_factory.mktemp("families")
    families = short_families(10)
    write_records(folder / "train.jsonl", families[:7])
    write_records(folder / "development.jsonl", families[7:])
    return folder / "train.jsonl", folder / "development.jsonl"


@pytest.fixture(scope="module")
def words(files, model_folder):
    """The command's words for a run in a folder."""

    def arguments(out, processes, **settings):
        values = {"model": model_folder, "processes": processes, **SETTINGS, **settings}
        flags = [word for name, value in values.items() for word in (f"--{name}", str(value))]
        return ["train", str(files[0]), "--development", str(files[1]), "--out", str(out), *flags]

    return arguments


@pytest.fixture(scope="module")
def run(words, forked, tmp_path_factory):
    """Train, and give the folder and what was said."""

    def begin(processes, out=None, **settings):
        out = out or tmp_path_factory.mktemp("run") / "run"
        code, output = forked(processes, "eclose.cli.main", words(out, processes, **settings))
        assert code == 0, output
        return out, output

    return begin


@pytest.fixture(scope="module")
def sharded(words, forked, tmp_path_factory):
    """The same under FSDP2, as packages/eclose-train/recipes/accelerate/fsdp2.yaml sets it up."""
    settings = {name: value for name, value in launch_environment("fsdp2").items() if "FSDP" in name}

    def begin(out=None, **more):
        out = out or tmp_path_factory.mktemp("run") / "run"
        code, output = forked(2, str(HELPER), words(out, 2, **more), **settings)
        assert code == 0, output
        assert output.count("sharded 28 of 28") == 2, output
        return out, output

    return begin


@pytest.fixture(scope="module")
def one(run):
    """The run that all others must equal."""
    return run(1)[0]


@pytest.fixture(scope="module")
def two(words, tmp_path_factory):
    """Two processes, as the guide starts them."""
    out = tmp_path_factory.mktemp("run") / "run"
    code, output = start(torchrun(2, "-m", "eclose.cli.main", *words(out, 2)), ACCELERATE_USE_CPU="true")
    assert code == 0, output
    return out, output


@pytest.fixture(scope="module")
def two_sharded(sharded):
    return sharded()[0]


def stopped(done, folder):
    """A copy of a run as it was after its first epoch."""
    out = folder / "stopped"
    shutil.copytree(done, out)
    for name in ("manifest.json", "metrics.jsonl"):
        (out / name).unlink()
    for name in ("adapter", "checkpoint-6"):
        shutil.rmtree(out / name)
    return out


def log_lines(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [
        {name: value for name, value in line.items() if not any(part in name for part in MAY_DIFFER)} for line in lines
    ]


def adapter(out):
    return load_file(out / "adapter" / "adapter_model.safetensors")


def assert_same(result, expected, *, loss, margin, weight):
    """Equal logs and adapters. Margins are small differences of large numbers and have a tolerance of their own."""
    lines, others = log_lines(expected), log_lines(result)
    assert [sorted(line) for line in others] == [sorted(line) for line in lines]
    assert sum("grad_norm" in line for line in lines) == UPDATES
    assert sum("eval_loss" in line for line in lines) == 2
    apart = {"loss": 0.0, "margin": 0.0, "weight": 0.0}
    for line, other in zip(lines, others, strict=True):
        for name, value in line.items():
            kind = "margin" if "margin" in name else "loss"
            size = 1.0 if kind == "margin" else max(1.0, abs(value))
            apart[kind] = max(apart[kind], abs(other[name] - value) / size)
    weights, learnt = adapter(expected), adapter(result)
    assert weights.keys() == learnt.keys()
    apart["weight"] = max((weights[name] - learnt[name]).abs().max().item() for name in weights)
    assert apart["loss"] < loss, apart
    assert apart["margin"] < margin, apart
    assert apart["weight"] < weight, apart


@pytest.mark.slow
def test_two_processes_train_what_one_does(one, two):
    assert_same(two[0], one, **ROUNDING)


@pytest.mark.slow
def test_two_processes_speak_with_one_voice(two):
    out, output = two
    assert output.count("update 1/6") == 1
    assert output.count("held out") == 2
    assert output.count("families: 7 received = 7 accepted") == 1
    assert output.count("adapter: 7 received = 7 accepted") == 1
    assert sorted(path.name for path in out.iterdir()) == [
        "adapter",
        "admission.development.json",
        "admission.json",
        "checkpoint-3",
        "checkpoint-6",
        "left_out.jsonl",
        "manifest.json",
        "metrics.jsonl",
        "recipe.json",
        "sessions.json",
    ]


@pytest.mark.slow
# In short: from one to two.
@pytest.mark.parametrize(
    ("begun", "resumed"), [(1, 2), *(pytest.param(2, resumed, marks=pytest.mark.study) for resumed in (1, 2))]
)
def test_any_number_of_processes_goes_on_where_any_other_stopped(run, one, two, tmp_path, begun, resumed):
    out, output = run(resumed, stopped(two[0] if begun == 2 else one, tmp_path))
    assert f"resumed from {out}/checkpoint-3" in output
    assert "update 3/6" not in output
    assert_same(out, one, **ROUNDING)


@pytest.mark.study  # test_accelerate_understands_our_configurations holds the number of processes
@pytest.mark.slow
def test_a_launcher_that_starts_one_process_is_found_out(words, tmp_path):
    """`accelerate launch --cpu` starts one process, whatever it is told."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    code, output = start([*command, "-m", "eclose.cli.main", *words(tmp_path / "run", 2)])
    assert code != 0
    assert "processes = 2, but 1 started." in output
    assert "ACCELERATE_USE_CPU=true torchrun --nproc_per_node 2" in output
    assert not (tmp_path / "run" / "checkpoint-2").exists()


@pytest.mark.study  # in short: the two processes of torchrun, and what Accelerate understands
@pytest.mark.slow
def test_accelerate_launch_starts_as_many_as_our_configuration_says(words, one, tmp_path):
    command = [sys.executable, "-m", "accelerate.commands.launch", "--main_process_port", "0"]
    command += ["--config_file", str(RECIPES / "accelerate" / "ddp_cpu.yaml")]
    code, output = start([*command, "-m", "eclose.cli.main", *words(tmp_path / "run", 2)])
    assert code == 0, output
    assert_same(tmp_path / "run", one, **ROUNDING)


@pytest.mark.slow
def test_a_sharded_model_trains_as_a_whole_one_does(one, two_sharded):
    """Also a proof that nothing waits for ever: processes meet in every forward and have unequally many families."""
    assert_same(two_sharded, one, **SHARDED_ROUNDING)


@pytest.mark.study  # in short: test_a_sharded_model_trains_as_a_whole_one_does, and trees by both backends
@pytest.mark.slow
def test_a_sharded_model_is_scored_alike_by_a_mask(one, sharded):
    assert_same(sharded(backend="sdpa")[0], one, **SHARDED_ROUNDING)


@pytest.mark.study  # in short: a sharded run to its end, and one of two processes that goes on
@pytest.mark.slow
def test_a_sharded_run_goes_on_where_it_stopped(sharded, one, two_sharded, tmp_path):
    out, output = sharded(stopped(two_sharded, tmp_path))
    assert "resumed from" in output
    assert "update 3/6" not in output
    assert_same(out, one, **SHARDED_ROUNDING)


# ---- recipes ----


def launch_arguments(name):
    """What `accelerate launch` makes of one of our configurations."""
    path = RECIPES / "accelerate" / f"{name}.yaml"
    arguments = launch_command_parser().parse_args(["--config_file", str(path), "--main_process_port", "0", "x.py"])
    options = set(vars(arguments))
    config = load_config_from_file(str(path))
    assert {*config.fsdp_config, *config.deepspeed_config} <= options, "a setting that Accelerate would pass over"
    return _validate_launch_command(arguments)[0]


def launch_environment(name):
    return prepare_multi_gpu_env(launch_arguments(name))


@pytest.mark.parametrize(
    ("name", "kind", "processes"),
    [
        ("ddp", "multi_gpu", 4),
        ("ddp_cpu", "multi_gpu", 2),
        ("fsdp2", "use_fsdp", 4),
        ("deepspeed_zero2", "use_deepspeed", 4),
        ("deepspeed_zero3", "use_deepspeed", 4),
    ],
)
def test_accelerate_understands_our_configurations(name, kind, processes):
    """DeepSpeed is not installed here, so of its two nothing but the form is checked."""
    arguments = launch_arguments(name)
    kinds = ("multi_gpu", "use_fsdp", "use_deepspeed", "tpu", "use_megatron_lm", "cpu")
    assert {kind for kind in kinds if getattr(arguments, kind)} == {kind}
    assert arguments.num_processes == processes
    assert arguments.mixed_precision == ("no" if name == "ddp_cpu" else "bf16")


def test_there_is_a_test_for_every_configuration():
    assert sorted(path.stem for path in (RECIPES / "accelerate").iterdir()) == [
        "ddp",
        "ddp_cpu",
        "deepspeed_zero2",
        "deepspeed_zero3",
        "fsdp2",
    ]


def test_fsdp2_is_what_the_launcher_hands_on():
    environment = launch_environment("fsdp2")
    assert {name: environment[name] for name in environment if name.startswith("FSDP") and "PREFETCH" not in name} == {
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_RESHARD_AFTER_FORWARD": "true",
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
        "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
        "FSDP_ACTIVATION_CHECKPOINTING": "false",
        "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD": "false",
        "FSDP_OFFLOAD_PARAMS": "false",
        "FSDP_MIN_NUM_PARAMS": "100000000",
        "FSDP_SHARDING_STRATEGY": "FULL_SHARD",
        "FSDP_SYNC_MODULE_STATES": "true",
        "FSDP_USE_ORIG_PARAMS": "true",
    }


@pytest.mark.parametrize("path", sorted((RECIPES / "train").iterdir()), ids=lambda path: path.stem)
def test_recipes_have_known_settings(path, tmp_path):
    recipe = read_recipe(path, {})
    config = recipe.config(tmp_path, use_cpu=True, bf16=False)
    assert config.method == "e_closure"
    assert recipe.model.model.count("/") == 1


PAPER = {
    "qwen3-8b": ("Qwen/Qwen3-8B", 5e-5),
    "qwen3-32b": ("Qwen/Qwen3-32B", 5e-5),
    "ministral-3-8b": ("mistralai/Ministral-3-8B-Instruct-2512", 1e-4),
}


@pytest.mark.parametrize("name", PAPER)
def test_recipes_of_the_paper_say_what_it_says(name, tmp_path):
    """Appendix D.4, table of hyperparameters."""
    recipe = read_recipe(RECIPES / "train" / f"{name}.yaml", {})
    assert (recipe.model.model, recipe.training["learning_rate"]) == PAPER[name]
    assert (recipe.model.lora_rank, recipe.model.lora_alpha, recipe.model.lora_dropout) == (16, 32, 0)
    assert recipe.training["bf16"] is True
    config = recipe.config(tmp_path, use_cpu=True, bf16=False)
    assert config.families_per_update == 8
    assert (config.num_train_epochs, config.warmup_steps, config.lr_scheduler_type) == (5, 50, "linear")
    assert (config.weight_decay, config.max_grad_norm, config.max_length) == (0, 1, 8_192)
    assert (config.margin_weight, config.target_margin, config.smoothing) == (1, 0.5, 0.1)
    assert config.gradient_checkpointing
    assert config.save_strategy == "epoch"
    assert config.optim.startswith("adamw_torch")
    # "Fixed random seeds, CUDA determinism settings" (reproducibility statement).
    assert config.full_determinism


def test_ministral_is_adapted_in_its_language_alone():
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration

    small = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "head_dim": 16}
    text = {**small, "model_type": "ministral3", "vocab_size": 99, "num_hidden_layers": 2, "num_key_value_heads": 1}
    vision = {**small, "model_type": "pixtral", "num_hidden_layers": 1, "image_size": 28, "patch_size": 14}
    model = Mistral3ForConditionalGeneration(Mistral3Config(text_config=text, vision_config=vision))
    language = [
        name for name, part in model.named_modules() if isinstance(part, torch.nn.Linear) and ".language_model." in name
    ]
    targets = read_recipe(RECIPES / "train" / "ministral-3-8b.yaml", {}).model.lora_targets
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=targets, task_type="CAUSAL_LM"))
    assert sorted(adapted.targeted_module_names) == sorted(language)
    assert len(language) == 14
