"""Hidden verifiers: logistic regression on the hidden states of a frozen causal model.

Alignment is read behind the trace and closure behind the answer, both in one forward. Support needs a second text,
evidence and steps, and is left out unless it is asked for: evidence is many times longer than a response.

A verifier is a folder: the weights of the heads in safetensors, and a header that names the model, its revision, the
layer and the template. It is refused with other weights, since heads fit the states of one model only.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eclose.core.identity import content_hash
from eclose.detection.verifier.heads import HeadScores, VerifierHead, VerifierInput
from eclose.detection.verifier.hidden_states import TEMPLATE_HASH, HiddenModelRef, find_hidden_model
from eclose.detection.verifier.linear import LinearHead, can_score, fit_linear_head, list_heads_in_order
from eclose.errors import SettingError, UserError
from eclose.store.records.atomic import AtomicFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eclose.detection.verifier.hidden_states import EncodedText, HiddenStateModel
    from eclose.detection.verifier.rows import VerifierRow
    from eclose.stats.arrays import Floats

HEADER_FILE, WEIGHTS_FILE = "verifier.json", "heads.safetensors"
FORMAT_VERSION = 1
"""Version of the folder."""
DEFAULT_HEADS = (VerifierHead.ALIGNMENT, VerifierHead.CLOSURE)
DEFAULT_PENALTY = 100.0
"""L2 penalty on standardised states; not chosen on results of this package."""
_TENSORS = ("weights", "means", "scales")


class HiddenVerifier:
    """A verifier of hidden states; see ``Verifier`` for the interface. The model is loaded at the first score."""

    def __init__(
        self,
        ref: HiddenModelRef,
        heads: Mapping[VerifierHead, LinearHead],
        training: Mapping[str, Any],
        model: HiddenStateModel | None = None,
    ) -> None:
        self.ref = ref
        self._model = model
        self.head_models = {head: heads[head] for head in list_heads_in_order(heads)}
        self.training = dict(training)
        """Counts and settings of the training; they do not decide scores."""

    @property
    def model(self) -> HiddenStateModel:
        """The loaded model."""
        if self._model is None:
            self._model = self.ref.load()
        return self._model

    @property
    def heads(self) -> tuple[VerifierHead, ...]:
        """Heads that the verifier was trained with."""
        return tuple(self.head_models)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the model's identity and of the heads' weights."""
        heads = {head.value: [_list_values(model), model.bias] for head, model in self.head_models.items()}
        # Without the name: a folder may be renamed, and its content is hashed.
        states = {key: value for key, value in self._state_identity.items() if key != "model"}
        return content_hash({"version": FORMAT_VERSION, "states": states, "heads": heads})

    @property
    def _state_identity(self) -> dict[str, Any]:
        return {**self.ref.identity, "dtype": self.ref.dtype}

    @property
    def name(self) -> str:
        """Name in scores: ``hidden@0123456789ab``."""
        return f"hidden@{self.fingerprint.removeprefix('sha256:')[:12]}"

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, model and fingerprint, which decide the scores."""
        return {"verifier": "hidden", **self._state_identity, "fingerprint": self.fingerprint}

    def score(self, inputs: Sequence[VerifierInput]) -> list[HeadScores]:
        """Return the scores of each input, in order; the support of a response is that of its weakest step.

        A head is absent where the input lacks a part that it reads, or where the text is over the token limit.
        """
        states = read_head_states(self.model, [(head, item) for item in inputs for head in self.heads])
        scores: list[HeadScores] = []
        for index in range(len(inputs)):
            part = states[index * len(self.heads) : (index + 1) * len(self.heads)]
            scores.append(
                {
                    head: float(self.head_models[head].predict(values).min())
                    for head, values in zip(self.heads, part, strict=True)
                    if values is not None
                }
            )
        return scores

    def save(self, folder: Path) -> Path:
        """Write header and weights into a folder that is new or empty; return the folder."""
        from safetensors.numpy import save  # noqa: PLC0415 - comes with the models

        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{folder}: exists and is not an empty folder. Name another folder.")
        tensors = {
            f"{head}.{part}": getattr(model, part) for head, model in self.head_models.items() for part in _TENSORS
        }
        header = {
            "format": "eclose hidden verifier",
            "version": FORMAT_VERSION,
            "kind": "hidden",
            "fingerprint": self.fingerprint,
            "states": self._state_identity,
            "heads": {
                head.value: {"bias": model.bias, "penalty": model.penalty} for head, model in self.head_models.items()
            },
            "training": self.training,
        }
        with AtomicFile(folder / WEIGHTS_FILE) as file:
            file.write(save(tensors))
        # Written last: a folder without a header is no verifier.
        with AtomicFile(folder / HEADER_FILE) as file:
            file.write(json.dumps(header, indent=2).encode() + b"\n")
        return folder


def _list_values(model: LinearHead) -> list[list[float]]:
    return [getattr(model, part).tolist() for part in _TENSORS]


def read_head_states(
    model: HiddenStateModel, requests: Sequence[tuple[VerifierHead, VerifierInput]]
) -> list[Floats | None]:
    """Return the states that each head reads of its input, in order; each of shape (reads, width).

    Alignment and closure of the same response are read in one forward. None stands for an input that lacks a part
    that the head reads, or whose text is over the token limit; nothing is cut.
    """
    texts = [_encode_for_head(model, head, item) for head, item in requests]
    # The whole response also has the state behind its trace.
    responses = {
        text.ids[: text.reads[0] + 1]: text
        for (head, _), text in zip(requests, texts, strict=True)
        if text is not None and head is VerifierHead.CLOSURE
    }
    shared = [
        text if text is None or head is not VerifierHead.ALIGNMENT else responses.get(text.ids, text)
        for (head, _), text in zip(requests, texts, strict=True)
    ]
    results = iter(model.read_states([text for text in shared if text is not None]))
    states: list[Floats | None] = []
    for (head, _), text in zip(requests, shared, strict=True):
        values = None if text is None else next(results).astype(np.float64)
        states.append(values if values is None else values[_READ_ROWS[head]])
    return states


_READ_ROWS = {
    VerifierHead.SUPPORT: slice(None),
    VerifierHead.ALIGNMENT: slice(1),
    VerifierHead.CLOSURE: slice(-1, None),
}
"""Rows of a text's states that a head reads: all steps, the trace, the answer."""


def _encode_for_head(model: HiddenStateModel, head: VerifierHead, item: VerifierInput) -> EncodedText | None:
    if not can_score(head, item):
        return None
    if head is VerifierHead.SUPPORT:
        text = model.encode_steps(item.evidence, item.steps)
    elif head is VerifierHead.ALIGNMENT:
        text = model.encode_trace(item.question, item.steps)
    else:
        text = model.encode_response(item.question, item.steps, item.answer)
    return text if len(text) <= model.ref.token_limit else None


def train_hidden_verifier(
    rows: Sequence[VerifierRow],
    ref: HiddenModelRef,
    *,
    heads: Sequence[VerifierHead] = DEFAULT_HEADS,
    penalty: float = DEFAULT_PENALTY,
) -> HiddenVerifier:
    """Train the heads of a verifier on the states of a frozen model. The fit has one solution and draws nothing.

    Args:
        rows: Labelled rows, from ``build_verifier_rows``; those of other heads are not used.
        ref: The model and layer, from ``find_hidden_model``.
        heads: Heads to train.
        penalty: L2 penalty on the weights of standardised states.

    Raises:
        UserError: A head has no rows of one of the labels.
    """
    if not heads:
        raise SettingError("heads: name at least one of support, alignment and closure.")
    model = ref.load()
    used = [row for row in rows if row.head in heads]
    states = read_head_states(model, [(row.head, row.input) for row in used])
    features = tuple(map(str, range(model.width)))
    trained: dict[VerifierHead, LinearHead] = {}
    counts: dict[str, dict[str, int]] = {}
    for head in list_heads_in_order(heads):
        pairs = [(row, values) for row, values in zip(used, states, strict=True) if row.head is head]
        read = [(row, values) for row, values in pairs if values is not None]
        labels = np.array([row.label for row, _ in read], dtype=bool)
        if len(set(labels.tolist())) != 2:
            raise UserError(f"The {head} head has no rows of one of the labels to train on. Give more families.")
        # A row of the support head has a single step, so every row has a single state.
        matrix = np.stack([values[-1] for _, values in read])
        trained[head] = fit_linear_head(matrix, labels, features, penalty)
        counts[head.value] = {
            "rows": len(read),
            "holds": int(labels.sum()),
            "over the token limit": len(pairs) - len(read),
        }
    training = {"families": len({row.family_id for row in used}), "rows": counts, "model": ref.name}
    # The precision that "auto" chose is part of the verifier: another machine may choose another one.
    return HiddenVerifier(replace(ref, dtype=model.dtype), trained, training, model)


def load_hidden_verifier(
    folder: Path, *, model: str | None = None, revision: str | None = None, device: str | None = None
) -> HiddenVerifier:
    """Load a verifier; the weights of its model are loaded at the first score.

    Args:
        folder: Folder that ``HiddenVerifier.save`` wrote.
        model: Folder or file of the model; None for the hub name that the verifier was trained with.
        revision: Commit of a hub name; None for the one that the verifier was trained with.
        device: Device; None for the accelerator where there is one.

    Raises:
        UserError: The folder is no verifier, was changed, or belongs to another model, revision or template.
    """
    header = _read_header(folder)
    states: Mapping[str, Any] = header["states"]
    if states["template"] != TEMPLATE_HASH:
        raise UserError(f"{folder}: was trained with texts laid out by another release. Train the verifier again.")
    name = model or states["model"]
    if states["revision"] is None and not Path(name).exists():
        raise UserError(f"{folder}: was trained on the local weights {states['model']}. Give their folder or file.")
    ref = find_hidden_model(
        name,
        revision=revision if Path(name).exists() else revision or states["revision"],
        layer=states["layer"],
        max_tokens=states["max_tokens"],
        dtype=states["dtype"],
        device=device,
    )
    for part in ("weights", "revision"):
        if ref.identity[part] != states[part]:
            raise UserError(
                f"{folder}: was trained on {states['model']} ({part} {states[part]}), and {name} has {part}"
                f" {ref.identity[part]}. Heads fit one model only: give that one, or train again."
            )
    verifier = HiddenVerifier(ref, _read_heads(folder, header), header["training"])
    if verifier.fingerprint != header["fingerprint"]:
        raise UserError(f"{folder}: the weights do not match the fingerprint; a file was changed. Train it again.")
    return verifier


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER_FILE
    try:
        header = json.loads(path.read_bytes())
        if header["kind"] != "hidden" or header["version"] != FORMAT_VERSION:
            raise UserError(f"{path}: is a {header['kind']} verifier of version {header['version']}. Train it again.")
        if missing := {"states", "heads", "training", "fingerprint"} - header.keys():
            raise KeyError(min(missing))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: is no header of a hidden verifier ({error}).") from error
    return dict(header)


def _read_heads(folder: Path, header: Mapping[str, Any]) -> dict[VerifierHead, LinearHead]:
    from safetensors import SafetensorError  # noqa: PLC0415 - comes with the models
    from safetensors.numpy import load_file  # noqa: PLC0415

    path = folder / WEIGHTS_FILE
    try:
        tensors = load_file(path)
        heads = {}
        for name, settings in header["heads"].items():
            weights, means, scales = (tensors[f"{name}.{part}"] for part in _TENSORS)
            features = tuple(map(str, range(len(weights))))
            heads[VerifierHead(name)] = LinearHead(
                features, weights, means, scales, float(settings["bias"]), float(settings["penalty"])
            )
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: holds no heads of this verifier ({error}).") from error
    return heads
