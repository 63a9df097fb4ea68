"""AlignScore (Zha et al. 2023) in its mode ``nli_sp``, and a converter of its published checkpoint to safetensors.

Chunks of about 350 words of a passage against each sentence of a step: the probability of ALIGNED from the three-way
head, the maximum over chunks, the mean over sentences. Two differences from the published code: sentences are split by
``eclose.values.segmentation`` instead of NLTK, and a chunk of more than 512 tokens is read in windows instead of being
cut off. Scores count the chunks that needed windows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from eclose.calls.local.weights import load_model_config, load_tokenizer
from eclose.detectors.entailment import StepSupportDetector
from eclose.errors import SettingError, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.manifest import hash_file
from eclose.values.segmentation import split_sentences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

CHUNK_WORDS = 350
ALIGNED_LABEL = "ALIGNED"
CONVERSION_FILE = "conversion.json"
"""Source of a converted checkpoint: name and hash of the file, and the backbone."""
# The pooler of RoBERTa and the head of its classifier are the same function: a dense layer and tanh on the first token.
_RENAMED = {
    "base_model.pooler.dense.weight": "classifier.dense.weight",
    "base_model.pooler.dense.bias": "classifier.dense.bias",
    "tri_layer.weight": "classifier.out_proj.weight",
    "tri_layer.bias": "classifier.out_proj.bias",
}
_BACKBONE = "base_model."
# A buffer that older versions of Transformers saved with the weights.
_POSITION_IDS = "base_model.embeddings.position_ids"


def split_into_chunks(text: str, words: int = CHUNK_WORDS) -> tuple[str, ...]:
    """Return the sentences of a text in chunks of about ``words`` words, by the rule of the published code.

    The number of sentences in a chunk is the same for all but the last one.

    >>> split_into_chunks("Ada built it. She was born in Lund. It rained.", words=5)
    ('Ada built it.', 'She was born in Lund.', 'It rained.')
    """
    sentences = split_sentences(text) or [""]
    parts = len(text.split()) // words + 1
    size = max(len(sentences) // parts, 1)
    return tuple(" ".join(sentences[start : start + size]) for start in range(0, len(sentences), size))


@dataclass(frozen=True, kw_only=True)
class AlignScoreDetector(StepSupportDetector):
    """AlignScore of each substantive step against each passage."""

    chunk_words: int = CHUNK_WORDS
    """About how many words of a passage are read at once."""
    method: ClassVar[str] = "alignscore nli_sp"

    def __post_init__(self) -> None:
        if self.chunk_words < 1:
            raise SettingError("chunk_words of AlignScore must be at least 1.")

    @property
    def identity(self) -> dict[str, Any]:
        """Model and settings, for the manifest of a run."""
        return {**super().identity, "chunk_words": self.chunk_words, "sentences": split_sentences.__module__}

    def split_step(self, text: str) -> Sequence[str]:
        """Return the sentences of a step."""
        return split_sentences(text)

    def split_passage(self, text: str) -> Sequence[str]:
        """Return the chunks of a passage."""
        return split_into_chunks(text, self.chunk_words)


def convert_align_score(checkpoint: Path, backbone: str, out: Path, *, revision: str | None = None) -> Path:
    """Convert a Lightning checkpoint of AlignScore into the folder of a RoBERTa classifier in safetensors.

    Only tensors and plain values are read from the checkpoint: one that needs any code is refused.

    Args:
        checkpoint: The published file, such as ``AlignScore-large.ckpt``.
        backbone: Folder or hub name with the configuration and tokenizer of its backbone, such as ``roberta-large``.
        out: Folder to write; it must not exist or be empty.
        revision: Commit of the backbone on the hub.

    Returns:
        The folder, which ``find_entailment_model`` takes as a name.

    Raises:
        UserError: The file is no checkpoint of AlignScore on this backbone, or cannot be read without running code.
    """
    from safetensors.torch import save_file  # noqa: PLC0415 - heavy

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists and is not an empty folder. Name another folder.")
    config = load_model_config(backbone, revision)
    if config.model_type != "roberta":
        raise UserError(f"{backbone}: is a {config.model_type}, and AlignScore is on RoBERTa. Give roberta-large.")
    tensors = _rename_weights(checkpoint, _read_state(checkpoint))
    config.architectures = ["RobertaForSequenceClassification"]
    # The scores use the first label only, so the other two need no names.
    config.id2label = {0: ALIGNED_LABEL, 1: "LABEL_1", 2: "LABEL_2"}
    config.label2id = {label: number for number, label in config.id2label.items()}
    _refuse_misfit(checkpoint, backbone, config, tensors)
    out.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(out)
    load_tokenizer(backbone, revision).save_pretrained(out)
    source = {"file": checkpoint.name, "hash": hash_file(checkpoint), "backbone": backbone, "revision": revision}
    with AtomicFile(out / CONVERSION_FILE) as file:
        file.write(json.dumps(source, indent=2).encode() + b"\n")
    # Written last: a folder without weights is refused when it is loaded.
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    return out


def _read_state(checkpoint: Path) -> Mapping[str, Tensor]:
    from pickle import UnpicklingError  # noqa: PLC0415 - names the error only; nothing is unpickled here

    import torch  # noqa: PLC0415

    if not checkpoint.is_file():
        raise UserError(f"{checkpoint}: no such file. Give the published checkpoint of AlignScore.")
    try:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as refusal:
        reason = " ".join(str(refusal).split())
        raise UserError(
            f"{checkpoint}: cannot be read without running code from it ({reason:.200}). Give the published file of"
            " AlignScore, or a copy that holds nothing but tensors."
        ) from refusal
    state = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(state, dict):
        raise UserError(f"{checkpoint}: holds no state_dict, so it is no checkpoint of AlignScore.")
    return state


def _rename_weights(checkpoint: Path, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of encoder and three-way head under the names of a RoBERTa classifier."""
    if missing := [name for name in _RENAMED if name not in state]:
        raise UserError(f"{checkpoint}: lacks {missing[0]}, so it is no checkpoint of AlignScore on RoBERTa.")
    tensors = {}
    for name, tensor in state.items():
        if name in _RENAMED:
            tensors[_RENAMED[name]] = tensor
        elif name.startswith(_BACKBONE) and name != _POSITION_IDS:
            tensors[f"roberta.{name.removeprefix(_BACKBONE)}"] = tensor
    # Safetensors refuses tensors that share memory, as tied ones do in a checkpoint.
    return {name: tensor.clone().contiguous() for name, tensor in tensors.items()}


def _refuse_misfit(checkpoint: Path, backbone: str, config: Any, tensors: Mapping[str, Tensor]) -> None:
    import torch  # noqa: PLC0415
    from transformers import RobertaForSequenceClassification  # noqa: PLC0415 - heavy

    with torch.device("meta"):  # shapes without memory
        classifier = RobertaForSequenceClassification(config)  # type: ignore[no-untyped-call]
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    expected = {name: tuple(tensor.shape) for name, tensor in classifier.state_dict().items()}
    if misfits := sorted(name for name in {*shapes, *expected} if shapes.get(name) != expected.get(name)):
        name = misfits[0]
        raise UserError(
            f"{checkpoint}: does not fit {backbone}: {name} is {shapes.get(name)} in the checkpoint and"
            f" {expected.get(name)} in the backbone. Give the backbone that it was trained on."
        )
