"""Judge one response with a model: one call per question with restricted material, or one call for all questions.

A criterion without a usable reply gets no label and a reason; the other criteria keep their labels. A response that is
judged several times gets the majority of its labels.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.calls.structured import StructuredAnswer, ask_structured, build_structured_request, format_reason
from eclose.judging.requested import ask_requested, list_requested_prompts
from eclose.judging.settings import JudgeSettings
from eclose.prompts import disclosure
from eclose.prompts.judge_questions import (
    CRITERION_QUESTIONS,
    JOINT_JUDGE_QUESTIONS,
    JudgeQuestion,
    build_judge_prompt,
    check_answer_step,
    parse_step_judgments,
)
from eclose.prompts.requested_questions import add_hints
from eclose.prompts.structured import InconsistentReplyError
from eclose.reading.recorded import is_abstention
from eclose.values.instance import Instance
from eclose.values.judgment import (
    EVIDENCE,
    NO_ANSWER_REASON,
    NO_REFERENCE_REASON,
    NO_TRACE_REASON,
    REFERENCE_FREE_REASON,
    REPETITIONS_DISAGREE_REASON,
    UNSPLIT_ANSWER_REASON,
    Criterion,
    Judgment,
    StepJudgment,
)
from eclose.values.response import Response, Trace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from eclose.calls.model import ChatModel, Request
    from eclose.prompts.material_json import DisclosedStep
    from eclose.prompts.structured import PromptWithSchema
    from eclose.values.three_valued import Label


def take_majority_labels(judgments: Sequence[Judgment]) -> Judgment:
    """Return the majority label of every criterion, with the explanations of the first judgment that gives it.

    Repetitions without a label do not vote. A tie leaves the label open.
    """
    if len(judgments) == 1:
        return judgments[0]
    # One representative judgment per criterion: texts must come from a judgment that gave the winning label.
    winners = {name: _find_winner(judgments, name) for name in (*Criterion, EVIDENCE)}
    sound, aligned = winners[Criterion.LOCAL_SOUNDNESS], winners[Criterion.ALIGNMENT]
    closed, evidence = winners[Criterion.CLOSURE], winners[EVIDENCE]
    decided = {criterion: winner for criterion in Criterion if (winner := winners[criterion]) is not None}
    return replace(
        judgments[0],
        steps=() if sound is None else sound.steps,
        aligned=_label(aligned, Criterion.ALIGNMENT),
        closed=_label(closed, Criterion.CLOSURE),
        complete=_label(winners[Criterion.COMPLETENESS], Criterion.COMPLETENESS),
        correct=_label(winners[Criterion.CORRECTNESS], Criterion.CORRECTNESS),
        unjudged={
            criterion: _explain_missing(judgments, criterion) for criterion in Criterion if criterion not in decided
        },
        reasons={name: winner.reasons[name] for name, winner in decided.items() if name in winner.reasons},
        pursued=None if aligned is None else aligned.pursued,
        established=None if closed is None else closed.established,
        answer_step=None if closed is None else closed.answer_step,
        evidence_sufficient=_label(evidence, EVIDENCE),
        missing_evidence=None if evidence is None else evidence.missing_evidence,
        evidence_unjudged=_explain_missing(judgments, EVIDENCE) if evidence is None else None,
        votes={name: tuple(judgment.label(name) for judgment in judgments) for name in winners},
    )


def _find_winner(judgments: Sequence[Judgment], name: str) -> Judgment | None:
    for label in (True, False):
        supporters = [judgment for judgment in judgments if judgment.label(name) is label]
        opponents = [judgment for judgment in judgments if judgment.label(name) is (not label)]
        if len(supporters) > len(opponents):
            return supporters[0]
    return None


def _label(judgment: Judgment | None, name: str) -> Label:
    return None if judgment is None else judgment.label(name)


def _explain_missing(judgments: Sequence[Judgment], name: str) -> str:
    """Return the reason of the judge where no repetition gave a label, else that the repetitions disagree."""
    reasons = [judgment.missing_reasons[name] for judgment in judgments if name in judgment.missing_reasons]
    return reasons[0] if len(reasons) == len(judgments) else REPETITIONS_DISAGREE_REASON


async def judge_response(
    instance: Instance, response: Response, model: ChatModel, settings: JudgeSettings | None = None, *, replica: int = 0
) -> Judgment:
    """Return the judgment of a response, with a reason for every missing label."""
    settings = settings or JudgeSettings()
    subject = _Subject(instance, response, settings)
    # A replica is part of the key of a call: every repetition is drawn anew and not read from the cache.
    requested, *repetitions = await _gather(
        ask_requested(instance, response, model, settings, replica),
        *(subject.ask(model, replica + number) for number in range(settings.repeat)),
    )
    judgment = take_majority_labels([_build_judgment(located, model.name, answers) for located, answers in repetitions])
    judgment = replace(judgment, own=requested.own, passages=requested.passages)
    return judgment if response.in_protocol_layout else judgment.withhold_hollow_trace()


def build_judge_requests(
    instance: Instance, response: Response, settings: JudgeSettings, answer_step: int | None = None
) -> Iterator[Request]:
    """Yield every request about a response, supposing that the first attempt of each succeeds.

    Where the judge locates the answer, it is supposed to be ``answer_step``, or else the last step.
    """
    subject = _Subject(instance, response, settings)
    joint, separate = subject.joint_questions, subject.separate_questions
    prompts = [build_judge_prompt(subject.material, joint)] if joint else []
    prompts += [build_judge_prompt(material) for question in separate for material in subject.disclose(question)]
    if subject.locating:
        split = subject.split_at(answer_step or len(response.trace.steps))
        prompts += [build_judge_prompt(material) for name in split.opened for material in split.disclose(name)]
    asked = [*((prompt, settings.repeat) for prompt in prompts), *list_requested_prompts(instance, response, settings)]
    for replica in range(settings.repeat):
        for prompt, times in asked:
            if replica < times:
                yield build_structured_request(add_hints(prompt, settings.hints), settings.decoding, replica)


@dataclass(frozen=True, slots=True)
class _Subject:
    """A response to judge."""

    instance: Instance
    response: Response
    settings: JudgeSettings
    whole: _Subject | None = None
    """The response as it was read, where the judge has located its answer."""

    @property
    def locating(self) -> bool:
        """Whether the judge is asked which step is the answer."""
        reading, steps = self.response.reading, self.response.trace.steps
        is_asked = self.settings.locate and not self.settings.joint
        return is_asked and len(steps) > 1 and reading is not None and not reading.located

    def split_at(self, number: int) -> _Subject:
        """Return the response with one of its steps, counted from one, as its answer."""
        texts = list(self.response.trace.texts)
        answer = texts.pop(number - 1)
        response = replace(self.response, trace=Trace.of(*texts), answer=answer, answer_lines=1, reading=None)
        return replace(self, response=response, whole=self)

    @property
    def opened(self) -> list[JudgeQuestion]:
        """Questions that can be asked only since the answer was located."""
        return [] if self.whole is None else [name for name in self.questions if name not in self.whole.questions]

    @property
    def material(self) -> disclosure.JointJudgeMaterial:
        """Material of the joint question."""
        return disclosure.disclose_for_joint_judging(
            self.instance, self.response, reference_free=self.settings.reference_free
        )

    @property
    def questions(self) -> list[JudgeQuestion]:
        """Questions that can be asked about this response."""
        excluded = {CRITERION_QUESTIONS[criterion] for criterion in self.unasked}
        return [question for question in JOINT_JUDGE_QUESTIONS if question not in excluded]

    @property
    def unasked(self) -> dict[Criterion, str]:
        """Criteria that no judge could decide, with the reason."""
        reasons = ((criterion, self._explain_unasked(criterion)) for criterion in Criterion)
        return {criterion: reason for criterion, reason in reasons if reason is not None}

    def _explain_unasked(self, criterion: Criterion) -> str | None:
        # Correctness compares answers alone, so it is judged without a trace as well.
        if criterion is not Criterion.CORRECTNESS and not self.response.trace.steps:
            return NO_TRACE_REASON
        if criterion in (Criterion.CLOSURE, Criterion.CORRECTNESS) and self.response.answer is None:
            return NO_ANSWER_REASON
        if criterion in (Criterion.CLOSURE, Criterion.COMPLETENESS) and self.unsplit:
            return UNSPLIT_ANSWER_REASON
        if criterion in (Criterion.COMPLETENESS, Criterion.CORRECTNESS):
            if self.settings.reference_free:
                return REFERENCE_FREE_REASON
            if self.instance.reference_answer is None:
                return NO_REFERENCE_REASON
        return None

    @property
    def unsplit(self) -> bool:
        """Whether an answer that no line marks may hold the end of the reasoning, as the last message of an agent."""
        return self.response.answer is not None and not self.response.answer_lines

    @property
    def joint_questions(self) -> list[JudgeQuestion]:
        """Questions that one call asks together; a trace of several windows does not fit into it."""
        if not self.settings.joint:
            return []
        windowed = len(self.response.trace.steps) > self.settings.step_window
        return [question for question in self.questions if not windowed or question is not JudgeQuestion.SOUNDNESS]

    @property
    def separate_questions(self) -> list[JudgeQuestion]:
        """Questions that are asked in calls of their own."""
        joint = self.joint_questions
        return [question for question in self.questions if question not in joint]

    def disclose(self, question: JudgeQuestion) -> tuple[disclosure.JudgeMaterial, ...]:
        """Return the material of each call that asks a question: several for the soundness of a long trace."""
        if question is JudgeQuestion.SUFFICIENCY:
            return (disclosure.disclose_for_sufficiency(self.instance),)
        if question is JudgeQuestion.SOUNDNESS:
            return disclosure.disclose_soundness_windows(self.instance, self.response, self.settings.step_window)
        if question is JudgeQuestion.ALIGNMENT and self.locating:
            return (disclosure.disclose_for_locating(self.instance, self.response),)
        material = _DISCLOSURES[question](self.instance, self.response)
        # ``questions`` excludes every question whose material would be None.
        assert material is not None
        return (material,)

    async def ask(self, model: ChatModel, replica: int) -> tuple[_Subject, dict[JudgeQuestion, StructuredAnswer]]:
        """Ask all questions once; return what they were asked about, and the answers by question."""
        joint, separate = self.joint_questions, self.separate_questions
        joint_answers, *answers = await _gather(
            self._ask_jointly(joint, model, replica),
            *(self._ask_question(question, model, replica) for question in separate),
        )
        by_question = joint_answers | dict(zip(separate, answers, strict=True))
        number = _find_answer_step(by_question)
        if number is None:
            return self, by_question
        split = self.split_at(number)
        answers = await _gather(*(split._ask_question(question, model, replica) for question in split.opened))
        return split, by_question | dict(zip(split.opened, answers, strict=True))

    async def _ask_jointly(
        self, questions: Sequence[JudgeQuestion], model: ChatModel, replica: int
    ) -> dict[JudgeQuestion, StructuredAnswer]:
        """Ask several questions in one call; an unusable part triggers another attempt and finally stays open."""
        if not questions:
            return {}
        material = self.material
        # Filled by the parser, so that the usable parts of the last reply survive when all attempts fail.
        latest: dict[JudgeQuestion, StructuredAnswer] = {}

        def parse(reply: Mapping[str, Any]) -> dict[JudgeQuestion, StructuredAnswer]:
            for question in questions:
                latest[question] = _parse_part(question, material, reply[question.part])
            if unusable := next((answer for answer in latest.values() if answer.reason is not None), None):
                raise InconsistentReplyError(unusable.reason or "", unusable.problem)
            return latest

        answer = await self._ask(model, build_judge_prompt(material, questions), parse, replica)
        # Empty where no reply had the form of the schema; then every question has the same reason.
        return latest or dict.fromkeys(questions, answer)

    async def _ask_question(self, question: JudgeQuestion, model: ChatModel, replica: int) -> StructuredAnswer:
        materials = self.disclose(question)
        answers = await _gather(
            *(
                self._ask(model, build_judge_prompt(material), partial(_parse_reply, question, material), replica)
                for material in materials
            )
        )
        return answers[0] if len(answers) == 1 else _merge_windows(materials, answers)

    async def _ask(
        self, model: ChatModel, prompt: PromptWithSchema, parse: Callable[[Any], Any], replica: int
    ) -> StructuredAnswer:
        decoding, attempts = self.settings.decoding, self.settings.attempts
        prompt = add_hints(prompt, self.settings.hints)
        return await ask_structured(model, prompt, parse, decoding=decoding, attempts=attempts, replica=replica)


def _find_answer_step(answers: Mapping[JudgeQuestion, StructuredAnswer]) -> int | None:
    """Return the step that the judge took for the answer; None where it was not asked, or found none."""
    alignment = answers.get(JudgeQuestion.ALIGNMENT)
    if alignment is None or alignment.reason is not None:
        return None
    number: int | None = alignment.value.get("answer_step")
    return number


def _merge_windows(
    materials: Sequence[disclosure.JudgeMaterial], answers: Sequence[StructuredAnswer]
) -> StructuredAnswer:
    """Return the judgments of all steps; those of a window without a usable reply are open.

    The answer has a reason where soundness is not decided: an open step, and no unsound one.
    """
    steps: list[StepJudgment] = []
    failed: StructuredAnswer | None = None
    for material, answer in zip(materials, answers, strict=True):
        assert isinstance(material, disclosure.SoundnessMaterial | disclosure.SoundnessWindowMaterial)
        if answer.reason is None:
            steps += answer.value
            continue
        # Open, not unsound: nothing is known about these steps.
        steps += [StepJudgment(None)] * len(material.steps)
        failed = failed or replace(answer, problem=f"{_name_steps(material.steps)}: {answer.problem}")
    # One unsound step decides the criterion, whatever the open ones are.
    if failed is None or any(step.sound is False for step in steps):
        return StructuredAnswer(tuple(steps))
    return replace(failed, value=tuple(steps))


def _name_steps(steps: Sequence[DisclosedStep]) -> str:
    return f"step {steps[0].id}" if len(steps) == 1 else f"steps {steps[0].id}-{steps[-1].id}"


# Each label may rest on its own material only (appendix D.1): soundness sees no answer, alignment and closure no
# evidence, correctness no trace.
_DISCLOSURES: Mapping[JudgeQuestion, Callable[[Instance, Response], disclosure.JudgeMaterial | None]] = {
    JudgeQuestion.ALIGNMENT: disclosure.disclose_for_alignment,
    JudgeQuestion.CLOSURE: disclosure.disclose_for_closure,
    JudgeQuestion.COMPLETENESS: disclosure.disclose_for_completeness,
    JudgeQuestion.CORRECTNESS: disclosure.disclose_for_correctness,
}


def _parse_part(
    question: JudgeQuestion, material: disclosure.JointJudgeMaterial, reply: Mapping[str, Any]
) -> StructuredAnswer:
    try:
        return StructuredAnswer(_parse_reply(question, material, reply))
    except InconsistentReplyError as error:
        return StructuredAnswer(reason=error.kind, problem=str(error))


def _parse_reply(question: JudgeQuestion, material: disclosure.JudgeMaterial, reply: Mapping[str, Any]) -> Any:
    if isinstance(material, disclosure.LocatingMaterial):
        return check_answer_step(material, reply)
    if question is not JudgeQuestion.SOUNDNESS:
        return reply
    assert isinstance(
        material,
        disclosure.SoundnessMaterial | disclosure.SoundnessWindowMaterial | disclosure.JointJudgeMaterial,
    )
    return parse_step_judgments(material, reply)


async def _gather(*calls: Awaitable[Any]) -> list[Any]:
    """Wait for all calls, then raise the first error or return all results."""
    # A plain gather would return at the first error and leave paid calls under way without a reader.
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def _build_judgment(subject: _Subject, judge_name: str, answers: Mapping[JudgeQuestion, StructuredAnswer]) -> Judgment:
    values = {question: answer.value for question, answer in answers.items() if answer.reason is None}
    by_criterion = {name: answers[question] for name, question in CRITERION_QUESTIONS.items() if question in answers}
    failed = {name: format_reason(answer) for name, answer in by_criterion.items() if answer.reason is not None}
    unjudged = subject.unasked | failed
    # Sufficiency of the evidence is asked of every response but is no criterion, so its reason has a field of its own.
    sufficiency = answers[JudgeQuestion.SUFFICIENCY]

    def value(question: JudgeQuestion, name: str) -> Any:
        return values[question][name] if question in values else None

    # Soundness has a reason per step, and none for the trace.
    reasons = {name: value(question, "reason") for name, question in CRITERION_QUESTIONS.items() if name != "L"}
    return Judgment(
        subject.response.id,
        judge_name,
        # Steps of the windows that were judged are kept where other windows were not.
        answers[JudgeQuestion.SOUNDNESS].value or () if JudgeQuestion.SOUNDNESS in answers else (),
        aligned=value(JudgeQuestion.ALIGNMENT, "aligned"),
        closed=value(JudgeQuestion.CLOSURE, "closed"),
        complete=value(JudgeQuestion.COMPLETENESS, "complete"),
        correct=value(JudgeQuestion.CORRECTNESS, "correct"),
        # In the order of the criteria, so that equal judgments are written as equal bytes.
        unjudged={criterion: unjudged[criterion] for criterion in Criterion if criterion in unjudged},
        reasons={criterion: reason for criterion, reason in reasons.items() if reason},
        pursued=value(JudgeQuestion.ALIGNMENT, "pursued") or None,
        established=value(JudgeQuestion.CLOSURE, "established") or None,
        answer_step=_find_answer_step(answers),
        evidence_sufficient=value(JudgeQuestion.SUFFICIENCY, "sufficient"),
        missing_evidence=value(JudgeQuestion.SUFFICIENCY, "missing"),
        evidence_unjudged=None if sufficiency.reason is None else format_reason(sufficiency),
        abstained=is_abstention(subject.response),
    )
