"""Judging of one answer as other evaluation frameworks hold it: a question, passages, and the text of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.api.judge import ajudge
from eclose.readers.conversion import build_case
from eclose.readers.judged_run import JudgedCase
from eclose.reading.response import read_response
from eclose.values.identity import content_hash
from eclose.values.instance import Instance, Passage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.calls.client import CallSettings
    from eclose.judging.settings import JudgeSettings


def build_instance(question: str, passages: Sequence[str], reference: str | None = None) -> Instance:
    """Return the instance of a question with passages that have no titles."""
    evidence = tuple(Passage(f"p{number}", "", text) for number, text in enumerate(passages, start=1))
    id_ = content_hash([question, list(passages)]).removeprefix("sha256:")[:16]
    return Instance(id_, question, evidence, reference)


async def judge_answer(
    instance: Instance,
    answer: str,
    judge: str,
    settings: JudgeSettings | None,
    calls: CallSettings | None,
) -> JudgedCase:
    """Judge the text of a model; what the log of an agent observed becomes passages."""
    instance, response = build_case(instance, read_response(answer, instance.question), answer)
    judgment = await ajudge(instance, response, judge=judge, settings=settings, calls=calls)
    return JudgedCase(instance, response, judgment)
