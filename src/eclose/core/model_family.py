"""Whether two models are of one family, by their names: a judge may be kind to its own kin.

A name says who made a model, not what it was trained on. This is enough for a warning, and for nothing more.
"""

from __future__ import annotations

import re

# Each family by what its models are called. Distilled and fine-tuned models belong to every family they name.
_FAMILIES = {
    "OpenAI": r"(?:chat)?gpt(?!-?(?:neo|j\b))|o[1-9](?=$|-)|davinci|codex",
    "Claude": r"claude",
    "Google": r"gemini|gemma|palm|bison",
    "Qwen": r"qwen|qwq|qvq",
    "Llama": r"(?:tiny|code|open)?llama|vicuna|alpaca",
    "Mistral": r"mistral|ministral|mixtral|magistral|codestral|devstral|pixtral|voxtral|zephyr",
    "DeepSeek": r"deepseek",
    "Phi": r"phi-?\d",
    "SmolLM": r"smol(?:lm|vlm)",
    "Grok": r"grok",
    "Cohere": r"command(?=$|-)|c4ai|aya(?=$|-)",
    "GLM": r"(?:chat)?glm",
    "Kimi": r"kimi|moonshot",
    "OLMo": r"olmo|tulu",
    "Granite": r"granite",
    "Nemotron": r"nemotron",
    "Nova": r"nova(?=$|-)",
    "Falcon": r"falcon",
    "Yi": r"yi(?=$|-)",
    "InternLM": r"internlm",
    "MiniMax": r"minimax",
    "Hunyuan": r"hunyuan",
    "ERNIE": r"ernie",
    "EXAONE": r"exaone",
    "Jamba": r"jamba",
    "StableLM": r"stablelm",
    "EleutherAI": r"gpt-?(?:neo|j\b)|pythia",
}
# A family's name begins a word: "dolphin3" holds no Phi. Digits may follow at once: "qwen3", "llama2".
_KNOWN = {family: re.compile(rf"(?<![a-z0-9])(?:{names})") for family, names in _FAMILIES.items()}
# What tells versions of one model apart: its size, date, quantisation and kind of training.
_VERSION = re.compile(
    r"""\d+(?:\.\d+)?[bm](?:-?a\d+b)? | 20\d\d-?\d\d-?\d\d | \d{4} | v?\d+(?:\.\d+)*
      | gguf | ggml | awq | gptq | exl2 | mlx | bnb | [48]bit | int[48] | u?fp?(?:4|8|16|32) | bf16
      | instruct | chat | it | base | latest | preview""",
    re.VERBOSE,
)
_QUANTISED = re.compile(r"(?<![a-z0-9])i?q\d(?:_[a-z0-9]+)*$")


def same_family(judge_name: str, source: str | None) -> bool:
    """Whether a judge is of the family of the model whose responses it judges; False where that is not known.

    >>> same_family("openai/gpt-5-mini", "azure/gpt-4o-2024-08-06")
    True
    >>> same_family("anthropic/claude-sonnet-4-5", "qwen/qwen3-8b")
    False
    """
    if source is None or not source.strip():
        return False
    judge, judged = _model(judge_name), _model(source)
    return bool(_families(judge) & _families(judged)) or _stem(judge) == _stem(judged)


def _model(name: str) -> str:
    """The model alone: without its provider, its adapter, the hash of its weights and the end of its file's name."""
    bare = name.strip().lower().partition("@")[0].partition("+")[0].rstrip("/")
    return bare.rpartition("/")[2].removesuffix(".gguf")


def _families(model: str) -> frozenset[str]:
    # A provider's path may come with dots: "us.anthropic.claude-3-5-haiku".
    return frozenset(family for family, names in _KNOWN.items() if names.search(model.replace(".", "-")))


def _stem(model: str) -> str:
    """What is left of a name nobody knows without its version; all of it if it is nothing else."""
    words = re.split(r"[-_:\s]", _QUANTISED.sub("", model))
    return "-".join(word for word in words if word and not _VERSION.fullmatch(word)) or model
