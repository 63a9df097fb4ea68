"""Who is kin to whom, by the names models have in the wild."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.values.model_family import same_model_family

KIN = [
    ("openai/gpt-5-mini", "gpt-4o-2024-08-06"),
    ("openai/o3-mini", "azure/gpt-4.1"),
    ("openai/o1", "openai/chatgpt-4o-latest"),
    ("openrouter/openai/gpt-oss-120b", "openai/gpt-4o"),
    ("anthropic/claude-sonnet-4-5-20250929", "bedrock/us.anthropic.claude-3-5-haiku-20241022-v1:0"),
    ("google/gemini-2.5-flash", "google/gemma-3-27b-it"),
    ("vllm/Qwen/Qwen3-32B-AWQ", "qwen2.5-0.5b-instruct-q4_k_m.gguf"),
    ("Qwen/QwQ-32B", "qwen3:8b"),
    ("meta-llama/Llama-3.3-70B-Instruct", "llama3.1:8b"),
    ("groq/llama-3.3-70b-versatile", "TinyLlama-1.1B-Chat-v1.0"),
    ("mistral/ministral-8b-latest", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
    ("mistralai/Magistral-Small-2506", "open-mistral-7b"),
    ("deepseek/deepseek-chat", "deepseek-ai/DeepSeek-R1"),
    ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "Qwen/Qwen3-8B"),
    ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseek-v3"),
    ("microsoft/phi-4", "Phi-3-mini-4k-instruct"),
    ("SmolLM2-360M-Instruct@0123456789ab", "HuggingFaceTB/SmolLM2-1.7B"),
    ("xai/grok-4", "grok-3-mini"),
    ("cohere/command-r-plus-08-2024", "command-a"),
    ("zai-org/GLM-4.6", "chatglm3-6b"),
    ("Qwen3-8B+closure-42@0123456789ab", "qwen3-32b"),
    ("NousResearch/Hermes-3-Llama-3.1-8B", "llama-2-7b"),
    ("acme/zorp-7b-instruct", "other/zorp-70b-chat-q4_k_m.gguf"),
    ("zorp", "ZORP"),
    ("7b", "7b"),
]
STRANGERS = [
    ("openai/gpt-5-mini", "anthropic/claude-sonnet-4-5"),
    ("ollama/qwen3:8b", "meta-llama/Llama-3.1-8B"),
    ("mistral/gpt-4o", "mistral/mistral-large-latest"),
    ("cognitivecomputations/dolphin3", "microsoft/phi-3"),
    ("EleutherAI/gpt-j-6b", "openai/gpt-4o"),
    ("EleutherAI/gpt-neo-2.7B", "gpt2"),
    ("acme/zorp-7b", "acme/zarp-7b"),
    ("zorp", "gpt-4o"),
    ("gpt-4o", "zorp"),
    ("foo1", "o1"),
    ("7b", "8b"),
    ("commandeer", "command-r"),
    ("supernova", "amazon/nova-pro"),
]


@pytest.mark.parametrize(("judge", "source"), KIN)
def test_kin(judge, source):
    assert same_model_family(judge, source)
    assert same_model_family(source, judge)


@pytest.mark.parametrize(("judge", "source"), STRANGERS)
def test_strangers(judge, source):
    assert not same_model_family(judge, source)
    assert not same_model_family(source, judge)


@pytest.mark.parametrize("source", [None, "", "  "])
def test_who_is_unknown_is_no_kin(source):
    assert same_model_family("gpt-4o", source) is False


@pytest.mark.slow
@given(st.text(min_size=1).filter(str.strip), st.text())
def test_everybody_is_kin_to_itself_and_kinship_goes_both_ways(one, other):
    assert same_model_family(one, one)
    if other.strip():
        assert same_model_family(one, other) == same_model_family(other, one)
