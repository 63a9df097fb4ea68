"""What a judge is asked on request beside the locked questions: criteria of a user's own, and the passages.

A criterion of one's own is asked as often as the locked questions; the passages are one call a response.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.calls.structured import ask_structured, format_reason
from eclose.prompts.requested_questions import (
    add_hints,
    build_own_prompt,
    build_passages_prompt,
    explain_unseen_part,
    parse_passage_labels,
)
from eclose.values.judgment import REPETITIONS_DISAGREE_REASON, OwnLabel, PassageLabels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eclose.calls.model import ChatModel
    from eclose.judging.settings import JudgeSettings
    from eclose.prompts.structured import PromptWithSchema
    from eclose.values.instance import Instance
    from eclose.values.own_criterion import OwnCriterion
    from eclose.values.response import Response

NO_PASSAGES_REASON = "there are no passages"


class RequestedLabels(NamedTuple):
    """What a judge gave on request; empty and None where nothing was asked for."""

    own: dict[str, OwnLabel]
    passages: PassageLabels | None


def list_requested_prompts(
    instance: Instance, response: Response, settings: JudgeSettings
) -> Iterator[tuple[PromptWithSchema, int]]:
    """Yield each prompt about a response with the number of times that it is asked."""
    for criterion in settings.criteria:
        if explain_unseen_part(criterion, instance, response, reference_free=settings.reference_free) is None:
            yield build_own_prompt(criterion, instance, response), settings.repeat
    if settings.passages and instance.evidence:
        yield build_passages_prompt(instance, reference_free=settings.reference_free), 1


async def ask_requested(
    instance: Instance, response: Response, model: ChatModel, settings: JudgeSettings, replica: int
) -> RequestedLabels:
    """Return the labels by the criteria of the settings, and of the passages where the settings ask for them."""
    if not settings.criteria and not settings.passages:
        return RequestedLabels({}, None)

    async def ask(criterion: OwnCriterion, number: int) -> OwnLabel:
        reason = explain_unseen_part(criterion, instance, response, reference_free=settings.reference_free)
        if reason is not None:
            return OwnLabel(reason=reason)
        prompt = add_hints(build_own_prompt(criterion, instance, response), settings.hints)
        parse = partial(_parse_own_label, criterion)
        answer = await ask_structured(
            model, prompt, parse, decoding=settings.decoding, attempts=settings.attempts, replica=replica + number
        )
        label: OwnLabel = answer.value if answer.reason is None else OwnLabel(reason=format_reason(answer))
        return label

    repetitions = range(settings.repeat)
    asked = [asyncio.ensure_future(ask(criterion, number)) for criterion in settings.criteria for number in repetitions]
    passages = asyncio.ensure_future(_ask_about_passages(instance, model, settings, replica))
    # Every call is waited for before an error is raised, so that no paid reply is left without a reader.
    await asyncio.gather(*asked, passages, return_exceptions=True)
    labels = [call.result() for call in asked]
    rows = (labels[start : start + settings.repeat] for start in range(0, len(labels), settings.repeat))
    own = {criterion.name: _take_majority(row) for criterion, row in zip(settings.criteria, rows, strict=True)}
    return RequestedLabels(own, passages.result())


def _parse_own_label(criterion: OwnCriterion, reply: Mapping[str, Any]) -> OwnLabel:
    return OwnLabel(reply["verdict"], reply["verdict"] == criterion.labels[0], reply["reason"] or None)


def _take_majority(labels: Sequence[OwnLabel]) -> OwnLabel:
    """Return the label that more repetitions gave than any other, with the reason of the first of them."""
    if len(labels) == 1:
        return labels[0]
    votes = tuple(label.label for label in labels)
    ranked = Counter(vote for vote in votes if vote is not None).most_common(2)
    if not ranked:
        return OwnLabel(reason=labels[0].reason, votes=votes)
    if len(ranked) > 1 and ranked[0][1] == ranked[1][1]:
        return OwnLabel(reason=REPETITIONS_DISAGREE_REASON, votes=votes)
    winner = next(label for label in labels if label.label == ranked[0][0])
    return OwnLabel(winner.label, winner.holds, winner.reason, votes)


async def _ask_about_passages(
    instance: Instance, model: ChatModel, settings: JudgeSettings, replica: int
) -> PassageLabels | None:
    if not settings.passages:
        return None
    if not instance.evidence:
        return PassageLabels(unjudged=NO_PASSAGES_REASON)
    prompt = add_hints(build_passages_prompt(instance, reference_free=settings.reference_free), settings.hints)
    parse = partial(parse_passage_labels, instance, reference_free=settings.reference_free)
    answer = await ask_structured(
        model, prompt, parse, decoding=settings.decoding, attempts=settings.attempts, replica=replica
    )
    labels: PassageLabels = answer.value if answer.reason is None else PassageLabels(unjudged=format_reason(answer))
    return labels
