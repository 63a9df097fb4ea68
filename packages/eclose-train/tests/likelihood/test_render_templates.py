"""Rendering with other tokenizers and templates: a dummy prefix, no system role, an end of turn of its own, none."""

import io

import pytest

pytest.importorskip("torch")
sentencepiece = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from eclose.calls.local.chat_template import decode_reply_tokens, find_stop_ids, tokenize_prompt
from eclose.calls.local.weights import read_turn_markers, render_conversation
from eclose.calls.model import Request
from eclose.errors import UserError
from eclose.prompts.response_prompt import ResponsePrompt, format_completion
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.likelihood.spans import TokenPart

pytestmark = pytest.mark.torch

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ raise_exception('Only user and assistant roles are supported!') }}"
    "{% elif message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{{ '<start_of_turn>' + message['role'] + '\n' + message['content'] + '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
ZEPHYR = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def sentences(families):
    texts = [text for family in families for view in family.views for text in (view.question, *view.trace.texts)]
    texts += [f"{number}. Final answer: [INST] [/INST] Passages: Question:" for number in range(10)]
    return texts * 3


@pytest.fixture(scope="module")
def pieces(sentences):
    """A SentencePiece model as Llama 2 and Mistral v1 have: BPE with byte fallback and a dummy prefix."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=trained,
        vocab_size=700,
        model_type="bpe",
        byte_fallback=True,
        add_dummy_prefix=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())


@pytest.fixture(params=["everywhere", "at the start"])
def dummy_prefix(request, pieces):
    """The model as a fast tokenizer, with the prefix after every special token (old Llama) or at the start alone."""
    from transformers.convert_slow_tokenizer import generate_merges

    vocabulary = {pieces.id_to_piece(number): number for number in range(len(pieces))}
    scores = {pieces.id_to_piece(number): pieces.get_score(number) for number in range(len(pieces))}
    merges = generate_merges(vocabulary, scores)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if request.param == "everywhere":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=MISTRAL
    )


def test_the_tokenizer_is_the_one_that_sentencepiece_trained(dummy_prefix, pieces, sentences):
    for text in sentences[:20]:
        assert dummy_prefix(text, add_special_tokens=False)["input_ids"] == pieces.encode(text)
    assert dummy_prefix.convert_ids_to_tokens(pieces.encode("Paris\nFinal"))[0].startswith("▁")


def whole_text(renderer, view):
    prompt = renderer.prompt_text(view.question, view.evidence)
    turn = read_turn_markers(renderer.tokenizer)
    return prompt + turn.opening + format_completion(view.trace, view.answer) + turn.end


@pytest.mark.parametrize("template", [MISTRAL, GEMMA, ZEPHYR, CHATML])
def test_a_dummy_prefix_is_not_taken_for_another_tokenisation(dummy_prefix, families, template):
    """Prompt and response joined are the tokens of the whole text, whatever segments encoded alone would be."""
    dummy_prefix.chat_template = template
    dummy_prefix.add_special_tokens({"additional_special_tokens": ["<start_of_turn>", "<end_of_turn>", "<|im_end|>"]})
    renderer = TokenPathRenderer(dummy_prefix, ResponsePrompt(0))
    for view in (view for family in families for view in family.views):
        path = renderer.render(view.question, view.evidence, view.trace, view.answer)
        assert list(path.ids) == dummy_prefix(whole_text(renderer, view), add_special_tokens=False)["input_ids"]
        for number, text in enumerate(view.trace.texts):
            assert dummy_prefix.decode([path.ids[position] for position in path.step_positions(number)]).strip() == text
        assert dummy_prefix.decode([path.ids[position] for position in path.answer_positions()]).strip() == view.answer
    assert renderer.mismatched == 0


def test_a_tokenizer_that_merges_over_line_breaks_is_refused(dummy_prefix, families):
    """One that turns line breaks into blanks, as many SentencePiece models do, has no place where a step ends."""
    blanks = [normalizers.Replace("\n", " "), normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    dummy_prefix.backend_tokenizer.normalizer = normalizers.Sequence(blanks)
    renderer, view = TokenPathRenderer(dummy_prefix, ResponsePrompt(0)), families[0].gold
    for _ in range(5):
        renderer.render(view.question, view.evidence, view.trace, view.answer)
    assert renderer.mismatched == 5
    with pytest.raises(UserError, match="does not split at line breaks"):
        renderer.render(view.question, view.evidence, view.trace, view.answer)


# ---- templates ----


@pytest.fixture
def tokenizer(smollm2_tokenizer):
    before = smollm2_tokenizer.chat_template
    yield smollm2_tokenizer
    smollm2_tokenizer.chat_template = before


DROPPING = CHATML.replace("for message in messages", "for message in messages if message['role'] != 'system'")


@pytest.mark.parametrize("template", [MISTRAL, GEMMA, DROPPING])
def test_without_a_system_role_its_text_opens_the_first_user_turn(tokenizer, families, template):
    """Refused by the template, or dropped without a word: the model reads it either way, and the same everywhere."""
    tokenizer.chat_template = template
    view, renderer = families[0].gold, TokenPathRenderer(tokenizer, ResponsePrompt(1))
    system, first, *turns = renderer.prompt.messages(view.question, view.evidence)
    text = renderer.prompt_text(view.question, view.evidence)
    assert text == render_conversation(tokenizer, [system, first, *turns])
    assert f"{system['content']}\n\n{first['content']}" in text
    assert text.count(system["content"]) == 1
    path = renderer.render(view.question, view.evidence, view.trace)
    served = tokenize_prompt(tokenizer, Request((system, first, *turns)))
    assert list(path.ids[: len(served)]) == served


def test_a_template_with_a_system_role_is_left_alone(tokenizer, families):
    view, renderer = families[0].gold, TokenPathRenderer(tokenizer)
    messages = renderer.prompt.messages(view.question, view.evidence)
    expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert renderer.prompt_text(view.question, view.evidence) == expected


def test_a_conversation_the_template_refuses_is_a_sentence(tokenizer):
    tokenizer.chat_template = "{{ raise_exception('Roles must alternate') }}"
    with pytest.raises(UserError, match=r"chat template refuses.*Roles must alternate"):
        render_conversation(tokenizer, [{"role": "user", "content": "x"}])


def test_no_template_is_a_sentence_that_says_what_to_do(tokenizer):
    tokenizer.chat_template = None
    with pytest.raises(UserError, match=r"has no chat template.*chat_template\.jinja"):
        TokenPathRenderer(tokenizer)


# ---- the end of a turn ----


@pytest.mark.parametrize(
    ("template", "end", "opening"),
    [
        (CHATML, "<|im_end|>", ""),
        (CHATML.replace("'<|im_end|>\n'", "'<|endoftext|>\n'"), "<|endoftext|>", ""),
        (MISTRAL, "<|im_end|>", " "),
        (MISTRAL.replace("+ eos_token", "+ ' ' + eos_token"), " <|im_end|>", " "),
        (CHATML.replace("<|im_end|>", ""), "<|im_end|>", ""),  # it writes none, so the tokenizer's own ends a turn
    ],
)
def test_a_turn_ends_as_the_template_ends_it(tokenizer, families, template, end, opening):
    tokenizer.chat_template = template
    turn = read_turn_markers(tokenizer)
    assert (turn.end, turn.opening) == (end, opening)
    view = families[0].gold
    path = TokenPathRenderer(tokenizer, ResponsePrompt(0)).render(view.question, view.evidence, view.trace, view.answer)
    assert tokenizer.decode([path.ids[-1]]) == end.strip()
    assert path.parts[-1] == (TokenPart.END, None)
    # Generation stops where training taught to.
    assert path.ids[-1] in find_stop_ids(tokenizer, None)
    prompt = tokenize_prompt(tokenizer, Request(tuple(ResponsePrompt(0).messages(view.question, view.evidence))))
    reply = decode_reply_tokens(tokenizer, prompt, path.ids[len(prompt) :], find_stop_ids(tokenizer, None))
    assert reply.text.strip() == format_completion(view.trace, view.answer)
