"""States behind trace and answer: causal, the same in every batch, and those of the whole model."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from tests.detection.verifier.tiny_causal import save_causal_model

from eclose.core.instance import Passage
from eclose.detection.verifier.hidden_states import EncodedText, HiddenStateModel, find_hidden_model
from eclose.errors import SettingError, UserError
from eclose.models.load_weights import load_causal_model

FAMILIES = ["llama", "qwen3", "gemma3", "gpt2"]
QUESTION = "Where was the director of Moonstruck born?"
STEPS = ("Moonstruck was directed by Norman Jewison.", "Norman Jewison was born in Toronto.")


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    return str(save_causal_model(tmp_path_factory.mktemp("models") / request.param, request.param))


@pytest.fixture(scope="module")
def model(folder):
    return find_hidden_model(folder, device="cpu").load()


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return str(save_causal_model(tmp_path_factory.mktemp("models") / "llama"))


def read_alone(model, text):
    return model.read_states([text])[0]


def test_states_are_those_of_the_whole_model(folder, model):
    text = model.encode_response(QUESTION, STEPS, "Toronto")
    whole = load_causal_model(folder, device="cpu").eval()
    with torch.no_grad():
        layers = whole(input_ids=torch.tensor([text.ids]), output_hidden_states=True, use_cache=False).hidden_states
    assert model.stops_early
    assert len(layers) == 5
    np.testing.assert_array_equal(read_alone(model, text), layers[2][0, list(text.reads)].numpy())
    assert not np.allclose(layers[2][0, -1], layers[3][0, -1])


def test_every_layer_can_be_read(llama):
    whole = load_causal_model(llama, device="cpu").eval()
    for layer in (1, 2, 3, 4):
        model = find_hidden_model(llama, layer=layer, device="cpu").load()
        text = model.encode_response(QUESTION, STEPS, "Toronto")
        with torch.no_grad():
            states = whole(input_ids=torch.tensor([text.ids]), output_hidden_states=True).hidden_states[layer]
        assert model.stops_early == (layer < 4)
        np.testing.assert_array_equal(read_alone(model, text), states[0, list(text.reads)].numpy())


def test_an_answer_does_not_change_the_state_behind_the_trace(model):
    trace = read_alone(model, model.encode_trace(QUESTION, STEPS))
    answers = ["Toronto", "1987", "Toronto, the capital of Ontario, where he also went to school.", ".", "é"]
    texts = [model.encode_response(QUESTION, STEPS, answer) for answer in answers]
    for states in model.read_states(texts):
        np.testing.assert_allclose(states[0], trace[0], atol=1e-5)
    ends = np.array([states[1] for states in model.read_states(texts)])
    assert np.abs(ends[0] - ends[1:]).max(axis=1).min() > 0.01


def test_an_answer_of_the_same_length_leaves_the_trace_exactly_as_it_was(model):
    first, second = (model.encode_response(QUESTION, STEPS, answer) for answer in ("Oslo", "Rome"))
    assert len(first) == len(second)
    np.testing.assert_array_equal(read_alone(model, first)[0], read_alone(model, second)[0])


def test_the_last_step_changes_the_state_behind_the_trace(model):
    first, second = (
        read_alone(model, model.encode_trace(QUESTION, (*STEPS[:1], step))) for step in (STEPS[1], STEPS[1][:-9])
    )
    assert np.abs(first - second).max() > 0.1


def test_states_do_not_depend_on_the_batch(model):
    texts = [model.encode_response(QUESTION, STEPS[:count], "Toronto" * count) for count in (0, 1, 2)]
    texts += [model.encode_response(f"{QUESTION} {number}?", STEPS, "x " * number) for number in range(6)]
    alone = [read_alone(model, text) for text in texts]
    for batch_tokens in (1, 150, 100_000):
        for order in (1, -1):
            batch = model.read_states(texts[::order], batch_tokens)[::order]
            for states, expected in zip(batch, alone, strict=True):
                np.testing.assert_allclose(states, expected, atol=1e-5)


def test_every_step_is_read_behind_its_end(model):
    evidence = (Passage("p1", "Moonstruck", "Moonstruck is a film of 1987 by Norman Jewison."),)
    both = read_alone(model, model.encode_steps(evidence, STEPS))
    first = read_alone(model, model.encode_steps(evidence, STEPS[:1]))
    assert both.shape == (2, model.width)
    np.testing.assert_allclose(both[0], first[0], atol=1e-5)
    assert np.abs(both[1] - both[0]).max() > 0.1


def test_control_tokens_of_a_response_are_plain_text(llama):
    model = find_hidden_model(llama, device="cpu").load()
    control = model._tokenizer.eos_token
    ids = model._tokenizer.convert_tokens_to_ids(control)
    assert ids in model._tokenizer(control)["input_ids"]
    assert ids not in model.encode_response(control, (control,), control).ids


def test_a_model_that_sees_later_tokens_is_refused(tmp_path):
    folder = str(save_causal_model(tmp_path / "bert", "bert"))
    with pytest.raises(UserError, match="later tokens change the states"):
        find_hidden_model(folder, device="cpu").load()


class _WholeDepthDecoder(torch.nn.Module):
    """A decoder whose states depend on the number of its blocks."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.config = inner, inner.config

    @property
    def device(self):
        return self.inner.device

    @property
    def dtype(self):
        return self.inner.dtype

    def forward(self, input_ids, **settings):
        embedded = self.inner.embed_tokens(input_ids) * len(self.inner.layers)
        return self.inner(inputs_embeds=embedded, **settings)


def test_a_model_that_needs_all_its_blocks_keeps_them(llama):
    ref = find_hidden_model(llama, device="cpu")
    whole = load_causal_model(llama, device="cpu")
    decoder = _WholeDepthDecoder(whole.get_decoder())
    whole.get_decoder = lambda: decoder
    model = HiddenStateModel(ref, whole, ref.load()._tokenizer)
    assert not model.stops_early
    assert len(decoder.inner.layers) == 4
    ids = tuple(range(5, 25))
    with torch.no_grad():
        states = decoder(torch.tensor([ids]), output_hidden_states=True).hidden_states[2]
    np.testing.assert_array_equal(read_alone(model, EncodedText(ids, (19,))), states[0, -1:].numpy())


def test_states_that_are_no_numbers_are_refused(llama):
    model = find_hidden_model(llama, device="cpu").load()
    with torch.no_grad():
        model._decoder.layers[0].mlp.down_proj.weight.fill_(torch.inf)
    with pytest.raises(UserError, match="computes no number"):
        model.read_states([model.encode_trace(QUESTION, STEPS)])


def test_half_of_the_layers_is_the_default(llama):
    ref = find_hidden_model(llama)
    assert (ref.layer, ref.token_limit) == (2, 256)
    assert find_hidden_model(llama, max_tokens=64).token_limit == 64


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer": 5}, "has layers 1 to 4"),
        ({"layer": 0}, "has layers 1 to 4"),
        ({"max_tokens": 0}, "at least 1"),
        ({"revision": "main"}, "is for a model on the hub"),
    ],
)
def test_settings_that_do_not_fit_are_refused(llama, settings, message):
    with pytest.raises(SettingError, match=message):
        find_hidden_model(llama, **settings)
