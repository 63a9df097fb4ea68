"""Entailment models of real classes against straight computations, and what cannot be used is refused."""

import json
import random

import pytest

from eclose.detectors.entailment import score_pairs_by_length
from eclose.detectors.entailment_models import PromptLayout, find_entailment_model
from eclose.errors import SettingError, UserError
from tests.detectors.tiny_models import build, edit_config, save, tokenizer, torch, transformers

pytestmark = pytest.mark.torch

PREMISES = [
    "Ada built the mill in 1840.",
    "Eve was born in Lund.\nShe sold the mill.",
    "It rained.",
    "The answer is the mill that Ada built, which was old and was sold. " * 3,
]
CLAIMS = ["the answer to who built the mill? is Ada", "Eve was born", "1"]
PAIRS = [(premise, claim) for premise in PREMISES for claim in CLAIMS]


def score(folder, pairs=PAIRS, batch_tokens=16_384, **settings):
    model = find_entailment_model(str(folder), **settings).load()
    return score_pairs_by_length(model, [model.encode_pair(*pair) for pair in pairs], batch_tokens)


def forward(family, texts, **settings):
    """The logits of one input at a time, without padding, from the weights that the test made."""
    words, model = tokenizer(family), build(family, **settings)
    for text in texts:
        encoded = words(*text, return_tensors="pt")
        if family != "deberta":
            encoded.pop("token_type_ids", None)
        with torch.no_grad():
            yield model, encoded


def test_t5_gives_the_share_of_one_against_zero_at_the_first_position(tmp_path):
    expected = []
    words = tokenizer("t5")
    zero, one_id = words.convert_tokens_to_ids("▁"), words.convert_tokens_to_ids("▁1")
    for model, encoded in forward("t5", [(f"premise: {p} hypothesis: {h}",) for p, h in PAIRS]):
        # Generation by Transformers itself: the distribution of the first token that it would write.
        drawn = model.generate(
            **encoded, max_new_tokens=1, do_sample=False, return_dict_in_generate=True, output_logits=True
        )
        odds = drawn.logits[0][0].double().exp()
        expected.append(float(odds[one_id] / (odds[zero] + odds[one_id])))
    assert max(expected) - min(expected) > 0.05  # a constant would pass for any model
    assert score(save(tmp_path / "t5", "t5")) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("family", ["roberta", "deberta", "modernbert"])
def test_a_classifier_gives_the_probability_of_the_label_that_its_configuration_names(family, tmp_path):
    labels = ("contradiction", "neutral", "ENTAILMENT")
    expected = []
    for model, encoded in forward(family, PAIRS, labels=labels):
        with torch.no_grad():
            odds = model(**encoded).logits[0].double().exp()
        expected.append(float(odds[2] / odds.sum()))
    assert max(expected) - min(expected) > 0.01
    assert score(save(tmp_path / family, family, labels=labels)) == pytest.approx(expected, abs=1e-5)


def test_a_pipeline_of_transformers_gives_the_same(tmp_path):
    folder = save(tmp_path / "nli", "deberta")
    pipe = transformers.pipeline("text-classification", model=str(folder), top_k=None)
    replies = [pipe({"text": premise, "text_pair": claim}) for premise, claim in PAIRS]
    expected = [next(row["score"] for row in reply if row["label"] == "entailment") for reply in replies]
    assert score(folder) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("family", ["t5", "roberta", "deberta", "modernbert"])
def test_neither_order_nor_batches_change_a_score(family, tmp_path):
    folder = save(tmp_path / family, family)
    together = dict(zip(PAIRS, score(folder), strict=True))
    shuffled = PAIRS * 2
    random.Random(1).shuffle(shuffled)
    for batch_tokens in (1, 300):
        scores = score(folder, shuffled, batch_tokens)
        assert scores == pytest.approx([together[pair] for pair in shuffled], abs=1e-5)


def test_batches_hold_pairs_of_similar_length_and_equal_pairs_once(tmp_path):
    model = find_entailment_model(str(save(tmp_path / "m", "roberta"))).load()
    pairs = [model.encode_pair(*pair) for pair in PAIRS * 3]
    sizes = []
    whole = model.score_batch
    model.score_batch = lambda batch: (sizes.append([len(pair) for pair in batch]), whole(batch))[1]
    score_pairs_by_length(model, pairs, 400)
    assert sum(map(len, sizes)) == len(PAIRS)
    assert all(len(batch) * max(batch) <= 400 or len(batch) == 1 for batch in sizes)
    lengths = [length for batch in sizes for length in batch]
    assert lengths == sorted(lengths, reverse=True)
    assert len(sizes) < len(PAIRS)


@pytest.mark.parametrize(
    ("name", "family", "text"),
    [
        (
            "FactCG-DeBERTa-v3-Large",
            "deberta",
            'It rained.\n\nChoose your answer: based on the paragraph above can we conclude that "Eve was born"?'
            "\n\nOPTIONS:\n- Yes\n- No\nI think the answer is ",
        ),
        ("MiniCheck-DeBERTa-v3-Large", "deberta", "It rained.[SEP]Eve was born"),
        ("MiniCheck-RoBERTa-Large", "roberta", "It rained.</s>Eve was born"),
    ],
)
def test_layouts_by_name_of_a_classifier(name, family, text, tmp_path):
    folder = save(tmp_path / name, family, labels=("LABEL_0", "LABEL_1"))
    ref = find_entailment_model(str(folder))
    assert ref.label == 1
    assert ref.token_limit == (2_048 if family == "deberta" else 512)
    encoded = ref.load().encode_pair("It rained.", "Eve was born")
    assert list(encoded.ids) == tokenizer(family)(text)["input_ids"]
    [(model, inputs)] = forward(family, [(text,)], labels=("LABEL_0", "LABEL_1"))
    with torch.no_grad():
        expected = torch.sigmoid(model(**inputs).logits[0, 1] - model(**inputs).logits[0, 0]).item()
    assert score(folder, [("It rained.", "Eve was born")]) == pytest.approx([expected], abs=1e-5)


def test_layout_of_minicheck_on_t5(tmp_path):
    model = find_entailment_model(str(save(tmp_path / "minicheck-flan-t5", "t5"))).load()
    ids = tokenizer("t5")("predict: It rained.</s>Eve was born")["input_ids"]
    assert list(model.encode_pair("It rained.", "Eve was born").ids) == ids
    assert ids.count(tokenizer("t5").eos_token_id) == 2


def test_the_label_can_be_named_and_must_be_clear(tmp_path):
    folder = save(tmp_path / "m", "roberta", labels=("LABEL_0", "LABEL_1", "LABEL_2"))
    with pytest.raises(UserError, match=r"LABEL_0, LABEL_1, LABEL_2\) do not show which of them means support"):
        find_entailment_model(str(folder))
    assert find_entailment_model(str(folder), label="label_1").label == 1
    with pytest.raises(UserError, match="do not show"):
        find_entailment_model(str(folder), label="entailment")
    binary = save(tmp_path / "binary", "roberta", labels=("not_entailment", "entailment"))
    assert find_entailment_model(str(binary)).label == 1
    single = save(tmp_path / "single", "roberta", labels=("entailment",))
    with pytest.raises(UserError, match="single output"):
        find_entailment_model(str(single))


def test_limits_come_from_the_configuration(tmp_path):
    for family, limit in (("roberta", 40), ("deberta", 40), ("modernbert", 40), ("t5", 2_048)):
        settings = {} if family == "t5" else {"positions": 40}
        folder = save(tmp_path / family, family, **settings)
        assert find_entailment_model(str(folder)).token_limit == limit
        assert find_entailment_model(str(folder), max_tokens=30).token_limit == 30
        # A pair of exactly so many tokens can be scored.
        model = find_entailment_model(str(folder)).load()
        text = "x" * (limit if family != "t5" else 100)
        while len(model.encode_pair(text, "y")) > limit:
            text = text[1:]
        if family != "t5":
            assert len(model.encode_pair(text, "y")) == limit
        assert 0 <= model.score_batch([model.encode_pair(text, "y")])[0] <= 1
    with pytest.raises(SettingError, match="at least 1"):
        find_entailment_model(str(folder), max_tokens=0)


def test_nothing_is_truncated_when_a_pair_is_encoded(tmp_path):
    model = find_entailment_model(str(save(tmp_path / "m", "deberta"))).load()
    assert len(model.encode_pair("x" * 700, "y")) > 700


@pytest.mark.parametrize(
    ("name", "family"), [("m", "roberta"), ("m", "t5"), ("minicheck", "t5"), ("factcg", "deberta")]
)
def test_a_control_token_in_a_text_is_read_as_text(name, family, tmp_path):
    folder = save(tmp_path / name, family, **({} if family == "t5" else {"labels": ("no", "yes")}))
    model, words = find_entailment_model(str(folder)).load(), tokenizer(family)
    plain = model.encode_pair("Ada built it.", "Eve sold it.")
    end = words.eos_token
    spelled = model.encode_pair(f"Ada {end} built {words.pad_token} it.", f"Eve {end}sold it.")
    controls = [[token for token in pair.ids if token in words.all_special_ids] for pair in (plain, spelled)]
    assert controls[0] == controls[1]
    assert "".join(f"Ada{end[0]}{end[1:]}".split()) in "".join(words.decode(spelled.ids).split())


def test_a_pickle_is_refused(tmp_path):
    folder = save(tmp_path / "m", "roberta")
    ref = find_entailment_model(str(folder))
    (folder / "model.safetensors").unlink()
    torch.save(build("roberta").state_dict(), folder / "pytorch_model.bin")
    sentence = r"weights as a pickle only \(pytorch_model\.bin\).*can run any code.*Convert it to model\.safetensors"
    with pytest.raises(UserError, match=sentence):
        find_entailment_model(str(folder))
    with pytest.raises(UserError, match=sentence):
        ref.load()
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(UserError, match="has no weights in safetensors"):
        ref.load()


def test_code_of_a_repository_is_not_run(tmp_path):
    folder = save(tmp_path / "m", "roberta")
    mark = tmp_path / "ran"
    (folder / "code.py").write_text(f"open({str(mark)!r}, 'w')\n")
    edit_config(folder, auto_map={"AutoConfig": "code.C", "AutoModelForSequenceClassification": "code.M"})
    find_entailment_model(str(folder)).load()
    assert not mark.exists()
    edit_config(folder, model_type="unheard_of")
    with pytest.raises(UserError, match="cannot be loaded"):
        find_entailment_model(str(folder))
    assert not mark.exists()


def test_a_head_without_weights_is_refused(tmp_path):
    """Transformers would invent them."""
    folder = save(tmp_path / "m", "roberta")
    bare = transformers.RobertaModel(build("roberta").config)
    bare.save_pretrained(folder)
    edit_config(folder, architectures=["RobertaForSequenceClassification"])
    with pytest.raises(UserError, match=r"lacks \d+ weights of RobertaForSequenceClassification, such as classifier"):
        find_entailment_model(str(folder)).load()


def test_other_classes_and_layouts_are_refused(tmp_path):
    folder = save(tmp_path / "m", "roberta")
    with pytest.raises(SettingError, match="layout true: does not fit"):
        find_entailment_model(str(folder), layout=PromptLayout.TRUE_NLI)
    with pytest.raises(SettingError, match="layout pair: does not fit"):
        find_entailment_model(str(save(tmp_path / "t5", "t5")), layout=PromptLayout.PAIR)
    with pytest.raises(SettingError, match="is a folder"):
        find_entailment_model(str(folder), revision="main")
    edit_config(folder, architectures=["RobertaForMaskedLM"])
    with pytest.raises(UserError, match="is a RobertaForMaskedLM, which gives no probability of entailment"):
        find_entailment_model(str(folder))


def test_a_score_names_its_weights(tmp_path):
    first = find_entailment_model(str(save(tmp_path / "a" / "nli", "roberta")))
    moved = find_entailment_model(str(save(tmp_path / "b" / "nli", "roberta")))
    other = find_entailment_model(str(save(tmp_path / "c" / "nli", "roberta", seed=1)))
    assert first.name == moved.name != other.name
    assert first.identity == moved.identity
    assert first.name.startswith("nli@")
    assert str(tmp_path) not in json.dumps(first.identity)


def test_a_hub_name_is_pinned_to_its_commit(tmp_path, monkeypatch):
    """The cache of the hub as it stands after a download, read without a network."""
    commit = "fb749b87addb9ed3c2b9f3c23c127aeac6e68bd9"
    cache = tmp_path / "models--someone--small-nli"
    save(cache / "snapshots" / commit, "roberta")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(commit)
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    ref = find_entailment_model("someone/small-nli")
    assert (ref.revision, ref.name) == (commit, f"someone/small-nli@{commit}")
    assert find_entailment_model("someone/small-nli", revision=commit) == ref
    model = ref.load()
    assert model.name == f"someone/small-nli@{commit}"
    weights = cache / "snapshots" / commit / "model.safetensors"
    weights.rename(weights.with_name("pytorch_model.bin"))
    with pytest.raises(UserError, match="someone/small-nli"):
        ref.load()
    with pytest.raises(UserError, match="no such model here or on the hub"):
        find_entailment_model("someone/nothing")


def test_half_precision_that_overflows_is_no_score(tmp_path):
    folder = save(tmp_path / "m", "roberta")
    model = find_entailment_model(str(folder)).load()
    with torch.no_grad():
        model._model.classifier.out_proj.weight.fill_(float("inf"))
    with pytest.raises(UserError, match="computes no number"):
        model.score_batch([model.encode_pair("a", "b")])
