"""Hidden states of a frozen causal model, read behind the trace and behind the answer in one forward.

The text is question, trace, answer. Attention is causal, so the state behind the trace has not seen the answer. The
two parts are tokenised apart: otherwise the first letters of an answer could join the last token of the trace. Only the
blocks up to the layer that is read are run. Nothing is cut: a text over the token limit has no states.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.core.identity import content_hash
from eclose.detection.local_detector import BATCH_TOKENS
from eclose.errors import SettingError, UserError
from eclose.models.load_weights import (
    find_hub_commit,
    load_causal_model,
    load_model_config,
    load_tokenizer,
    model_table_name,
    name_weights_version,
    refuse_pickled_weights,
)
from eclose.models.resolve import find_model_ref

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from eclose.core.instance import Passage

_TRACE_TEXT = "Question: {question}\nReasoning:\n{steps}"
_ANSWER_TEXT = "Answer: {answer}"
_EVIDENCE_TEXT = "Evidence:\n{passages}\nReasoning:\n"
_PART_END = "\n"
"""Text behind every part. Its last token is read: the same token for all texts, so states differ by what it attends to
and not by the word that happens to be last."""
# A mean over the last tokens was compared on 48 development families of the world (SmolLM2-135M, layer 15): AUROC of
# alignment .71 against .68, a difference of .03 [-.02, .09]; of closure .99 against .98. A single state is kept.
TEMPLATE_HASH = content_hash([_TRACE_TEXT, _ANSWER_TEXT, _EVIDENCE_TEXT, _PART_END, "parts tokenised apart"])
"""Fingerprint of the texts that are read."""
_PROBE_TOKENS = 16
_LEAK = {"torch.float64": 1e-9, "torch.float32": 1e-3}
"""Largest change of a state, relative to its norm, when later tokens change; rounding alone may cause as much."""
_LOW_PRECISION_LEAK = 5e-2


@dataclass(frozen=True, slots=True)
class EncodedText:
    """Tokens of a text, and the positions whose states are read."""

    ids: tuple[int, ...]
    reads: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.ids)


@dataclass(frozen=True, kw_only=True)
class HiddenModelRef:
    """A reference to a causal model and one of its layers; made by ``find_hidden_model``."""

    weights: str
    """Folder, GGUF file or hub name."""
    revision: str | None
    """Commit of a hub name; None for a folder or file."""
    content: str
    """Hash of the files of a folder; hash of the name where the weights are on the hub."""
    layer: int
    """Number of blocks that are run: the states are those that ``output_hidden_states`` has at this index."""
    token_limit: int
    """Largest number of tokens of a text."""
    dtype: str = "auto"
    device: str | None = None
    """Device; None for the accelerator where there is one. Not part of the identity."""

    @property
    def name(self) -> str:
        """Name with the commit, or with a hash of the files."""
        return name_weights_version(self.weights, self.revision, self.content)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything about the model that decides its states. Paths on this machine are not part of it."""
        return {
            "model": model_table_name(self.weights),
            "revision": self.revision,
            "weights": self.content,
            "layer": self.layer,
            "max_tokens": self.token_limit,
            "template": TEMPLATE_HASH,
        }

    def load(self) -> HiddenStateModel:
        """Load the weights and the tokenizer.

        Raises:
            UserError: The model is not causal, or computes no numbers in its precision.
        """
        import torch  # noqa: PLC0415

        accelerator = torch.accelerator.current_accelerator(check_available=True)
        device = self.device or ("cpu" if accelerator is None else accelerator.type)
        model = load_causal_model(self.weights, revision=self.revision, dtype=self.dtype, device=device)
        return HiddenStateModel(self, model, load_tokenizer(self.weights, self.revision))


def find_hidden_model(
    name: str,
    *,
    revision: str | None = None,
    layer: int | None = None,
    max_tokens: int | None = None,
    dtype: str = "auto",
    device: str | None = None,
) -> HiddenModelRef:
    """Return a reference to a causal model whose hidden states are read.

    Args:
        name: Folder, GGUF file or hub name.
        revision: Branch, tag or commit of a hub name; the reference holds the commit.
        layer: Number of blocks to run; None for half of them, rounded up.
        max_tokens: Largest number of tokens of a text; None for the model's own limit.
        dtype: Precision of the weights.
        device: Device; None for the accelerator where there is one.

    Raises:
        UserError: The weights are pickles, or the model does not say how many blocks it has or how much it reads.
        SettingError: The layer is outside the model, or a revision is named for a folder.
    """
    refuse_pickled_weights(name)
    local = Path(name).exists()
    if revision is not None and local:
        raise SettingError(f"revision {revision}: is for a model on the hub, and {name} is a folder. Leave it out.")
    if max_tokens is not None and max_tokens < 1:
        raise SettingError("max_tokens of a hidden verifier must be at least 1.")
    commit = None if local else find_hub_commit(name, revision)
    depth, limit = _read_sizes(name, commit)
    if layer is not None and not 1 <= layer <= depth:
        raise SettingError(f"layer {layer}: {name} has layers 1 to {depth}.")
    if (token_limit := max_tokens or limit) is None:
        raise UserError(f"{name}: its configuration does not say how many tokens it reads. Give max_tokens.")
    return HiddenModelRef(
        weights=name,
        revision=commit,
        content=find_model_ref(f"transformers:{name}", revision=commit).identity["weights"],
        layer=layer or (depth + 1) // 2,
        token_limit=token_limit,
        dtype=dtype,
        device=device,
    )


def _read_sizes(name: str, revision: str | None) -> tuple[int, int | None]:
    """Return the number of blocks and the token limit of a model; the limit is None where the model names none."""
    config = load_model_config(name, revision)
    text = config.get_text_config()
    depth, limit = getattr(text, "num_hidden_layers", None), getattr(text, "max_position_embeddings", None)
    if not isinstance(depth, int) or depth < 1:
        raise UserError(f"{name}: its configuration does not say how many layers it has. Give a causal model.")
    return depth, limit if isinstance(limit, int) and limit > 0 else None


class HiddenStateModel:
    """A loaded causal model, cut off behind the layer that is read where its architecture permits."""

    def __init__(self, ref: HiddenModelRef, model: Any, tokenizer: Any) -> None:
        self.ref = ref
        self._tokenizer = tokenizer
        self._decoder = model.eval().get_decoder()
        self._blocks = _find_blocks(self._decoder, model.config.get_text_config().num_hidden_layers)
        self.stops_early = False
        self._stop_behind_layer()
        self._refuse_leak()
        controls = sorted((token for token in tokenizer.all_special_tokens if len(token) > 1), key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, controls)) or r"(?!)")
        self._end = self._tokenize(_PART_END)
        # Some tokenizers begin every text with a token that the model has always seen first.
        start = tokenizer("a")["input_ids"][0]
        self._start = (start,) if start == tokenizer.bos_token_id else ()

    @property
    def dtype(self) -> str:
        """Precision of the weights, such as ``float32``."""
        return str(self._decoder.dtype).removeprefix("torch.")

    @property
    def width(self) -> int:
        """Number of values of a state."""
        return int(self._decoder.config.get_text_config().hidden_size)

    def encode_trace(self, question: str, steps: Sequence[str]) -> EncodedText:
        """Return question and trace, read behind the trace."""
        text = _TRACE_TEXT.format(question=self._clean(question), steps="\n".join(map(self._clean, steps)))
        ids = (*self._start, *self._tokenize(text), *self._end)
        return EncodedText(ids, (len(ids) - 1,))

    def encode_response(self, question: str, steps: Sequence[str], answer: str) -> EncodedText:
        """Return question, trace and answer, read behind the trace and behind the answer."""
        trace = self.encode_trace(question, steps)
        ids = (*trace.ids, *self._tokenize(_ANSWER_TEXT.format(answer=self._clean(answer))), *self._end)
        return EncodedText(ids, (*trace.reads, len(ids) - 1))

    def encode_steps(self, evidence: Sequence[Passage], steps: Sequence[str]) -> EncodedText:
        """Return evidence and steps, read behind every step."""
        passages = "\n".join(self._clean(f"{passage.title}: {passage.text}") for passage in evidence)
        ids, reads = [*self._start, *self._tokenize(_EVIDENCE_TEXT.format(passages=passages))], []
        for step in steps:
            ids += (*self._tokenize(self._clean(step)), *self._end)
            reads.append(len(ids) - 1)
        return EncodedText(tuple(ids), tuple(reads))

    def read_states(self, texts: Sequence[EncodedText], batch_tokens: int = BATCH_TOKENS) -> list[NDArray[np.float32]]:
        """Return the states of each text, in order; each of shape (reads, width), in float32.

        Texts of similar length share a batch, and equal texts are run once.

        Args:
            texts: The texts, none of them over the token limit.
            batch_tokens: Largest number of tokens of a batch, padding included. A longer text is a batch of its own.

        Raises:
            UserError: The model computes no numbers in its precision.
        """
        # Longest first: a batch that does not fit into memory fails at once. Equal lengths are sorted by content, so
        # that batches do not depend on the order of the texts.
        waiting = sorted(set(texts), key=lambda text: (-len(text), text.ids, text.reads))
        states: dict[EncodedText, NDArray[np.float32]] = {}
        while waiting:
            size = max(1, batch_tokens // len(waiting[0]))
            batch, waiting = waiting[:size], waiting[size:]
            states |= zip(batch, self._run_batch(batch), strict=True)
        return [states[text] for text in texts]

    def _run_batch(self, texts: Sequence[EncodedText]) -> list[NDArray[np.float32]]:
        import torch  # noqa: PLC0415

        width = max(map(len, texts))
        # Padding is on the right, where no earlier token sees it; any token will do, and no mask is needed.
        ids = torch.tensor([(*text.ids, *text.ids[-1:] * (width - len(text))) for text in texts])
        with torch.inference_mode():
            states = self._run_layers(ids.to(self._decoder.device))  # (texts, tokens, width)
            picked = [states[row, list(text.reads)].float().cpu() for row, text in enumerate(texts)]
        if not all(bool(state.isfinite().all()) for state in picked):
            raise UserError(f"{self.ref.name}: computes no number in {self.dtype}. Use float32 or bfloat16.")
        return [state.numpy() for state in picked]

    def _run_layers(self, ids: Tensor) -> Tensor:
        """Return the states behind the layer, shape (texts, tokens, width)."""
        if not self.stops_early:
            states: Tensor = self._decoder(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states[
                self.ref.layer
            ]
            return states
        outputs: list[Any] = []
        # The decoder ends with a norm that intermediate states do not have, so the last block's output is taken.
        hook = self._blocks[-1].register_forward_hook(lambda _block, _inputs, output: outputs.append(output))
        try:
            self._decoder(input_ids=ids, use_cache=False)
        finally:
            hook.remove()
        last: Tensor = outputs[0][0] if isinstance(outputs[0], tuple) else outputs[0]
        return last

    def _stop_behind_layer(self) -> None:
        """Remove the blocks behind the layer, unless the states of a few fixed tokens change by it."""
        import torch  # noqa: PLC0415

        if self._blocks is None or self.ref.layer == len(self._blocks):
            return
        ids = self._probe_ids()
        with torch.inference_mode():
            full = self._run_layers(ids)
            later = list(self._blocks[self.ref.layer :])
            del self._blocks[self.ref.layer :]
            self.stops_early = True
            try:
                same = torch.equal(full, self._run_layers(ids))
            except (IndexError, RuntimeError, TypeError, ValueError):
                same = False  # the architecture needs its later blocks, for a cache that they share
        if not same:
            self._blocks.extend(later)
            self.stops_early = False

    def _refuse_leak(self) -> None:
        """Raise where later tokens change an earlier state: the state behind the trace would see the answer."""
        import torch  # noqa: PLC0415

        ids = self._probe_ids()
        half = _PROBE_TOKENS // 2
        other = torch.cat([ids[:, :half], ids[:, half:].flip(1)], dim=1)
        with torch.inference_mode():
            first, second = (self._run_layers(row)[0, :half].float() for row in (ids, other))
        change = float(((first - second).norm(dim=-1) / first.norm(dim=-1).clamp_min(1e-9)).max())
        if not change <= _LEAK.get(str(self._decoder.dtype), _LOW_PRECISION_LEAK):
            raise UserError(
                f"{self.ref.name}: later tokens change the states of earlier ones, so the alignment head would see the"
                " answer. Give a causal language model, in float32 or bfloat16."
            )

    def _probe_ids(self) -> Tensor:
        """Return a few tokens that every vocabulary has, shape (1, tokens)."""
        import torch  # noqa: PLC0415

        return torch.arange(1, _PROBE_TOKENS + 1, device=self._decoder.device)[None]

    def _clean(self, text: str) -> str:
        # A response that spells a control token would end the text: a blank makes ordinary text of it.
        return self._controls.sub(lambda control: f"{control[0][0]} {control[0][1:]}", text)

    def _tokenize(self, text: str) -> tuple[int, ...]:
        # verbose: the tokenizer would warn of every text above its own limit, which is not the limit here.
        return tuple(self._tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)["input_ids"])


def _find_blocks(decoder: Any, depth: int) -> Any:
    """Return the list of a decoder's blocks; None where no list has their number."""
    from torch.nn import ModuleList  # noqa: PLC0415

    lists = [part for part in decoder.modules() if isinstance(part, ModuleList) and len(part) == depth]
    # Parts inside a block, such as experts, may be as many as there are blocks; the outermost list comes first.
    return lists[0] if lists else None
