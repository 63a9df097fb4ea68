"""Decoding on the CPU: the same tokens as Transformers generates, without copies."""

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from tests.models import tiny
from transformers import MistralConfig, MistralForCausalLM
from transformers.cache_utils import DynamicLayer

from eclose.models.local import fast_decoding
from eclose.models.local.fast_decoding import BufferedLayer, build_buffered_cache, decode_fast

pytestmark = pytest.mark.torch

PROMPTS, NEW = 5, 12


def padded_prompts(width=9):
    """Prompts of several lengths, padded on the left, and their mask."""
    ids = torch.randint(5, 90, (PROMPTS, width), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(width) >= torch.arange(PROMPTS)[:, None]).long()
    return ids, mask


def generate(model, **settings):
    ids, mask = padded_prompts()
    return model.generate(
        input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=NEW, pad_token_id=0, **settings
    )


@pytest.fixture
def model():
    model = tiny.model()
    assert model.config.num_attention_heads > model.config.num_key_value_heads
    return model.eval()


def test_tokens_are_those_of_transformers_and_the_model_is_left_as_it_was(model, monkeypatch):
    folded = []
    attention = torch.nn.functional.scaled_dot_product_attention
    expected = generate(model)

    def attend(query, key, value, **settings):
        folded.append(query.shape[1] == key.shape[1] == model.config.num_key_value_heads)
        return attention(query, key, value, **settings)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    with decode_fast(model, padded_prompts()[0].shape[1] + NEW) as settings:
        decoded = generate(model, **settings)
    assert torch.equal(decoded, expected)
    # The prompt is short enough to be folded too, so every call is.
    assert len(folded) == NEW * model.config.num_hidden_layers
    assert all(folded)
    assert model.config._attn_implementation == "sdpa"


def test_a_prompt_is_computed_as_transformers_does(model, monkeypatch):
    monkeypatch.setattr(fast_decoding, "_LONGEST_STEP", 1)
    expected = generate(model)
    with decode_fast(model, padded_prompts()[0].shape[1] + NEW) as settings:
        assert torch.equal(generate(model, **settings), expected)


def test_a_step_copies_its_own_tokens_alone():
    layer = BufferedLayer(room=6)
    states = torch.randn(2, 3, 4, 8)
    keys, values = layer.update(states, -states)
    address = keys.data_ptr()
    more = torch.randn(2, 3, 1, 8)
    keys, values = layer.update(more, -more)
    assert keys.data_ptr() == address
    assert torch.equal(keys, torch.cat([states, more], dim=2))
    assert torch.equal(values, -keys)
    assert layer.get_seq_length() == 5
    layer.batch_select_indices(torch.tensor([1]))
    assert torch.equal(layer.keys, torch.cat([states, more], dim=2)[1:])


def test_sliding_windows_keep_their_own_layers():
    config = MistralConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=4,
    )
    torch.manual_seed(3)
    model = MistralForCausalLM(config).eval()
    assert not any(isinstance(layer, BufferedLayer) for layer in build_buffered_cache(config, 20).layers)
    expected = generate(model)
    with decode_fast(model, 21) as settings:
        assert torch.equal(generate(model, **settings), expected)


def test_another_attention_is_left_alone(model):
    model.set_attn_implementation("eager")
    with decode_fast(model, 20) as settings:
        assert settings == {}
        assert model.config._attn_implementation == "eager"


def test_an_error_leaves_the_model_as_it_was(model):
    with pytest.raises(RuntimeError), decode_fast(model, 20):
        raise RuntimeError
    assert model.config._attn_implementation == "sdpa"
    assert type(build_buffered_cache(model.config, 1).layers[0]) is not DynamicLayer
