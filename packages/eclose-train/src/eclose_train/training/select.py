"""Selection of the checkpoint that answers best under the three inputs of held-out families.

The rule of appendix D.4: half the accuracy on original inputs plus a quarter each on evidence-edited and
question-edited ones, with greedy decoding, the deterministic matcher, and ties going to the earlier checkpoint. Scores
of the switch test are not used. Where no checkpoint submitted any answer, none is selected. An interrupted selection
continues with the first checkpoint whose replies are missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import eclose
from eclose.calls.local.chat_template import PromptTooLongError
from eclose.calls.local.weights import find_package_version
from eclose.calls.model import Decoding, FinishReason, LocalBatchModel, Request
from eclose.errors import RecordError, UserError
from eclose.files.atomic import AtomicFile, write_json
from eclose.files.json_reader import parse_json_object, read_json_objects, require_regular_file
from eclose.files.jsonl import parse_dataclass
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt
from eclose.stats.rates import Rate
from eclose.values.answers import match_any_answer
from eclose.values.family import Family, ViewKind, select_fixed_edit
from eclose.values.identity import canonical_json, content_hash
from eclose.values.response import parse_completion
from eclose_train.training.checkpoints import Checkpoint, copy_adapter, find_checkpoints, remove_adapter_copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.calls.model import Reply


@dataclass(frozen=True)
class CheckpointQuestion:
    """An input of a family, with the answers that count as correct."""

    family_id: str
    view: ViewKind
    request: Request
    accepted: tuple[str, ...]
    """Correct answer and its aliases."""


def build_checkpoint_questions(
    family: Family, prompt: ResponsePrompt, decoding: Decoding
) -> Iterator[CheckpointQuestion]:
    """Yield the three inputs of a family."""
    # Aliases are those of the source's answer; answers to edited inputs have none.
    edits = (select_fixed_edit(family), family.question_edit)
    for view, aliases in ((family.gold, family.source.aliases), *((edit.view, ()) for edit in edits)):
        messages = tuple(prompt.messages(view.question, view.evidence))
        yield CheckpointQuestion(family.id, view.kind, Request(messages, decoding), (view.answer, *aliases))


@dataclass(frozen=True, slots=True)
class CheckpointReply:
    """A reply of a checkpoint."""

    family_id: str
    view: ViewKind
    text: str
    finish: FinishReason
    prompt_tokens: int
    completion_tokens: int

    @classmethod
    def of(cls, question: CheckpointQuestion, reply: Reply) -> CheckpointReply:
        """Return a model's reply to a question as a record."""
        return cls(
            family_id=question.family_id,
            view=question.view,
            text=reply.text,
            finish=reply.finish,
            prompt_tokens=reply.usage.prompt_tokens,
            completion_tokens=reply.usage.completion_tokens,
        )

    @property
    def answer(self) -> str | None:
        """The submitted answer; None for an incomplete generation."""
        return parse_completion(self.text, cut_off=self.finish is not FinishReason.STOP).answer

    def is_correct(self, question: CheckpointQuestion) -> bool:
        """Return whether the answer is accepted; a reply without an answer is wrong."""
        return self.answer is not None and match_any_answer(self.answer, question.accepted)


class CheckpointReplyFile:
    """File with the replies of all checkpoints, by key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for raw in read_json_objects(path) if path.exists() else ():
            if raw.value is None or not isinstance(raw.value.get("key"), str):
                problem = "is not a reply of a selection. Move the file away to start again."
                raise raw.error or RecordError(problem, path=path, record=raw.where)
            self._lines[raw.value["key"]].append(raw.value)

    def find(self, key: str, questions: Sequence[CheckpointQuestion]) -> list[CheckpointReply] | None:
        """Return the replies under a key; None unless there is one for every question."""
        replies = [parse_dataclass(CheckpointReply, line, extra="ignore") for line in self._lines.get(key, ())]
        # The order must agree as well: replies and questions are paired by position.
        inputs = [(question.family_id, question.view) for question in questions]
        return replies if [(reply.family_id, reply.view) for reply in replies] == inputs else None

    def write(
        self,
        key: str,
        checkpoint: str,
        questions: Sequence[CheckpointQuestion],
        replies: Sequence[CheckpointReply],
    ) -> None:
        """Write the replies under a key, each with its parsed answer and whether it is correct."""
        lines = [
            {
                "key": key,
                "checkpoint": checkpoint,
                **asdict(reply),
                "answer": reply.answer,
                "accepted": list(question.accepted),
                "correct": reply.is_correct(question),
            }
            for question, reply in zip(questions, replies, strict=True)
        ]
        if self._lines.get(key) == lines:
            return  # unchanged: the file need not be rewritten
        # Replies under other keys stay in the file: going back to earlier settings finds them again.
        self._lines[key] = lines
        # The file is rewritten as a unit: a crash leaves the earlier version.
        with AtomicFile(self.path) as file:
            for group in self._lines.values():
                for line in group:
                    file.write(canonical_json(line).encode("utf-8", "backslashreplace") + b"\n")


SELECTION_FILE = "selection.json"
SELECTION_REPLY_FILE = "selection.replies.jsonl"
SELECTED_FOLDER = "selected"
# A_sel of appendix D.4.
_WEIGHTS = {
    ViewKind.GOLD: Fraction(1, 2),
    ViewKind.EVIDENCE_CF: Fraction(1, 4),
    ViewKind.QUESTION_CF: Fraction(1, 4),
}


class AdaptableModel(Protocol):
    """A model that can carry one adapter after another."""

    def with_adapter(self, folder: Path) -> LocalBatchModel:
        """Return the model with the adapter of a folder on it."""
        ...


@dataclass(frozen=True)
class TrainingOrigin:
    """Model and prompt of a training run, as its recipe records them."""

    model: str
    revision: str | None = None
    demonstrations: int = 2
    order: PromptOrder = PromptOrder.EVIDENCE_FIRST
    dtype: str = "auto"


@dataclass(frozen=True)
class CheckpointReplySettings:
    """Everything that determines a checkpoint's replies, apart from the checkpoint and the families."""

    origin: TrainingOrigin
    engine: str
    max_new_tokens: int = 512

    @property
    def prompt(self) -> ResponsePrompt:
        """The prompt the run was trained with."""
        return ResponsePrompt(self.origin.demonstrations, self.origin.order)

    @property
    def record(self) -> dict[str, Any]:
        """The settings as JSON values, with the versions of the libraries that generate."""
        # Versions are included because checkpoints are compared with each other: all must run under the same.
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
            "versions": {
                name: find_package_version(name) for name in sorted({self.engine, "peft", "torch", "transformers"})
            },
        }


@dataclass(frozen=True, slots=True)
class CheckpointAccuracy:
    """Accuracy of a checkpoint by kind of input, and the number of replies without an answer."""

    rates: Mapping[ViewKind, Rate]
    incomplete: Mapping[ViewKind, int]
    """Replies without a submitted answer; counted as wrong in ``rates``."""
    cut_off: int = 0
    """Incomplete replies that reached the limit of new tokens."""

    @classmethod
    def of(cls, questions: Sequence[CheckpointQuestion], replies: Sequence[CheckpointReply]) -> CheckpointAccuracy:
        """Count correct and missing answers."""
        pairs = list(zip(questions, replies, strict=True))
        missing = [(question, reply) for question, reply in pairs if reply.answer is None]
        return cls(
            {
                kind: Rate.of(reply.is_correct(question) for question, reply in pairs if question.view is kind)
                for kind in ViewKind
            },
            {kind: sum(question.view is kind for question, _ in missing) for kind in ViewKind},
            sum(reply.finish is FinishReason.LENGTH for _, reply in missing),
        )

    @property
    def replies(self) -> int:
        """Number of replies."""
        return sum(rate.n for rate in self.rates.values())

    @property
    def unanswered(self) -> int:
        """Number of replies without a submitted answer."""
        return sum(self.incomplete.values())

    @property
    def score(self) -> Fraction:
        """A_sel as an exact fraction, so that ties are exact too."""
        return sum(
            (weight * Fraction(self.rates[kind].hits, self.rates[kind].n) for kind, weight in _WEIGHTS.items()),
            Fraction(),
        )


@dataclass(frozen=True)
class ScoredCheckpoint:
    """A checkpoint with its accuracy; ``key`` identifies its replies in the file of replies."""

    checkpoint: Checkpoint
    accuracy: CheckpointAccuracy
    key: str


@dataclass(frozen=True)
class Selection:
    """Result of a selection."""

    checkpoints: tuple[ScoredCheckpoint, ...]
    """Every complete checkpoint by step."""
    interrupted: tuple[str, ...]
    """Names of checkpoint folders that were skipped because a crash interrupted them."""
    adapter: Path
    """Folder of the selected adapter."""

    @property
    def has_answers(self) -> bool:
        """Whether any checkpoint submitted any answer; without one no checkpoint is selected."""
        return any(scored.accuracy.unanswered < scored.accuracy.replies for scored in self.checkpoints)

    @property
    def best(self) -> ScoredCheckpoint:
        """The checkpoint with the highest score, the earliest of equals."""
        # Exact fractions first, then the smaller step (appendix D.4: ties favor the earlier checkpoint).
        return max(self.checkpoints, key=lambda scored: (scored.accuracy.score, -scored.checkpoint.step))

    @property
    def warning(self) -> str | None:
        """Reason not to trust the selection, if there is one."""
        if not self.has_answers:
            accuracies = [scored.accuracy for scored in self.checkpoints]
            replies = sum(accuracy.replies for accuracy in accuracies)
            cut_off = sum(accuracy.cut_off for accuracy in accuracies)
            return f"no checkpoint is selected: none of {replies:,} replies submitted an answer{_advise(cut_off)}"
        accuracy = self.best.accuracy
        if not accuracy.score:
            return "no reply of any checkpoint is correct; the earliest checkpoint is selected by the rule for ties"
        # More than half without an answer: the score then measures the length limit rather than the model.
        if 2 * accuracy.unanswered > accuracy.replies:
            return (
                f"{accuracy.unanswered:,} of {accuracy.replies:,} replies of {self.best.checkpoint.folder.name} "
                f"submitted no answer{_advise(accuracy.cut_off)}"
            )
        return None


def _advise(cut_off: int) -> str:
    return (
        f"; {cut_off:,} were cut off at the limit of new tokens, so raise max_new_tokens in a recipe" if cut_off else ""
    )


def read_training_origin(run: Path, model: str | None = None) -> TrainingOrigin:
    """Read model and prompt from a run's recipe; ``model`` replaces the location of the weights."""
    path = run / "recipe.json"
    require_regular_file(path)
    try:
        origin = parse_dataclass(TrainingOrigin, parse_json_object(path.read_bytes()), extra="ignore")
    except RecordError as error:
        raise UserError(f"{path}: {error}. Is {run} the folder of a training run?") from error
    if model is None or model == origin.model:
        return origin
    # The revision is a commit of the recipe's repository, so it does not apply to another one.
    return TrainingOrigin(model, None, origin.demonstrations, origin.order, origin.dtype)


def select_checkpoint(
    run: Path,
    families: Sequence[Family],
    settings: CheckpointReplySettings,
    load: Callable[[], AdaptableModel],
    *,
    out: Path | None = None,
    force: bool = False,
    on_checkpoint: Callable[[str], None] = lambda _: None,
) -> Selection:
    """Compare the checkpoints of a run on held-out families, and copy the best adapter.

    The model is loaded once, and only if replies are missing. ``force`` replaces a selection by other settings.
    """
    checkpoints, torn = find_checkpoints(run)
    folder = run if out is None else out
    prompt, decoding = settings.prompt, Decoding(max_tokens=settings.max_new_tokens)
    questions = [question for family in families for question in build_checkpoint_questions(family, prompt, decoding)]
    if not questions:
        raise UserError("there is no family to compare checkpoints on. Pass held-out families.")
    # Accepted answers are left out of the hash, because replies are matched again every time.
    inputs = [[question.family_id, question.view.value, list(question.request.messages)] for question in questions]
    identity = {"settings": settings.record, "families": content_hash(inputs)}
    # Refused before a model is loaded and before any reply is generated.
    if not force:
        _refuse_other(folder / SELECTION_FILE, identity)
    reply_file = CheckpointReplyFile(folder / SELECTION_REPLY_FILE)
    keys = {checkpoint: content_hash([checkpoint.hash, identity]) for checkpoint in checkpoints}
    stored = {checkpoint: reply_file.find(key, questions) for checkpoint, key in keys.items()}
    missing = [checkpoint.folder for checkpoint, replies in stored.items() if replies is None]
    generated = _generate(load, missing, questions)
    scored = []
    for checkpoint, key in keys.items():
        replies = stored[checkpoint]
        if replies is None:
            on_checkpoint(checkpoint.folder.name)
            replies = next(generated)
        # Also for replies read back: answers are parsed and matched again, and the file follows the present matcher.
        reply_file.write(key, checkpoint.folder.name, questions, replies)
        scored.append(ScoredCheckpoint(checkpoint, CheckpointAccuracy.of(questions, replies), key))
    selection = Selection(tuple(scored), tuple(torn), folder / SELECTED_FOLDER)
    if selection.has_answers:
        copy_adapter(selection.best.checkpoint.folder, selection.adapter)
    else:
        remove_adapter_copy(selection.adapter)
    # Written last: this file marks the selection as finished.
    _write(folder / SELECTION_FILE, selection, identity, len(families))
    return selection


def _generate(
    load: Callable[[], AdaptableModel], folders: Sequence[Path], questions: Sequence[CheckpointQuestion]
) -> Iterator[list[CheckpointReply]]:
    """Yield the replies of each checkpoint, in order; nothing is loaded before the first is asked for."""
    model, requests = load(), [question.request for question in questions]
    try:
        for folder in folders:
            replies = model.with_adapter(folder).complete_all(requests)
            yield [CheckpointReply.of(question, reply) for question, reply in zip(questions, replies, strict=True)]
    except PromptTooLongError as error:
        # The model names the request by its number; a user needs the family.
        question = questions[error.index]
        reason = str(error).partition(": ")[2]
        raise UserError(f"family {question.family_id!r}, {question.view.value}: {reason}") from error


def _refuse_other(path: Path, identity: Mapping[str, Any]) -> None:
    """Raise where a selection was finished with other settings or families; ``--force`` replaces it."""
    if not path.exists():
        return
    try:
        before = parse_json_object(path.read_bytes())
    except RecordError as error:
        raise UserError(f"{path}: {error} Move it away, or pass --force to replace it.") from error
    settings = before.get("settings", {})
    # Settings are compared one by one, so that the message names those that differ.
    names = sorted(name for name, value in identity["settings"].items() if settings.get(name) != value)
    names += ["families"] if before.get("families", {}).get("hash") != identity["families"] else []
    if names:
        raise UserError(
            f"{path}: a checkpoint was selected with other {', '.join(names)}. Pass --force to select again; "
            "earlier replies are not lost."
        )


def _write(path: Path, selection: Selection, identity: Mapping[str, Any], families: int) -> None:
    best = selection.best
    selected = {
        "checkpoint": best.checkpoint.folder.name,
        "step": best.checkpoint.step,
        "score": float(best.accuracy.score),
        "adapter": best.checkpoint.hash,
        "folder": selection.adapter.name,
    }
    record = {
        "selected": selected if selection.has_answers else None,
        "warning": selection.warning,
        "settings": identity["settings"],
        "families": {"n": families, "hash": identity["families"]},
        "checkpoints": [_checkpoint_record(scored) for scored in selection.checkpoints],
        "torn": list(selection.interrupted),
        "replies": SELECTION_REPLY_FILE,
        "eclose": eclose.__version__,
    }
    write_json(path, record)


def _checkpoint_record(scored: ScoredCheckpoint) -> dict[str, Any]:
    accuracy = scored.accuracy
    return {
        "checkpoint": scored.checkpoint.folder.name,
        "step": scored.checkpoint.step,
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
        "adapter": scored.checkpoint.hash,
        "key": scored.key,
    }
