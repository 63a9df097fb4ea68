"""A judge that gives the replies of a script, by the name of the question."""

from __future__ import annotations

import json

from eclose.calls.model import FinishReason, Reply, TokenUsage

HOLDS = {
    "judge_sufficiency": {"reason": "It says so.", "missing": None, "sufficient": True, "answer": "Arica"},
    "judge_soundness": {"steps": {"1": {"reason": "Passage 0.", "verdict": "sound", "support": None}}},
    "judge_alignment": {"reason": "The same.", "pursued": "where she was born", "aligned": True},
    "judge_closure": {"reason": "It follows.", "established": "Arica", "closed": True},
    "judge_completeness": {"reason": "It does.", "missing": None, "complete": True},
    "judge_correctness": {"reason": "The same.", "correct": True},
}
"""Replies under which every label of a response of one step holds."""


class ScriptedJudge:
    """Answers each question by its name: with one reply, or with those of a list, one for each repetition."""

    name = "scripted"

    def __init__(self, **replies):
        self.replies = HOLDS | replies
        self.requests = []

    async def complete(self, request):
        self.requests.append(request)
        reply = self.replies[request.schema.name]
        reply = reply(request) if callable(reply) else reply[request.replica] if isinstance(reply, list) else reply
        return Reply(json.dumps(reply), FinishReason.STOP, TokenUsage(1, 1))
