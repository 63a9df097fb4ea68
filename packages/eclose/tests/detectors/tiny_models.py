"""Small random models of real classes with real tokenizers, saved as they are published."""

import json
import warnings

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
transformers = pytest.importorskip("transformers", reason="needs the train extra")

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

torch.set_num_threads(1)
with warnings.catch_warnings():
    # DeBERTa is compiled when it is imported, in a way that this torch warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    transformers.DebertaV2ForSequenceClassification  # noqa: B018 - imports it

_LETTERS = [chr(code) for code in range(33, 127)] + ["\n", "é", "▁"]
_SPECIAL = {
    "t5": ["<pad>", "</s>", "<unk>"],
    "roberta": ["<s>", "<pad>", "</s>", "<unk>"],
    "deberta": ["[PAD]", "[CLS]", "[SEP]", "[UNK]"],
    "modernbert": ["[UNK]", "[CLS]", "[SEP]", "[PAD]"],
}
_PAIRS = {
    "t5": ("$A </s>", "$A </s> $B </s>"),
    "roberta": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
    "deberta": ("[CLS] $A [SEP]", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"),
    "modernbert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]"),
}
NLI = ("entailment", "neutral", "contradiction")


def tokenizer(family):
    """Characters and a few words. As in T5 there is a token for 1 after a blank, and none for 0."""
    special = _SPECIAL[family]
    words = ["▁the", "▁answer", "▁is", "▁1", "▁was", "▁mill"]
    pieces = [(piece, 0.0) for piece in special] + [(piece, -2.0) for piece in words]
    pieces += [(letter, -5.0) for letter in _LETTERS]
    unknown = next(index for index, piece in enumerate(special) if "unk" in piece.lower())
    fast = Tokenizer(models.Unigram(pieces, unk_id=unknown))
    fast.pre_tokenizer, fast.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    fast.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in special])
    single, pair = _PAIRS[family]
    numbered = [(piece, index) for index, piece in enumerate(special)]
    fast.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=numbered)
    by_role = {role: next((p for p in special if p.lower() in names), None) for role, names in _ROLES.items()}
    names = [] if family != "deberta" else ["token_type_ids"]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast,
        model_max_length=64,
        model_input_names=["input_ids", *names, "attention_mask"],
        **{role: piece for role, piece in by_role.items() if piece},
    )


_ROLES = {
    "pad_token": ("<pad>", "[pad]"),
    "unk_token": ("<unk>", "[unk]"),
    "eos_token": ("</s>", "[sep]"),
    "sep_token": ("</s>", "[sep]"),
    "cls_token": ("<s>", "[cls]"),
}


def build(family, *, labels=NLI, positions=512, seed=0):
    """A model of a family; its weights are large enough for scores to differ."""
    words = tokenizer(family)
    common = {
        "vocab_size": len(words),
        "pad_token_id": words.pad_token_id,
        "eos_token_id": words.eos_token_id,
        "bos_token_id": words.cls_token_id,
    }
    encoder = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": positions,
        "initializer_range": 0.6,
        "id2label": dict(enumerate(labels)),
        "label2id": {label: index for index, label in enumerate(labels)},
        **common,
    }
    torch.manual_seed(seed)
    if family == "t5":
        config = transformers.T5Config(
            d_model=32,
            d_kv=16,
            d_ff=48,
            num_layers=2,
            num_heads=2,
            initializer_factor=1.5,
            decoder_start_token_id=0,
            **common,
        )
        return transformers.T5ForConditionalGeneration(config).eval()
    if family == "roberta":
        # As published: two more rows of positions than tokens.
        return transformers.RobertaForSequenceClassification(
            transformers.RobertaConfig(**{**encoder, "max_position_embeddings": positions + 2}, type_vocab_size=1)
        ).eval()
    if family == "deberta":
        config = transformers.DebertaV2Config(
            **encoder,
            relative_attention=True,
            position_biased_input=False,
            pos_att_type=["p2c", "c2p"],
            type_vocab_size=2,
        )
        return transformers.DebertaV2ForSequenceClassification(config).eval()
    config = transformers.ModernBertConfig(**encoder, cls_token_id=1, sep_token_id=2, initializer_cutoff_factor=3.0)
    config._attn_implementation = "sdpa"
    return transformers.ModernBertForSequenceClassification(config).eval()


def save(folder, family, **settings):
    """A folder with weights and tokenizer."""
    model = build(family, **settings)
    model.save_pretrained(folder)
    tokenizer(family).save_pretrained(folder)
    return folder


def edit_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
