"""Questions that a judge is asked on request: criteria of a user's own, and what each passage is to the question.

Each is a call of its own, so no label of the paper depends on them. Texts of users stand in the guideline; passages,
steps and answers stay in the material, as with the locked questions.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from eclose.prompts.locked_texts import PromptMessage, load_prompt_text
from eclose.prompts.material_json import disclose_passages, disclose_steps, render_members
from eclose.prompts.structured import (
    BOOLEAN_SCHEMA,
    TEXT_SCHEMA,
    InconsistentReplyError,
    PromptWithSchema,
    array_schema,
    enum_schema,
    object_schema,
)
from eclose.values.identity import content_hash
from eclose.values.judgment import (
    NO_ANSWER_REASON,
    NO_REFERENCE_REASON,
    NO_TRACE_REASON,
    REFERENCE_FREE_REASON,
    PassageLabel,
    PassageLabels,
    PassageUse,
    ReferenceClaim,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eclose.values.instance import Instance
    from eclose.values.own_criterion import OwnCriterion
    from eclose.values.response import Response


class RequestedQuestion(StrEnum):
    """The questions that are asked on request; the value names the guideline and the schema of the reply."""

    OWN = "judge_own"
    PASSAGES = "judge_passages"


_SEEN_WORDS = {
    "question": "a `question`",
    "passages": "numbered passages (`evidence`)",
    "trace": "the `steps` of somebody's reasoning, each with its `id`",
    "answer": "the `answer` that was submitted",
    "reference": "the `reference` answer, sometimes with other accepted forms of it (`aliases`)",
}


def explain_unseen_part(
    criterion: OwnCriterion, instance: Instance, response: Response, *, reference_free: bool
) -> str | None:
    """Return why a response cannot be judged by a criterion: a text that it rests on is missing; None otherwise."""
    if "trace" in criterion.sees and not response.trace.steps:
        return NO_TRACE_REASON
    if "answer" in criterion.sees and response.answer is None:
        return NO_ANSWER_REASON
    if "reference" in criterion.sees and reference_free:
        return REFERENCE_FREE_REASON
    if "reference" in criterion.sees and instance.reference_answer is None:
        return NO_REFERENCE_REASON
    return None


def build_own_prompt(criterion: OwnCriterion, instance: Instance, response: Response) -> PromptWithSchema:
    """Return the prompt that asks for the label of a response by a criterion."""
    material = _disclose(instance, response)
    words = [_SEEN_WORDS[part] for part in criterion.sees]
    guideline = load_prompt_text("judge_own.md").render(
        sees=f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0],
        question=criterion.question.strip(),
        labels=", ".join(f"`{label}`" for label in criterion.labels),
    )
    members: dict[str, Any] = {}
    for part in criterion.sees:
        members |= material[part]
    schema = object_schema(reason=TEXT_SCHEMA, verdict=enum_schema(criterion.labels))
    return _build_prompt(RequestedQuestion.OWN, guideline, members, schema)


def _disclose(instance: Instance, response: Response) -> dict[str, dict[str, Any]]:
    """Return the members of the material by the part of a response that they show."""
    return {
        "question": {"question": instance.question},
        "passages": {"evidence": disclose_passages(instance.evidence)},
        "trace": {"steps": disclose_steps(response.trace)},
        "answer": {"answer": response.answer},
        "reference": {"reference": instance.reference_answer, "aliases": instance.aliases},
    }


def build_passages_prompt(instance: Instance, *, reference_free: bool) -> PromptWithSchema:
    """Return the prompt that asks what each passage is to the question; the reference is shown where there is one."""
    evidence = disclose_passages(instance.evidence)
    members: dict[str, Any] = {"question": instance.question, "evidence": evidence}
    if instance.reference_answer is not None and not reference_free:
        members |= {"reference": instance.reference_answer, "aliases": instance.aliases}
    guideline = load_prompt_text("judge_passages.md").text.rstrip("\n")
    return _build_prompt(RequestedQuestion.PASSAGES, guideline, members, _passages_schema(len(evidence)))


_PASSAGE_SCHEMA = object_schema(reason=TEXT_SCHEMA, verdict=enum_schema(PassageUse))
_CLAIM_SCHEMA = object_schema(claim=TEXT_SCHEMA, reason=TEXT_SCHEMA, supported=BOOLEAN_SCHEMA)


@cache
def _passages_schema(count: int) -> dict[str, Any]:
    entries = object_schema(**{str(index): {"$ref": "#/$defs/passage"} for index in range(count)})
    # The entry is a definition, because a schema is paid for with every call and passages may be many.
    return object_schema(passages=entries, claims=array_schema(_CLAIM_SCHEMA)) | {"$defs": {"passage": _PASSAGE_SCHEMA}}


def parse_passage_labels(instance: Instance, reply: Mapping[str, Any], *, reference_free: bool) -> PassageLabels:
    """Return the labels of a reply in the order of the passages.

    Raises:
        InconsistentReplyError: The reply is about other passages than those in the material.
    """
    entries: Mapping[str, Mapping[str, Any]] = reply["passages"]
    indices = [str(index) for index in range(len(instance.evidence))]
    if set(entries) != set(indices):
        raise InconsistentReplyError("wrong passages", f"the passages are {indices}, the reply has {list(entries)}.")
    # Without a reference there is nothing to claim, whatever the reply holds.
    claims = () if reference_free or instance.reference_answer is None else reply["claims"]
    return PassageLabels(
        tuple(
            PassageLabel(PassageUse(entries[index]["verdict"]), entries[index]["reason"] or None) for index in indices
        ),
        tuple(ReferenceClaim(entry["claim"], entry["supported"], entry["reason"] or None) for entry in claims),
    )


def _build_prompt(
    question: RequestedQuestion, guideline: str, members: Mapping[str, Any], schema: Mapping[str, Any]
) -> PromptWithSchema:
    system = load_prompt_text("judge_frame.md").render(guideline=guideline)
    messages = (
        PromptMessage(role="system", content=system),
        PromptMessage(role="user", content=render_members(members)),
    )
    return PromptWithSchema(question, messages, content_hash([system]), schema)


def build_hints(domain: str | None, language: str | None) -> tuple[str, ...]:
    """Return the lines that tell a judge the domain of the texts and the language of its reasons; empty without any."""
    hints = []
    if domain is not None:
        hints.append(load_prompt_text("judge_domain.md").render(domain=domain))
    if language is not None:
        hints.append(load_prompt_text("judge_language.md").render(language=language))
    return tuple(hints)


def add_hints(prompt: PromptWithSchema, hints: Sequence[str]) -> PromptWithSchema:
    """Return a prompt with lines at the end of its guideline; without any, the prompt itself."""
    if not hints:
        return prompt
    system, *others = prompt.messages
    content = "\n\n".join([system["content"], *hints])
    return replace(
        prompt,
        messages=(PromptMessage(role=system["role"], content=content), *others),
        guideline=content_hash([prompt.guideline, *hints]),
    )
