"""Comparison of model families by name, because a judge may favour models of its own family.

A name shows who published a model, not what it was trained on, so the result justifies a warning only.
"""

from __future__ import annotations

import re

# Families by the names of their models. Distilled and fine-tuned models belong to every family in their name.
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
# A family name starts a word: "dolphin3" is no Phi. Digits may follow directly: "qwen3", "llama2".
_PATTERNS = {family: re.compile(rf"(?<![a-z0-9])(?:{names})") for family, names in _FAMILIES.items()}
# Parts of a name that distinguish versions of one model: size, date, quantisation, kind of training.
_VERSION = re.compile(
    r"""\d+(?:\.\d+)?[bm](?:-?a\d+b)? | 20\d\d-?\d\d-?\d\d | \d{4} | v?\d+(?:\.\d+)*
      | gguf | ggml | awq | gptq | exl2 | mlx | bnb | [48]bit | int[48] | u?fp?(?:4|8|16|32) | bf16
      | instruct | chat | it | base | latest | preview""",
    re.VERBOSE,
)
_QUANTISED = re.compile(r"(?<![a-z0-9])i?q\d(?:_[a-z0-9]+)*$")


def same_model_family(judge_name: str, source: str | None) -> bool:
    """Return whether a judge and the model whose responses it judges are of one family; False for an unknown source.

    >>> same_model_family("openai/gpt-5-mini", "azure/gpt-4o-2024-08-06")
    True
    >>> same_model_family("anthropic/claude-sonnet-4-5", "qwen/qwen3-8b")
    False
    """
    if source is None or not source.strip():
        return False
    judge, judged = _bare_model_name(judge_name), _bare_model_name(source)
    return bool(_families(judge) & _families(judged)) or _stem(judge) == _stem(judged)


def _bare_model_name(name: str) -> str:
    """Return the name without provider, adapter, hash of the weights and file extension."""
    bare = name.strip().lower().partition("@")[0].partition("+")[0].rstrip("/")
    return bare.rpartition("/")[2].removesuffix(".gguf")


def _families(model: str) -> frozenset[str]:
    # Some providers separate their path by dots: "us.anthropic.claude-3-5-haiku".
    return frozenset(family for family, pattern in _PATTERNS.items() if pattern.search(model.replace(".", "-")))


def _stem(model: str) -> str:
    """Return the name of an unlisted model without version parts; the full name where nothing else remains."""
    words = re.split(r"[-_:\s]", _QUANTISED.sub("", model))
    return "-".join(word for word in words if word and not _VERSION.fullmatch(word)) or model
