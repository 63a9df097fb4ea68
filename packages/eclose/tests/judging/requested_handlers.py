"""A judge of the world on what is asked on request: passages exactly, from the oracle; criteria of one's own alike.

The oracle knows no tone or style, so every criterion of a user's own gets its first label.
"""

from __future__ import annotations

import json

from eclose.prompts.requested_questions import RequestedQuestion
from eclose.values.instance import Passage
from eclose.values.judgment import PassageUse
from eclose_world.language.questions import parse_question
from eclose_world.oracle.answer_equality import is_correct_answer
from eclose_world.oracle.evidence import parse_evidence_facts
from eclose_world.server.chat_requests import ChatRequest, HandlerRegistry, ScriptedReply


def register_requested_handlers(registry: HandlerRegistry) -> None:
    """Register the handlers of both questions."""
    registry.register(RequestedQuestion.OWN, _answer_own)
    registry.register(RequestedQuestion.PASSAGES, _answer_passages)


def _answer_own(request: ChatRequest) -> ScriptedReply:
    labels = (request.schema or {})["properties"]["verdict"]["enum"]
    return ScriptedReply({"reason": "It is the first.", "verdict": labels[0]})


def _answer_passages(request: ChatRequest) -> ScriptedReply:
    material = json.loads(request.messages[-1]["content"])
    passages = tuple(Passage(str(each["index"]), each["title"], each["text"]) for each in material["evidence"])
    target = parse_question(material["question"])
    if target is None:
        return ScriptedReply("", refusal="cannot read the question")
    answers = parse_evidence_facts(passages).find_answers(target)
    # Passages on the shortest way to the answer; of several that state a fact, one.
    needed = answers[0].support if len(answers) == 1 else frozenset()
    entries = {
        str(index): {"reason": "", "verdict": PassageUse.NEEDED if index in needed else PassageUse.NOT_NEEDED}
        for index in range(len(passages))
    }
    claims = []
    if (reference := material.get("reference")) is not None:
        accepted = (reference, *material["aliases"])
        supported = any(is_correct_answer(answer.value, accepted) is True for answer in answers)
        claims.append({"claim": f"The answer is {reference}.", "reason": "", "supported": supported})
    return ScriptedReply({"passages": entries, "claims": claims})
