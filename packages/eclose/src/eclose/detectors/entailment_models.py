"""Entailment models by name: T5 models that write 1 or 0, and classifiers of natural-language inference.

A reference is made from the configuration alone: layout of the input, label of entailment, longest input, and the
commit of a hub name. Only safetensors are read, and no code from a model's repository is run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.calls.local.weights import (
    find_hub_commit,
    load_model_config,
    load_scoring_model,
    load_tokenizer,
    model_table_name,
    name_weights_version,
    refuse_pickled_weights,
)
from eclose.calls.resolve import find_model_ref
from eclose.errors import SettingError, UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

T5_TOKENS = 2_048
"""Default limit of a T5 model, whose relative positions set none; MiniCheck reads as much."""
_LONG_LAYOUT_TOKENS = 2_048
"""Limit of FactCG and MiniCheck on DeBERTa, whose positions are relative; their published code sets it."""
_OFFSET_POSITIONS = frozenset({"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "mpnet"})
"""Model types whose positions start after that of the padding token, so that fewer tokens fit than there are rows."""
_ENTAILMENT_LABELS = frozenset(
    ("entailment", "entail", "entailed", "entails", "aligned", "supported", "supports", "support", "consistent", "yes")
)


class PromptLayout(StrEnum):
    """How premise and hypothesis are laid out for a model."""

    PAIR = "pair"
    """Two texts with the tokenizer's separator, as classifiers of natural-language inference are trained."""
    TRUE_NLI = "true"
    """``premise: ... hypothesis: ...``, as google/t5_xxl_true_nli_mixture is trained."""
    FACTCG = "factcg"
    """One text that ends in a question with options (FactCG); the second label is support."""
    MINICHECK = "minicheck"
    """Document, end token and claim in one text (MiniCheck); the second label, or the token 1, is support."""


# FactCG was also published on T5, but not in a format that can be read here.
_LAYOUTS = {
    True: frozenset({PromptLayout.TRUE_NLI, PromptLayout.MINICHECK}),
    False: frozenset({PromptLayout.PAIR, PromptLayout.FACTCG, PromptLayout.MINICHECK}),
}
"""Layouts of models that write a digit, and of classifiers."""
_FACTCG_TEXT = (
    '{premise}\n\nChoose your answer: based on the paragraph above can we conclude that "{hypothesis}"?\n\n'
    "OPTIONS:\n- Yes\n- No\nI think the answer is "
)


@dataclass(frozen=True, kw_only=True)
class EntailmentModelRef:
    """A reference to an entailment model; made by ``find_entailment_model``."""

    weights: str
    """Folder or hub name."""
    revision: str | None
    """Commit of a hub name; None for a folder."""
    content: str
    """Hash of the files in a folder; hash of the name where the weights are on the hub."""
    layout: PromptLayout
    writes_digit: bool
    """Whether the model is an encoder-decoder that writes 1 or 0, rather than a classifier."""
    label: int | None
    """Index of the label that means support; None for a model that writes a digit."""
    token_limit: int
    """Largest number of tokens of a pair."""
    dtype: str = "auto"
    device: str | None = None
    """Device; None for the accelerator where there is one. Not part of the identity."""

    @property
    def name(self) -> str:
        """Name with the commit, or with a hash of the folder's files."""
        return name_weights_version(self.weights, self.revision, self.content)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything about the model that decides its scores. Paths on this machine are not part of it."""
        return {
            "model": self.name,
            "weights": self.content,
            "layout": self.layout.value,
            "label": self.label,
            "max_tokens": self.token_limit,
            "dtype": self.dtype,
        }

    def load(self) -> EntailmentModel:
        """Load the weights and the tokenizer."""
        from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification  # noqa: PLC0415 - heavy

        kind = AutoModelForSeq2SeqLM if self.writes_digit else AutoModelForSequenceClassification
        # The commit and never a branch: for a branch with pickles only, Transformers would fetch another commit.
        model = load_scoring_model(kind, self.weights, revision=self.revision, dtype=self.dtype, device=self.device)
        return EntailmentModel(self, model, load_tokenizer(self.weights, self.revision))


def find_entailment_model(
    name: str,
    *,
    revision: str | None = None,
    layout: PromptLayout | None = None,
    label: str | None = None,
    max_tokens: int | None = None,
    dtype: str = "auto",
    device: str | None = None,
) -> EntailmentModelRef:
    """Return a reference to an entailment model, from its name and configuration; None stands for what these say.

    Raises:
        UserError: The model is neither a classifier nor a T5 model, its weights are pickles, or it does not say which
            label means support or how much it reads.
    """
    refuse_pickled_weights(name)
    if revision is not None and Path(name).is_dir():
        raise SettingError(f"revision {revision}: is for a model on the hub, and {name} is a folder. Leave it out.")
    if max_tokens is not None and max_tokens < 1:
        raise SettingError("max_tokens of an entailment model must be at least 1.")
    commit = find_hub_commit(name, revision)
    config = load_model_config(name, commit)
    writes_digit = _writes_digit(name, config)
    if layout is None:
        plain = model_table_name(name).lower()
        named = (kind for kind in (PromptLayout.FACTCG, PromptLayout.MINICHECK) if kind.value in plain)
        layout = next(named, PromptLayout.TRUE_NLI if writes_digit else PromptLayout.PAIR)
    if layout not in _LAYOUTS[writes_digit]:
        raise SettingError(f"layout {layout}: does not fit {name}, a {config.architectures[0]}. Leave it out.")
    return EntailmentModelRef(
        weights=name,
        revision=commit,
        content=find_model_ref(f"transformers:{name}", revision=commit).identity["weights"],
        layout=layout,
        writes_digit=writes_digit,
        label=None if writes_digit else _find_label(name, config, layout, label),
        token_limit=max_tokens or _find_token_limit(name, config, layout, writes_digit=writes_digit),
        dtype=dtype,
        device=device,
    )


def _writes_digit(name: str, config: Any) -> bool:
    """Return whether a model writes its verdict as a digit; raise where it is no classifier either."""
    kind = next(iter(config.architectures or ()), "")
    if kind.endswith("ForSequenceClassification"):
        return False
    if kind.endswith("ForConditionalGeneration") and config.is_encoder_decoder:
        return True
    raise UserError(
        f"{name}: is a {kind or config.model_type}, which gives no probability of entailment. Give a classifier of"
        " natural-language inference (ForSequenceClassification) or a T5 model that writes 1 or 0."
    )


def _find_label(name: str, config: Any, layout: PromptLayout, label: str | None) -> int:
    labels = {int(index): str(text) for index, text in config.id2label.items()}
    if len(labels) < 2:
        raise UserError(f"{name}: has a single output, which is no probability. Give a model with two or more labels.")
    if label is not None:
        matches = [index for index, text in labels.items() if text.lower() == label.lower()]
    elif layout is not PromptLayout.PAIR:
        # Both are published with two labels without names, the second of which is support.
        matches = [1] if len(labels) == 2 else []
    else:
        # Compared as a whole: "not_entailment" is not entailment.
        matches = [
            index
            for index, text in labels.items()
            if re.sub(r"[\s_-]+", " ", text).strip().lower() in _ENTAILMENT_LABELS
        ]
    if len(matches) != 1:
        raise UserError(
            f"{name}: its labels ({', '.join(labels.values())}) do not show which of them means support."
            " Give the name of that label."
        )
    return matches[0]


def _find_token_limit(name: str, config: Any, layout: PromptLayout, *, writes_digit: bool) -> int:
    if writes_digit:
        return T5_TOKENS
    rows = getattr(config, "max_position_embeddings", None)
    if not isinstance(rows, int) or rows < 1:
        raise UserError(f"{name}: its configuration does not say how many tokens it reads. Give max_tokens.")
    if layout is not PromptLayout.PAIR and config.model_type == "deberta-v2":
        return _LONG_LAYOUT_TOKENS
    return rows - config.pad_token_id - 1 if config.model_type in _OFFSET_POSITIONS else rows


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """A premise and a hypothesis as the tokens that a model reads."""

    ids: tuple[int, ...]
    segments: tuple[int, ...] | None = None
    """Segment of each token, for models that tell the two texts apart by it."""

    def __len__(self) -> int:
        return len(self.ids)


class EntailmentModel:
    """A loaded model that gives the probability that a premise supports a hypothesis."""

    def __init__(self, ref: EntailmentModelRef, model: Any, tokenizer: Any) -> None:
        self._ref = ref
        self.name = ref.name
        """Name in scores: ``name@revision``."""
        self.token_limit = ref.token_limit
        """Largest number of tokens of a pair."""
        self._model = model
        self._tokenizer = tokenizer
        # RoBERTa accepts segments and has one of them, so the second text would be outside its table.
        self._has_segments = (
            "token_type_ids" in signature(model.forward).parameters and getattr(model.config, "type_vocab_size", 0) > 1
        )
        self._digits: list[int] = []
        """First token of 0 and of 1, where the model writes them."""
        if ref.writes_digit:
            # T5 has a token for 1 after a blank but none for 0, which it writes as a blank (id 3) and a digit.
            self._digits = [tokenizer(digit, add_special_tokens=False)["input_ids"][0] for digit in ("0", "1")]
            if self._digits[0] == self._digits[1]:
                raise UserError(f"{ref.weights}: its tokenizer begins 0 and 1 with the same token. Use another model.")
        controls = sorted((token for token in tokenizer.all_special_tokens if len(token) > 1), key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, controls)))

    def encode_pair(self, premise: str, hypothesis: str) -> EncodedPair:
        """Return the tokens of a pair in the layout of the model; nothing is cut."""
        # verbose: the tokenizer would warn of every text above its own limit, which is not the limit here.
        encoded: Mapping[str, list[int]] = self._tokenizer(
            *self._lay_out(premise, hypothesis),
            truncation=False,
            return_token_type_ids=self._has_segments,
            verbose=False,
        )
        segments = tuple(encoded["token_type_ids"]) if self._has_segments else None
        return EncodedPair(tuple(encoded["input_ids"]), segments)

    def _lay_out(self, premise: str, hypothesis: str) -> tuple[str, ...]:
        # A response that spells "</s>" would end the premise: a blank makes ordinary text of it.
        premise, hypothesis = (
            self._controls.sub(lambda control: f"{control[0][0]} {control[0][1:]}", text)
            for text in (premise, hypothesis)
        )
        if self._ref.layout is PromptLayout.PAIR:
            return premise, hypothesis
        if self._ref.layout is PromptLayout.FACTCG:
            return (_FACTCG_TEXT.format(premise=premise, hypothesis=hypothesis),)
        if self._ref.layout is PromptLayout.TRUE_NLI:
            return (f"premise: {premise} hypothesis: {hypothesis}",)
        opening = "predict: " if self._ref.writes_digit else ""
        return (f"{opening}{premise}{self._tokenizer.eos_token}{hypothesis}",)

    def score_batch(self, pairs: Sequence[EncodedPair]) -> list[float]:
        """Return the probability of support of each pair, in order; all pairs run in one batch.

        Raises:
            UserError: The model computes no number, as T5 does in half precision.
        """
        import torch  # noqa: PLC0415

        with torch.inference_mode():
            logits = self._compute_logits(pairs).float()
            column = 1 if self._ref.writes_digit else self._ref.label
            probabilities: list[float] = logits.softmax(-1)[:, column].tolist()
        if not all(0 <= probability <= 1 for probability in probabilities):
            raise UserError(f"{self.name}: computes no number in {self._model.dtype}. Use float32 or bfloat16.")
        return probabilities

    def _compute_logits(self, pairs: Sequence[EncodedPair]) -> Tensor:
        """Return the logits, shape (pairs, labels); for a model that writes a digit those of 0 and 1."""
        import torch  # noqa: PLC0415

        inputs = {"input_ids": self._pad([pair.ids for pair in pairs], self._tokenizer.pad_token_id)}
        inputs["attention_mask"] = self._pad([(1,) * len(pair) for pair in pairs], 0)
        if self._has_segments:
            inputs["token_type_ids"] = self._pad([pair.segments or () for pair in pairs], 0)
        if not self._ref.writes_digit:
            logits: Tensor = self._model(**inputs).logits
            return logits
        start = torch.full((len(pairs), 1), self._model.config.decoder_start_token_id, device=self._model.device)
        first: Tensor = self._model(**inputs, decoder_input_ids=start, use_cache=False).logits[:, 0]
        return first[:, self._digits]

    def _pad(self, rows: Sequence[tuple[int, ...]], filler: int) -> Tensor:
        import torch  # noqa: PLC0415

        width = max(map(len, rows))
        filled = [(*row, *([filler] * (width - len(row)))) for row in rows]
        return torch.tensor(filled, device=self._model.device)
