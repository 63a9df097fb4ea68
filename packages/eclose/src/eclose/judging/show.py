"""One judged response with everything behind its labels: prompts, replies, checks, and why a reply was refused."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from itertools import islice, product, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.errors import UserError
from eclose.files.jsonl import read_records
from eclose.files.run_folder import JUDGMENTS_FILE, RUN_LEDGER_FILE
from eclose.files.verify import find_file_manifest
from eclose.judging.judge_response import build_judge_requests
from eclose.judging.settings import ADDED_SETTINGS, JudgeSettings
from eclose.prompts.judge_questions import JUDGE_MATERIAL_TYPES, JudgeQuestion, parse_step_judgments
from eclose.prompts.material_json import parse_material
from eclose.prompts.requested_questions import RequestedQuestion
from eclose.prompts.structured import InconsistentReplyError
from eclose.readers.judged_run import read_run_records
from eclose.values.instance import Instance
from eclose.values.judgment import EVIDENCE, Criterion, Judgment
from eclose.values.response import Response

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eclose.calls.ledger_tools import StoredCall
    from eclose.calls.model import Request
    from eclose.values.judgment import StepJudgment
    from eclose.values.three_valued import Label


class ReplyCheck(NamedTuple):
    """A check of a reply.

    Attributes:
        text: What is checked.
        passed: Whether the reply passes; None where an earlier check failed, so that this one was not made.
        problem: What is wrong; empty where the reply passes.
    """

    text: str
    passed: bool | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """One call to the judge about a response.

    Attributes:
        question: Name of the question, such as ``judge_closure``.
        state: ``answered``, ``refused``, ``unanswered`` or ``damaged``; ``not recorded`` without a ledger.
        replica: Number of the repetition, from 0.
        attempt: Number of unusable replies before this call.
        messages: The prompt as pairs of a role and a text.
        reply: Text of the reply; None where there is none.
        checks: The checks of the reply, in order.
        cause: Why the reply was refused; None where it was used.
        key: Key of the call in the ledger; empty without a ledger.
    """

    question: str
    state: str
    replica: int
    attempt: int
    messages: tuple[tuple[str, str], ...]
    reply: str | None = None
    checks: tuple[ReplyCheck, ...] = ()
    cause: str | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class JudgmentTrail:
    """A response, its labels, and the calls that led to them.

    Attributes:
        instance: The question with its passages.
        response: The response.
        judgment: The judgment; None where the response is not judged yet.
        calls: The calls about the response, by question, repetition and attempt.
        recorded: Whether a ledger holds the replies; without one, the prompts are rebuilt and there are no replies.
    """

    instance: Instance
    response: Response
    judgment: Judgment | None
    calls: tuple[JudgeCall, ...]
    recorded: bool

    @property
    def labels(self) -> dict[str, Label]:
        """The labels L, A, C, K and Acc, and whether the evidence suffices; None where not judged."""
        names = (EVIDENCE, *(criterion.value for criterion in Criterion))
        return {name: None if self.judgment is None else self.judgment.label(name) for name in names}

    @property
    def steps(self) -> tuple[tuple[str, StepJudgment | None], ...]:
        """The steps of the trace, each with its judgment; None where it has none."""
        judged = () if self.judgment is None else self.judgment.steps
        return tuple(islice(zip_longest(self.response.trace.texts, judged), len(self.response.trace)))

    @property
    def refusals(self) -> tuple[JudgeCall, ...]:
        """The calls whose reply was not used."""
        return tuple(call for call in self.calls if call.cause is not None)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        judgment = self.judgment
        return {
            "response_id": self.response.id,
            "instance_id": self.instance.id,
            "judge": None if judgment is None else judgment.judge,
            "labels": self.labels,
            "unjudged": {} if judgment is None else judgment.missing_reasons,
            "steps": [{"text": text, "judgment": None if step is None else asdict(step)} for text, step in self.steps],
            "recorded": self.recorded,
            "calls": [
                {
                    "question": call.question,
                    "state": call.state,
                    "replica": call.replica,
                    "attempt": call.attempt,
                    "key": call.key,
                    "messages": [{"role": role, "content": content} for role, content in call.messages],
                    "reply": call.reply,
                    "checks": [check._asdict() for check in call.checks],
                    "cause": call.cause,
                }
                for call in self.calls
            ],
        }


def show_judgment(run: Path | str, response_id: str, *, ledger: Path | str | None = None) -> JudgmentTrail:
    """Return prompts, replies, checks and causes of refusals behind the judgment of one response.

    Args:
        run: Folder of a judged run; a run that was interrupted will do.
        response_id: Id of the response.
        ledger: Ledger of the judge's calls: a file or a ``postgresql://`` URL; ledger.sqlite in the run by default.

    Returns:
        The labels, and every call about the response. A run without a ledger has rebuilt prompts and no replies.

    Raises:
        UserError: The run has no such response, or the ledger cannot be read.

    Examples:
        >>> trail = eclose.show_judgment("demo", "world-2wiki-42-0/candidate")
        >>> trail.recorded
        False
        >>> trail.calls[0].question
        'judge_sufficiency'
    """
    folder = Path(run)
    records = read_run_records(folder, first_response=True)
    responses = {response.id: response for response in records.responses}
    if response_id not in responses:
        raise UserError(_describe_unknown_response(folder, response_id, list(responses)))
    response = responses[response_id]
    instance = records.instances.get(response.instance_id)
    if instance is None:
        raise UserError(f"{folder}: response {response_id} answers question {response.instance_id}, which is missing.")
    judgment = _find_judgment(folder, response_id)
    prompts = _list_prompts(folder, instance, response, judgment)
    where = folder / RUN_LEDGER_FILE if ledger is None else ledger
    # Judgments of the world or of another tool have no ledger beside them.
    recorded = ledger is not None or (folder / RUN_LEDGER_FILE).exists()
    if recorded:
        requests = [] if judgment is None else _list_requests(folder, instance, response, judgment)
        stored = _find_calls(where, "" if judgment is None else judgment.judge, requests)
        calls = sorted(_describe_calls(stored, prompts), key=_position)
    else:
        default = build_judge_requests(instance, response, JudgeSettings())
        asked = {_messages_of(request.messages) for request in default}
        calls = [
            JudgeCall(name, "not recorded", 0, 0, messages) for messages, name in prompts.items() if messages in asked
        ]
    return JudgmentTrail(instance, response, judgment, tuple(calls), recorded)


def _describe_unknown_response(run: Path, response_id: str, ids: list[str]) -> str:
    similar = get_close_matches(response_id, ids, n=3) or ids[:3]
    return f"{run}: there is no response {response_id!r}. Similar ids: {', '.join(similar)}."


def _find_judgment(run: Path, response_id: str) -> Judgment | None:
    path = run / JUDGMENTS_FILE
    if not path.exists():
        return None
    return next((entry for entry in read_records(path, Judgment) if entry.response_id == response_id), None)


_Messages = tuple[tuple[str, str], ...]


def _messages_of(messages: Iterable[Any]) -> _Messages:
    return tuple((str(message.get("role")), str(message.get("content"))) for message in messages)


def _list_prompts(run: Path, instance: Instance, response: Response, judgment: Judgment | None) -> dict[_Messages, str]:
    """Return every prompt about the response with the name of its question, for all ways to ask."""
    answer_step = None if judgment is None else judgment.answer_step
    prompts: dict[_Messages, str] = {}
    stored = _read_settings(run)
    own = {name: stored[name] for name in ("step_window", *ADDED_SETTINGS) if name in stored}
    # Calls are found by their prompt: a reply that another response asked for first names that one alone.
    for joint, reference_free in product((False, True), repeat=2):
        settings = JudgeSettings(joint=joint, reference_free=reference_free, **own)
        for request in build_judge_requests(instance, response, settings, answer_step):
            assert request.schema is not None
            prompts.setdefault(_messages_of(request.messages), str(request.schema.name))
    return prompts


def _read_settings(run: Path) -> Mapping[str, Any]:
    """Return the settings in the manifest of the judgments; empty where there is none."""
    manifest = find_file_manifest(run / JUDGMENTS_FILE)
    return {} if manifest is None else manifest.settings


def _list_requests(run: Path, instance: Instance, response: Response, judgment: Judgment) -> list[Request]:
    """Return every request that judging the response may have sent; none where the judge's settings are unknown."""
    stored = _read_settings(run)
    if (settings := JudgeSettings.from_identity(stored)) is None:
        return []
    requests = build_judge_requests(instance, response, settings, judgment.answer_step)
    return [replace(request, attempt=attempt) for request in requests for attempt in range(settings.attempts)]


def _find_calls(where: Path | str, judge: str, requests: Sequence[Request]) -> Iterator[StoredCall]:
    """Yield the stored calls of the requests; all calls of the ledger where it has none of them."""
    from eclose.calls.ledger_tools import find_ledger, find_stored_calls, read_ledger_calls  # noqa: PLC0415
    from eclose.calls.paid_once import compute_call_key  # noqa: PLC0415

    ledger = find_ledger(where)
    keys = dict.fromkeys(compute_call_key(judge, request) for request in requests)
    if stored := list(find_stored_calls(ledger, keys)):
        return iter(stored)
    # The run is not finished, or its manifest was left behind: only the prompts tell which calls are about it.
    return read_ledger_calls(ledger)


def _describe_calls(stored: Iterable[StoredCall], prompts: Mapping[_Messages, str]) -> Iterator[JudgeCall]:
    """Yield the calls about the response among those of a ledger."""
    for call in stored:
        request = call.request or {}
        messages = _messages_of(request.get("messages") or ())
        if messages in prompts:
            yield _describe_call(call, prompts[messages], messages)


def _describe_call(call: StoredCall, question: str, messages: _Messages) -> JudgeCall:
    checks = tuple(_check_reply(call, question, messages))
    problem = next((check.problem for check in checks if check.passed is False), None)
    cause = problem or (None if checks else call.problem or "there is no reply: the call broke off, or is under way")
    request = call.request or {}
    return JudgeCall(
        question=question,
        state=str(call.state),
        replica=int(request.get("replica") or 0),
        attempt=int(request.get("attempt") or 0),
        messages=messages,
        reply=call.text,
        checks=checks,
        cause=cause,
        key=call.key,
    )


COMPLETE_REPLY, REPLY_FORM = "the reply is complete", "it has the requested form"
STEP_IDS, STEP_QUOTES = "it is about the steps of the trace", "every quote stands in its passage"


def _check_reply(call: StoredCall, question: str, messages: _Messages) -> Iterator[ReplyCheck]:
    """Yield the checks of a reply, made again as judging makes them; none where there is no reply."""
    material = _read_step_material(question, messages)
    judges_steps = material is not None and bool(material.steps)
    names = (COMPLETE_REPLY, REPLY_FORM, *((STEP_IDS, STEP_QUOTES) if judges_steps else ()))
    if call.state in ("unanswered", "damaged"):
        return
    failed, problem = None, ""
    if call.kind is not None:
        # The client refuses what is cut off, empty, refused or of another form; it has stored why.
        failed = REPLY_FORM if str(call.kind) == "invalid" else COMPLETE_REPLY
        problem = f"{call.kind}: {call.problem}" if call.problem else str(call.kind)
    elif judges_steps:
        failed, problem = _check_steps(call.text or "", question, material)
    for name in names:
        if failed is None or names.index(name) < names.index(failed):
            yield ReplyCheck(name, True)
        else:
            yield ReplyCheck(name, False if name == failed else None, problem if name == failed else "")


def _read_step_material(question: str, messages: _Messages) -> Any:
    if question not in (JudgeQuestion.SOUNDNESS, JudgeQuestion.SOUNDNESS_WINDOW, JudgeQuestion.JOINT):
        return None
    return parse_material(JUDGE_MATERIAL_TYPES[JudgeQuestion(question)], messages[-1][1])


def _check_steps(text: str, question: str, material: Any) -> tuple[str | None, str]:
    """Return the check of the step verdicts that fails, with the problem; None where both pass."""
    try:
        reply = json.loads(text)
        parse_step_judgments(
            material, reply[JudgeQuestion.SOUNDNESS.part] if question == JudgeQuestion.JOINT else reply
        )
    except InconsistentReplyError as error:
        return (STEP_IDS if error.kind == "wrong step ids" else STEP_QUOTES), f"{error.kind}: {error}"
    except (ValueError, KeyError, TypeError) as error:
        return REPLY_FORM, f"invalid: {error}"
    return None, ""


def _position(call: JudgeCall) -> tuple[int, int, int]:
    """Return the key that sorts calls by question, repetition and attempt."""
    questions = [*map(str, JudgeQuestion), *map(str, RequestedQuestion)]
    return questions.index(call.question), call.replica, call.attempt
