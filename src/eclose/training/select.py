"""Select the checkpoint of a run that answers best under all three inputs of held-out families.

The rule of appendix D.4: half of the accuracy on original inputs, a quarter each on evidence-edited and question-edited
ones, greedy decoding, the deterministic matcher, ties to the earlier checkpoint. Scores of the switch test have no part
in it. Where no checkpoint submitted any answer, none is selected. A selection that was stopped goes on with the first
checkpoint it has not finished.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import eclose
from eclose.core.family import Family, ViewKind
from eclose.core.identity import content_hash
from eclose.errors import RecordError, UserError
from eclose.models.interface import BatchModel, Decoding, FinishReason
from eclose.models.local.chat_template import PromptTooLongError
from eclose.protocol.response_prompt import Order, ResponsePrompt
from eclose.stats.rates import Rate
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.json_reader import require_file
from eclose.store.records.jsonl import parse_record
from eclose.store.records.strict_json import parse_object
from eclose.training.checkpoint_replies import Answered, Asked, Replies, ask
from eclose.training.checkpoints import Candidate, drop_adapter, find_candidates, keep_adapter

if TYPE_CHECKING:
    from collections.abc import Iterable

RESULT = "selection.json"
REPLIES = "selection.replies.jsonl"
SELECTED = "selected"
_WEIGHTS = {
    ViewKind.GOLD: Fraction(1, 2),
    ViewKind.EVIDENCE_CF: Fraction(1, 4),
    ViewKind.QUESTION_CF: Fraction(1, 4),
}


class Adaptable(Protocol):
    """A model that can carry one adapter after another."""

    def with_adapter(self, folder: Path) -> BatchModel:
        """The model with that adapter on it."""
        ...


@dataclass(frozen=True)
class Origin:
    """What a run's recipe says of its model, and of how that is to be asked."""

    model: str
    revision: str | None = None
    demonstrations: int = 2
    order: Order = Order.EVIDENCE_FIRST
    dtype: str = "auto"


@dataclass(frozen=True)
class SelectionSettings:
    """Everything that decides a checkpoint's replies, apart from the checkpoint and the families."""

    origin: Origin
    engine: str
    max_new_tokens: int = 512

    @property
    def prompt(self) -> ResponsePrompt:
        """The prompt the run was trained with."""
        return ResponsePrompt(self.origin.demonstrations, self.origin.order)

    @property
    def plain(self) -> dict[str, Any]:
        """As a record says it. Versions belong to it: checkpoints are compared, so they must be asked alike."""
        return {
            "model": self.origin.model,
            "revision": self.origin.revision,
            "dtype": self.origin.dtype,
            "demonstrations": self.origin.demonstrations,
            "order": self.origin.order.value,
            "prompt": self.prompt.hash,
            "decoding": "greedy",
            "max_new_tokens": self.max_new_tokens,
            "engine": self.engine,
            "versions": {name: _version(name) for name in sorted({self.engine, "peft", "torch", "transformers"})},
        }


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How often the answers to each kind of input were right, and how often there was none."""

    rates: Mapping[ViewKind, Rate]
    incomplete: Mapping[ViewKind, int]
    """Wrong for want of a submitted answer; part of the wrong ones."""
    cut_off: int = 0
    """Replies that reached the limit of new tokens before they submitted an answer; part of the incomplete ones."""

    @classmethod
    def of(cls, inputs: Sequence[Asked], replies: Sequence[Answered]) -> Accuracy:
        """Count right answers and missing ones."""
        pairs = list(zip(inputs, replies, strict=True))
        missing = [(question, reply) for question, reply in pairs if reply.answer is None]
        return cls(
            {
                kind: Rate.of(reply.correct(question) for question, reply in pairs if question.view is kind)
                for kind in ViewKind
            },
            {kind: sum(question.view is kind for question, _ in missing) for kind in ViewKind},
            sum(reply.finish is FinishReason.LENGTH for _, reply in missing),
        )

    @property
    def replies(self) -> int:
        """How many inputs were answered or left without an answer."""
        return sum(rate.n for rate in self.rates.values())

    @property
    def unanswered(self) -> int:
        """How many replies submitted no answer."""
        return sum(self.incomplete.values())

    @property
    def score(self) -> Fraction:
        """A_sel, exactly: two checkpoints are tied or they are not."""
        return sum(
            (weight * Fraction(self.rates[kind].hits, self.rates[kind].n) for kind, weight in _WEIGHTS.items()),
            Fraction(),
        )


@dataclass(frozen=True)
class Scored:
    """A candidate with its accuracy; its replies are found under ``key``."""

    candidate: Candidate
    accuracy: Accuracy
    key: str


@dataclass(frozen=True)
class Selection:
    """Every candidate by step, the folders passed over, and the folder of the selected adapter."""

    scored: tuple[Scored, ...]
    torn: tuple[str, ...]
    adapter: Path

    @property
    def answered(self) -> bool:
        """Whether any checkpoint submitted any answer; without one there is nothing to select by."""
        return any(scored.accuracy.unanswered < scored.accuracy.replies for scored in self.scored)

    @property
    def chosen(self) -> Scored:
        """The best candidate; of equals the earliest."""
        return max(self.scored, key=lambda scored: (scored.accuracy.score, -scored.candidate.step))

    @property
    def warning(self) -> str | None:
        """Why the selection should not be trusted; None where it can be."""
        if not self.answered:
            accuracies = [scored.accuracy for scored in self.scored]
            replies, cut_off = sum(one.replies for one in accuracies), sum(one.cut_off for one in accuracies)
            return f"no checkpoint is selected: none of {replies:,} replies submitted an answer{_limit(cut_off)}"
        accuracy = self.chosen.accuracy
        if not accuracy.score:
            return "no reply of any checkpoint is right; the earliest checkpoint is kept by the rule for ties"
        if 2 * accuracy.unanswered > accuracy.replies:
            return (
                f"{accuracy.unanswered:,} of {accuracy.replies:,} replies of {self.chosen.candidate.folder.name} "
                f"submitted no answer{_limit(accuracy.cut_off)}"
            )
        return None


def _limit(cut_off: int) -> str:
    return f"; {cut_off:,} were cut off at the limit of new tokens, so raise --max-new-tokens" if cut_off else ""


def read_origin(run: Path, model: str | None = None) -> Origin:
    """What the run's recipe says, with another place of the weights if one is given."""
    path = run / "recipe.json"
    require_file(path)
    try:
        origin = parse_record(Origin, parse_object(path.read_bytes()), extra="ignore")
    except RecordError as error:
        raise UserError(f"{path}: {error}. Is {run} the folder of a training run?") from error
    if model is None or model == origin.model:
        return origin
    # A revision names a commit of the recipe's repository and of no other.
    return Origin(model, None, origin.demonstrations, origin.order, origin.dtype)


def select_checkpoint(
    run: Path,
    families: Sequence[Family],
    settings: SelectionSettings,
    load: Callable[[], Adaptable],
    *,
    force: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Selection:
    """Compare the checkpoints of a run and keep the best. The model is loaded only if replies are missing."""
    candidates, torn = find_candidates(run)
    prompt, decoding = settings.prompt, Decoding(max_tokens=settings.max_new_tokens)
    inputs = [question for family in families for question in ask(family, prompt, decoding)]
    if not inputs:
        raise UserError("there is no family to compare checkpoints on. Give held-out families.")
    identity = {"settings": settings.plain, "families": _families_hash(inputs)}
    if not force:
        _refuse_other(run / RESULT, identity)
    replies = Replies(run / REPLIES)
    model: Adaptable | None = None
    scored = []
    for candidate in candidates:
        key = content_hash([candidate.hash, identity])
        answers = replies.find(key, inputs)
        if answers is None:
            tell(candidate.folder.name)
            model = load() if model is None else model
            answers = _answers(model.with_adapter(candidate.folder), inputs)
        replies.keep(key, candidate.folder.name, inputs, answers)
        scored.append(Scored(candidate, Accuracy.of(inputs, answers), key))
    selection = Selection(tuple(scored), tuple(torn), run / SELECTED)
    if selection.answered:
        keep_adapter(selection.chosen.candidate.folder, selection.adapter)
    else:
        drop_adapter(selection.adapter)
    _write(run / RESULT, selection, identity, len(families))
    return selection


def _answers(model: BatchModel, inputs: Sequence[Asked]) -> list[Answered]:
    try:
        replies = model.complete_all([question.request for question in inputs])
    except PromptTooLongError as error:
        question = inputs[error.place]
        reason = str(error).partition(": ")[2]
        raise UserError(f"family {question.family_id!r}, {question.view.value}: {reason}") from error
    return [Answered.of(*pair) for pair in zip(inputs, replies, strict=True)]


def _families_hash(inputs: Iterable[Asked]) -> str:
    """Return the identity of the inputs. Accepted answers are left out: replies are matched anew every time."""
    return content_hash([[row.family_id, row.view.value, list(row.request.messages)] for row in inputs])


def _refuse_other(path: Path, identity: Mapping[str, Any]) -> None:
    """Raise where a selection was finished with other settings or families; --force replaces it."""
    if not path.exists():
        return
    try:
        before = parse_object(path.read_bytes())
    except RecordError as error:
        raise UserError(f"{path}: {error} Move it away, or pass --force to replace it.") from error
    settings = before.get("settings", {})
    names = sorted(name for name, value in identity["settings"].items() if settings.get(name) != value)
    names += ["families"] if before.get("families", {}).get("hash") != identity["families"] else []
    if names:
        raise UserError(
            f"{path}: a checkpoint was selected before with other {', '.join(names)}. Pass --force to select anew; "
            "replies are kept either way."
        )


def _write(path: Path, selection: Selection, identity: Mapping[str, Any], families: int) -> None:
    chosen = selection.chosen
    selected = {
        "checkpoint": chosen.candidate.folder.name,
        "step": chosen.candidate.step,
        "score": float(chosen.accuracy.score),
        "adapter": chosen.candidate.hash,
        "folder": selection.adapter.name,
    }
    record = {
        "selected": selected if selection.answered else None,
        "warning": selection.warning,
        "settings": identity["settings"],
        "families": {"n": families, "hash": identity["families"]},
        "checkpoints": [_plain(scored) for scored in selection.scored],
        "torn": list(selection.torn),
        "replies": REPLIES,
        "eclose": eclose.__version__,
    }
    with AtomicFile(path) as file:
        file.write(json.dumps(record, indent=2, ensure_ascii=False).encode() + b"\n")


def _plain(scored: Scored) -> dict[str, Any]:
    accuracy = scored.accuracy
    return {
        "checkpoint": scored.candidate.folder.name,
        "step": scored.candidate.step,
        "score": float(accuracy.score),
        "accuracy": {
            kind.value: {
                "value": rate.value,
                "hits": rate.hits,
                "n": rate.n,
                "incomplete": accuracy.incomplete[kind],
            }
            for kind, rate in accuracy.rates.items()
        },
        "adapter": scored.candidate.hash,
        "key": scored.key,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
