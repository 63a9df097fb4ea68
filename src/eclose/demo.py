"""A run to look around in: two systems answer made-up questions and fail in every way, and a judge that errs says so.

All of it comes from the world, so it needs no network, no key and no model; what is true of every response is known.
The judge is asked as any other is, with the same guidelines and the same disclosure, only in this process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from eclose.core.identity import hash_rank
from eclose.core.instance import Instance, Passage
from eclose.core.judgment import LocalFailure
from eclose.core.response import Response, Source, Trace
from eclose.core.verdict import FailureClass, SettledVerdict
from eclose.judging.judge_response import judge_response
from eclose.judging.settings import JudgeSettings
from eclose.models.interface import FinishReason, Reply, Request, Usage
from eclose.models.openai.failures import CallFailure, FailureKind
from eclose.protocol.judging import MATERIAL, Question
from eclose.protocol.material_json import read_material
from eclose.store.records.jsonl import ReadRecord, read_records
from eclose.store.runs.folder import INSTANCES, JUDGMENTS, RESPONSES
from eclose.store.runs.step import RunStep
from eclose.world.faulty.broken_responses import FailureImpact, FailurePlan, break_response
from eclose.world.make.instances import WorldItem, make_items
from eclose.world.oracle import judge as oracle
from eclose.world.roles.explanations import explain_answer, explain_target, find_quote
from eclose.world.roles.judge import register_judge
from eclose.world.server.chat_requests import ChatRequest, HandlerRegistry

if TYPE_CHECKING:
    from eclose.core.judgment import Judgment

T = TypeVar("T")
Track: TypeAlias = Callable[[Iterable[T], str, int], Iterable[T]]
"""Passes things on, and may tell how far it is: the things, what is done with them, and how many there are."""

PEOPLE = "people.jsonl"
"""What people said of some of the responses."""
PLANTED = "planted.jsonl"
"""What is true of all of them; nobody but a made-up world can tell."""
QUESTIONS = 300
LABELLED = 100
ERRS = 0.03
"""How often the judge says the opposite of what is so, for each of the things it is asked."""
SEED = 42
PROFILES = ("2wiki", "musique", "hotpot")

_LINKS = (FailureClass.PATH_DEVIATION, FailureClass.INCOMPLETE_REASONING, FailureClass.ANSWER_DECOUPLING)
FAILURES: Mapping[str, tuple[FailurePlan, ...]] = {
    "harmless step": tuple(FailurePlan(code, None, FailureImpact.HARMLESS) for code in LocalFailure),
    "fatal step": tuple(FailurePlan(code, None, FailureImpact.FATAL) for code in LocalFailure),
    **{link.value: (FailurePlan(None, link),) for link in _LINKS},
    "step and link": tuple(FailurePlan(code, link) for code in LocalFailure for link in _LINKS),
}
"""The ways to fail, each with the plans to choose from."""

SYSTEMS: Mapping[str, Mapping[str, float]] = {
    "baseline": {
        "harmless step": 0.05,
        "fatal step": 0.14,
        "path_deviation": 0.04,
        "incomplete_reasoning": 0.04,
        "answer_decoupling": 0.03,
        "step and link": 0.02,
    },
    # As often right as the other, and its steps hold more often; but they add up to the answer less often.
    "candidate": {
        "harmless step": 0.04,
        "fatal step": 0.03,
        "path_deviation": 0.07,
        "incomplete_reasoning": 0.13,
        "answer_decoupling": 0.05,
        "step and link": 0.02,
    },
}
"""Who answers, and how often in which way wrongly."""
LOST = 0.07
"""How often retrieval brings another passage in the place of one that the answer needs."""
CUT_OFF = 0.01
"""How often a response breaks off before its answer."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A question with a system's response to it, and what is true of that."""

    instance: Instance
    response: Response
    truth: SettledVerdict


def answered(questions: int = QUESTIONS, seed: int = SEED) -> Iterator[list[Answered]]:
    """What every system says to a question, question by question."""
    share, more = divmod(questions, len(PROFILES))
    before: Instance | None = None
    for place, profile in enumerate(PROFILES):
        for item in islice(make_items(profile, seed), share + (place < more)):
            instance = item.instance if before is None else _retrieved(item, before)
            yield [_answer(item, instance, system) for system in SYSTEMS]
            before = item.instance


def _retrieved(item: WorldItem, other: Instance) -> Instance:
    """The question as the systems are given it: now and then another question's passage stands for one it needs."""
    instance, rng = item.instance, Random(f"{item.seed}/retrieval")
    if rng.random() >= LOST:
        return instance
    needed = instance.support_ids or ()
    lost, found = rng.choice(needed), rng.choice(other.evidence)
    return replace(
        instance,
        evidence=tuple(replace(found, id=one.id) if one.id == lost else one for one in instance.evidence),
        support_ids=tuple(one for one in needed if one != lost),
    )


def _answer(item: WorldItem, instance: Instance, system: str) -> Answered:
    rng = Random(f"{item.seed}/{system}")
    made = next(
        found for plan in _plans(system, rng) if (found := break_response(item, plan, f"demo/{system}")) is not None
    )
    text = made.response.completion or ""
    cut_off = rng.random() < CUT_OFF
    if cut_off:
        text = text[: text.rindex("\n", 0, -1)]
    response = Response.from_completion(f"{instance.id}/{system}", instance.id, text, Source(system), cut_off=cut_off)
    # What was planted is true of the whole response to all the passages; the rest is read out of the words.
    planted = not cut_off and instance is item.instance
    verdict = made.verdict if planted else oracle.judge(instance, response).verdict
    return Answered(
        instance, response, SettledVerdict(response.id, instance.id, verdict, instance.benchmark, response.source)
    )


def _plans(system: str, rng: Random) -> Iterator[FailurePlan]:
    """How a response is to fail, at best; not every question admits every failure, and none is always possible."""
    roll = rng.random()
    for kind, rate in SYSTEMS[system].items():
        if roll < rate:
            yield from rng.sample(FAILURES[kind], len(FAILURES[kind]))
            break
        roll -= rate
    yield FailurePlan()


class WorldJudge:
    """The world's judge as a ``ChatModel`` that asks nobody."""

    name = "world/judge"

    def __init__(self, errs: float = ERRS, seed: int = SEED) -> None:
        self.identity = {"model": self.name, "errs": errs, "seed": seed}
        self._registry = HandlerRegistry()
        register_judge(self._registry, noise=errs, seed=seed)

    async def complete(self, request: Request) -> Reply:
        """What the judge says, in the shape that was asked for."""
        schema = request.schema
        assert schema is not None
        asked = ChatRequest.of({
            "model": self.name,
            "messages": [dict(message) for message in request.messages],
            "response_format": {"type": "json_schema", "json_schema": {"name": schema.name, "schema": schema.schema}},
        })  # fmt: skip
        said = self._registry.handler(schema.name)(asked).content
        if not isinstance(said, Mapping) or set(said) != set(schema.schema["required"]):
            raise CallFailure(FailureKind.INVALID, "the judge cannot read this.")
        text = json.dumps({**said, **_in_words(Question(schema.name), request, said)}, ensure_ascii=False)
        return Reply(text, FinishReason.STOP, Usage(asked.prompt_tokens, len(text.split())))


def _in_words(question: Question, request: Request, said: Mapping[str, Any]) -> dict[str, Any]:
    """What a judge says beside its labels, for those who read it."""
    if question not in (Question.SOUNDNESS, Question.ALIGNMENT, Question.CLOSURE):
        return {}
    shown = read_material(MATERIAL[question], request.messages[-1]["content"])
    trace = Trace.of(*(step.text for step in shown.steps))
    if question is Question.ALIGNMENT:
        return {"pursued": explain_target(shown.question, trace) or ""}
    if question is Question.CLOSURE:
        return {"established": explain_answer(shown.question, trace, shown.answer)}
    passages = [Passage(str(one.index), one.title, one.text) for one in shown.evidence]
    told = enumerate(said["steps"].items())
    return {"steps": {number: _quoted(step, passages, trace, place) for place, (number, step) in told}}


def _quoted(step: Mapping[str, Any], passages: Sequence[Passage], trace: Trace, number: int) -> Mapping[str, Any]:
    """The step with no more of a passage than it takes."""
    if step["support"] is None:
        return step
    place = step["support"]["passage"]
    return {**step, "support": {"passage": place, "quote": find_quote(passages[place], trace, number)}}


def _quietly(things: Iterable[T], _doing: str, _total: int) -> Iterable[T]:
    return things


@dataclass(frozen=True, slots=True)
class Run:
    """The stages of a run in its folder: what was said, and what a judge said of it."""

    folder: Path
    questions: int = QUESTIONS
    seed: int = SEED

    @property
    def made(self) -> tuple[RunStep, ...]:
        """Questions, responses, what is true of them, and what people said of some."""
        told = {"questions": self.questions, "seed": self.seed}
        names = (INSTANCES, RESPONSES, PLANTED, PEOPLE)
        return tuple(RunStep(f"demo {Path(name).stem}", told, (), self.folder / name) for name in names)

    def judged(self, model: WorldJudge, settings: JudgeSettings) -> RunStep:
        """What the judge said."""
        inputs = (self.folder / INSTANCES, self.folder / RESPONSES)
        return RunStep("judge", {**model.identity, **settings.identity}, inputs, self.folder / JUDGMENTS)

    def write(self, track: Track[Any] = _quietly, *, force: bool = False) -> bool:
        """Write what is not there yet; whether there was anything to do."""
        known = [stage.claim(force=force) for stage in self.made]
        to_make = None in known
        if to_make:
            self._make(track)
        model, settings = WorldJudge(seed=self.seed), JudgeSettings()
        judged = self.judged(model, settings)
        to_judge = judged.claim(force=force) is None
        if to_judge:
            judged.write(self._judgments(model, settings, track))
        return to_make or to_judge

    def _make(self, track: Track[Any]) -> None:
        rows = list(track(answered(self.questions, self.seed), "making questions", self.questions))
        every = [one for row in rows for one in row]
        labelled = sorted(every, key=_drawn)[:LABELLED]
        questions, responses, planted, people = self.made
        questions.write(ReadRecord(row[0].instance.id, value=row[0].instance) for row in rows)
        responses.write(ReadRecord(one.response.id, value=one.response) for one in every)
        planted.write(ReadRecord(one.response.id, value=one.truth) for one in every)
        people.write(ReadRecord(one.response.id, value=one.truth) for one in labelled)

    def _judgments(
        self, model: WorldJudge, settings: JudgeSettings, track: Track[Any]
    ) -> Iterator[ReadRecord[Judgment]]:
        questions = {one.id: one for one in read_records(self.folder / INSTANCES, Instance)}
        responses = list(read_records(self.folder / RESPONSES, Response))
        for response in track(responses, "judging responses", len(responses)):
            said = asyncio.run(judge_response(questions[response.instance_id], response, model, settings))
            yield ReadRecord(response.id, value=said)


def _drawn(one: Answered) -> str:
    """Sorts responses at random, in the same way each time."""
    return hash_rank("people", one.response.id)
