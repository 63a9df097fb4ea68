"""Admission of families to training: those that pass every gate and fit the length limit, and reasons for the others.

The decision is the same for every objective, so that all of them train on the same families. It is recorded beside the
run; a resumed run and the other processes of a run read the record instead of deciding again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import eclose
from eclose.errors import RecordError, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.families import find_failed_gate
from eclose.files.jsonl import ReadRecord
from eclose.files.manifest import hash_file
from eclose.files.outcome_counts import RecordCounter
from eclose.files.record_file import IndexedFile, index_jsonl_file
from eclose.values.family import Family, ViewKind
from eclose.values.identity import content_hash
from eclose_train.likelihood.family_scores import FamilyScores
from eclose_train.likelihood.render import TOO_LONG_REASON, PathTooLongError, TokenPathRenderer, response_segments

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_WORD = re.compile(r"\s*\S+|\s+")
# Most distinct words whose counts are kept, to bound memory.
_CACHED_WORDS = 500_000
_SLACK_SHARE, _SLACK_TOKENS = 0.05, 32
"""Distance from the limit, as a share and in tokens, at which an estimate replaces tokenizing."""


class FamilyAdmission(NamedTuple):
    """Families of a file that can be trained on, the counts, and the records left out with their reasons."""

    families: IndexedFile[Family]
    tally: RecordCounter
    left_out: list[ReadRecord[Family]]


def admit_families(
    path: Path,
    renderer: TokenPathRenderer,
    tick: Callable[[], None] = lambda: None,
    *,
    record: Path | None = None,
    file_hash: str | None = None,
) -> FamilyAdmission:
    """Admit the families of a file that pass every gate and fit into the renderer's length.

    The decision is read from the file ``record`` if it was made for the same families, tokenizer, prompt and length,
    and written there otherwise.

    Raises:
        UserError: No family of the file can be trained on.
    """
    key = None if record is None else _key(file_hash or hash_file(path), renderer)
    admission = None if record is None else _read(record, key, path)
    if admission is not None:
        return admission
    estimate = _LengthEstimate(renderer)

    def find_reason(family: Family) -> str | None:
        tick()
        if reason := find_failed_gate(family):
            return reason
        return None if estimate.surely_fits(family) or _fits(family, renderer) else TOO_LONG_REASON

    admission = FamilyAdmission(*index_jsonl_file(path, Family, find_reason))
    if not len(admission.families):
        raise UserError(f"{path}: there is no family to train on ({admission.tally.counts()}).")
    if record is not None:
        _write(record, key, admission)
    return admission


def _fits(family: Family, renderer: TokenPathRenderer) -> bool:
    """Return whether every path of any objective is short enough, with any of the evidence edits."""
    # All nine pairs, also those of other objectives: every method must train on the same families.
    pairs = [(prompt, response) for prompt in ViewKind for response in ViewKind]
    try:
        for edit in family.evidence_edits:
            # Rendering alone: it raises where a path is too long.
            family_scores = FamilyScores(family, edit, renderer)
            family_scores.responses(pairs)
            family_scores.comparisons()
    except PathTooLongError:
        return False
    return True


@dataclass
class _LengthEstimate:
    """Estimate of a family's longest path from token counts that are cached for every distinct word.

    For a tokenizer that splits at white space, a text has the tokens of its words. Where the sum comes near the limit,
    the family is tokenized.
    """

    renderer: TokenPathRenderer
    _counts: dict[str, int] = field(default_factory=dict)

    def surely_fits(self, family: Family) -> bool:
        """Return whether the longest prompt with the longest trace and answer stays clearly below the limit."""
        views = [family.gold, *(edit.view for edit in family.evidence_edits), family.question_edit.view]
        inputs = [(view.question, view.evidence) for view in views]
        prompt = self._frame + max(self._tokens(self.renderer.prompt.messages(*pair)[-1]["content"]) for pair in inputs)
        # Comparisons join a trace with another view's answer, so the longest of each is used.
        traces, answers = [], []
        for view in views:
            texts = [segment.text for segment in response_segments(view.trace, view.answer, "")]
            traces.append(self._tokens("".join(texts[:-3])))
            answers.append(self._tokens("".join(texts[-3:])))  # marker, answer, end of turn
        tokens = prompt + max(traces) + max(answers)
        # Words may split otherwise in context, so an estimate near the limit is not trusted.
        return tokens * (1 + _SLACK_SHARE) + _SLACK_TOKENS <= self.renderer.max_length

    @cached_property
    def _frame(self) -> int:
        """Tokens of a prompt without passages and question: instructions, demonstrations and chat template."""
        return self._tokens(self.renderer.prompt_text("", ()))

    def _tokens(self, text: str) -> int:
        """Count the tokens of a text as the sum over its words."""
        words = _WORD.findall(text)
        if missing := [word for word in set(words) if word not in self._counts]:
            if len(self._counts) > _CACHED_WORDS:
                self._counts.clear()
                missing = list(set(words))
            encoded = self.renderer.tokenizer(missing, add_special_tokens=False)["input_ids"]
            self._counts.update(zip(missing, map(len, encoded), strict=True))
        return sum(map(self._counts.__getitem__, words))


def _key(file_hash: str, renderer: TokenPathRenderer) -> str:
    tokenizer = renderer.tokenizer
    # Content rather than name: a folder can be overwritten by another tokenizer.
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = backend.to_str() if backend is not None else sorted(tokenizer.get_vocab().items())
    prompt = renderer.prompt_text("", ())
    # The gates decide as well, and they may differ between versions of the package.
    return content_hash([file_hash, vocabulary, prompt, renderer.max_length, eclose.__version__])


def _read(record: Path, key: str | None, path: Path) -> FamilyAdmission | None:
    """Return the recorded decision; None where there is none, or it was made for something else."""
    try:
        decision: dict[str, Any] = json.loads(record.read_text("utf-8"))
    # An unreadable record is no error: the decision can be made again at the cost of tokenizing.
    except (OSError, ValueError):
        return None
    if decision.get("key") != key:
        return None
    counts = decision["counts"]
    tally = RecordCounter(counts["received"], counts["accepted"], *(Counter(counts[name]) for name in _REASONS))
    index = IndexedFile.from_rows(path, Family, decision["families"])
    return FamilyAdmission(index, tally, [_left_out(row) for row in decision["left_out"]])


_REASONS = ("rejected", "quarantined", "repaired")


def _left_out(row: dict[str, str]) -> ReadRecord[Family]:
    if "rejected" in row:
        return ReadRecord(row["where"], rejected=row["rejected"])
    return ReadRecord(row["where"], error=RecordError(row["error"]), error_kind=row["error_kind"])


def _write(record: Path, key: str | None, admission: FamilyAdmission) -> None:
    counts = admission.tally.counts()
    rows = [
        {"where": row.where, "rejected": row.rejected}
        if row.rejected is not None
        else {"where": row.where, "error": str(row.error), "error_kind": row.error_kind}
        for row in admission.left_out
    ]
    decision = {
        "key": key,
        "counts": {name: getattr(counts, name) for name in ("received", "accepted", *_REASONS)},
        "left_out": rows,
        "families": list(admission.families.rows()),
    }
    with AtomicFile(record) as file:
        file.write(json.dumps(decision).encode() + b"\n")
