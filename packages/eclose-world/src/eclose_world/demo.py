"""The making of the demonstration run: two systems answer questions, fail in every way, and a judge with errors judges.

The judge is called like any other, with the same guidelines and the same disclosure, but in this process.
``eclose demo`` copies files that are shipped; ``python -m eclose_world.demo`` makes these anew.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.model import FinishReason, Reply, Request, TokenUsage
from eclose.demo import (
    JUDGE_ERROR_RATE,
    JUDGE_NAME,
    QUESTION_COUNT,
    RECORD_TYPES,
    SEED,
    build_demo_steps,
    find_shipped_file,
)
from eclose.files.atomic import AtomicFile
from eclose.files.jsonl import ReadRecord
from eclose.judging.judge_response import judge_response
from eclose.prompts.judge_questions import JUDGE_MATERIAL_TYPES, JudgeQuestion
from eclose.prompts.material_json import parse_material
from eclose.values.identity import hash_sort_key
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import LocalFailure
from eclose.values.response import Response, ResponseSource, Trace
from eclose.values.verdict import FailureClass, SettledVerdict
from eclose_world.faulty.broken_responses import FailureImpact, FailurePlan, break_response
from eclose_world.make.instances import WorldItem, make_world_items
from eclose_world.oracle import judge as oracle
from eclose_world.roles.explanations import describe_established_answer, describe_pursued_target, find_supporting_quote
from eclose_world.roles.judge import register_judge_handlers
from eclose_world.server.chat_requests import ChatRequest, HandlerRegistry

if TYPE_CHECKING:
    from eclose.values.judgment import Judgment

LABELLED_COUNT = 100
PROFILES = ("2wiki", "musique", "hotpot")

_LINKS = (FailureClass.PATH_DEVIATION, FailureClass.INCOMPLETE_REASONING, FailureClass.ANSWER_DECOUPLING)
FAILURE_PLANS_BY_NAME: Mapping[str, tuple[FailurePlan, ...]] = {
    "harmless step": tuple(FailurePlan(code, None, FailureImpact.HARMLESS) for code in LocalFailure),
    "fatal step": tuple(FailurePlan(code, None, FailureImpact.FATAL) for code in LocalFailure),
    **{link.value: (FailurePlan(None, link),) for link in _LINKS},
    "step and link": tuple(FailurePlan(code, link) for code in LocalFailure for link in _LINKS),
}
"""Ways to fail, each with the plans to draw from."""

SYSTEM_FAILURE_RATES: Mapping[str, Mapping[str, float]] = {
    "baseline": {
        "harmless step": 0.05,
        "fatal step": 0.14,
        "path_deviation": 0.04,
        "incomplete_reasoning": 0.04,
        "answer_decoupling": 0.03,
        "step and link": 0.02,
    },
    # As accurate as the baseline and with more sound steps, but its steps establish the answer less often.
    "candidate": {
        "harmless step": 0.04,
        "fatal step": 0.03,
        "path_deviation": 0.07,
        "incomplete_reasoning": 0.13,
        "answer_decoupling": 0.05,
        "step and link": 0.02,
    },
}
"""The systems, with the rate of each way to fail."""
RETRIEVAL_FAILURE_RATE = 0.07
"""Share of questions in which retrieval replaces a needed passage by one of another question."""
CUT_OFF_RATE = 0.01
"""Share of responses that are cut off before their answer."""


@dataclass(frozen=True, slots=True)
class DemoCase:
    """A question, the response of a system, and the true verdict on it."""

    instance: Instance
    response: Response
    truth: SettledVerdict


def make_demo_cases(questions: int = QUESTION_COUNT, seed: int = SEED) -> Iterator[list[DemoCase]]:
    """Yield the cases of all systems, question by question."""
    # Equally many of each profile; the first ones get the remainder.
    share, remainder = divmod(questions, len(PROFILES))
    previous: Instance | None = None
    for index, profile in enumerate(PROFILES):
        for item in islice(make_world_items(profile, seed), share + (index < remainder)):
            instance = item.instance if previous is None else _retrieve(item, previous)
            yield [_make_case(item, instance, system) for system in SYSTEM_FAILURE_RATES]
            previous = item.instance


def _retrieve(item: WorldItem, other: Instance) -> Instance:
    """Return the question as the systems see it: sometimes with a passage of another question for a needed one."""
    instance, rng = item.instance, Random(f"{item.seed}/retrieval")
    if rng.random() >= RETRIEVAL_FAILURE_RATE:
        return instance
    needed = instance.support_ids or ()
    lost, wrong = rng.choice(needed), rng.choice(other.evidence)
    # The wrong passage takes the id of the lost one, so that ids do not reveal it.
    return replace(
        instance,
        evidence=tuple(replace(wrong, id=lost) if passage.id == lost else passage for passage in instance.evidence),
        support_ids=tuple(passage_id for passage_id in needed if passage_id != lost),
    )


def _make_case(item: WorldItem, instance: Instance, system: str) -> DemoCase:
    rng = Random(f"{item.seed}/{system}")
    broken = next(
        candidate
        for plan in _draw_plans(system, rng)
        if (candidate := break_response(item, plan, f"demo/{system}")) is not None
    )
    text = broken.response.completion or ""
    cut_off = rng.random() < CUT_OFF_RATE
    if cut_off:
        # Without its last line, which holds the answer.
        text = text[: text.rindex("\n", 0, -1)]
    response = Response.from_completion(
        f"{instance.id}/{system}", instance.id, text, ResponseSource(system), cut_off=cut_off
    )
    # The planted verdict holds for a complete response to all passages; other responses are judged by the oracle.
    planted = not cut_off and instance is item.instance
    verdict = broken.verdict if planted else oracle.judge_by_oracle(instance, response).verdict
    return DemoCase(
        instance, response, SettledVerdict(response.id, instance.id, verdict, instance.benchmark, response.source)
    )


def _draw_plans(system: str, rng: Random) -> Iterator[FailurePlan]:
    """Yield the plans for a response in order of preference; the last, not to fail, is always possible."""
    roll = rng.random()
    for kind, rate in SYSTEM_FAILURE_RATES[system].items():
        # One roll for all ways to fail, since they exclude each other: the rates add up to the share of responses that
        # should fail.
        if roll < rate:
            yield from rng.sample(FAILURE_PLANS_BY_NAME[kind], len(FAILURE_PLANS_BY_NAME[kind]))
            break
        roll -= rate
    yield FailurePlan()


class WorldJudge:
    """The world's judge as a ``ChatModel`` in this process."""

    name = JUDGE_NAME

    def __init__(self, error_rate: float = JUDGE_ERROR_RATE, seed: int = SEED) -> None:
        self._registry = HandlerRegistry()
        register_judge_handlers(self._registry, noise=error_rate, seed=seed)

    async def complete(self, request: Request) -> Reply:
        """Return the judgment as JSON in the requested schema; raise where the judge cannot read the texts."""
        schema = request.schema
        assert schema is not None
        chat_request = ChatRequest.of({
            "model": self.name,
            "messages": [dict(message) for message in request.messages],
            "response_format": {"type": "json_schema", "json_schema": {"name": schema.name, "schema": schema.schema}},
        })  # fmt: skip
        labels = self._registry.handler(schema.name)(chat_request).content
        if not isinstance(labels, Mapping) or set(labels) != set(schema.schema["required"]):
            raise CallFailure(CallFailureKind.INVALID, "the judge cannot read this.")
        text = json.dumps(
            {**labels, **_explain_labels(JudgeQuestion(schema.name), request, labels)}, ensure_ascii=False
        )
        return Reply(text, FinishReason.STOP, TokenUsage(chat_request.prompt_tokens, len(text.split())))


def _explain_labels(question: JudgeQuestion, request: Request, labels: Mapping[str, Any]) -> dict[str, Any]:
    if question not in (JudgeQuestion.SOUNDNESS, JudgeQuestion.ALIGNMENT, JudgeQuestion.CLOSURE):
        return {}
    material = parse_material(JUDGE_MATERIAL_TYPES[question], request.messages[-1]["content"])
    trace = Trace.of(*(step.text for step in material.steps))
    if question is JudgeQuestion.ALIGNMENT:
        return {"pursued": describe_pursued_target(material.question, trace) or ""}
    if question is JudgeQuestion.CLOSURE:
        return {"established": describe_established_answer(material.question, trace, material.answer)}
    passages = [Passage(str(passage.index), passage.title, passage.text) for passage in material.evidence]
    steps = enumerate(labels["steps"].items())
    return {"steps": {number: _quote_support(step, passages, trace, index) for index, (number, step) in steps}}


def _quote_support(
    step: Mapping[str, Any], passages: Sequence[Passage], trace: Trace, number: int
) -> Mapping[str, Any]:
    """Return the step with a quote of its passage, no longer than needed."""
    if step["support"] is None:
        return step
    index = step["support"]["passage"]
    return {**step, "support": {"passage": index, "quote": find_supporting_quote(passages[index], trace, number)}}


def write_demo_files(folder: Path, questions: int = QUESTION_COUNT, seed: int = SEED) -> None:
    """Write the files of a demonstration, which is that of ``eclose demo`` with the default settings."""
    rows = list(make_demo_cases(questions, seed))
    cases = [case for row in rows for case in row]
    # A random sample of responses, as the correction of rates supposes.
    labelled = sorted(cases, key=_rank_case)[:LABELLED_COUNT]
    instances, responses, planted, people, judgments = build_demo_steps(folder, questions, seed)
    instances.write(ReadRecord(row[0].instance.id, value=row[0].instance) for row in rows)
    responses.write(ReadRecord(case.response.id, value=case.response) for case in cases)
    planted.write(ReadRecord(case.response.id, value=case.truth) for case in cases)
    people.write(ReadRecord(case.response.id, value=case.truth) for case in labelled)
    judgments.write(_judge_cases(cases, WorldJudge(seed=seed)))


def _rank_case(case: DemoCase) -> str:
    return hash_sort_key("people", case.response.id)


def _judge_cases(cases: Iterable[DemoCase], judge: WorldJudge) -> Iterator[ReadRecord[Judgment]]:
    for case in cases:
        # The judge answers in this process at once, so responses are judged one after the other.
        judgment = asyncio.run(judge_response(case.instance, case.response, judge))
        yield ReadRecord(case.response.id, value=judgment)


def main() -> None:
    """Renew the files that ``eclose demo`` copies."""
    with TemporaryDirectory() as name:
        write_demo_files(Path(name))
        for file in RECORD_TYPES:
            with as_file(find_shipped_file(file)) as shipped, AtomicFile(shipped) as packed:
                packed.write(Path(name, file).read_bytes())


if __name__ == "__main__":
    main()
