"""Families built in one process: the product's own stages, asking the world's model without a server in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

import jsonschema_rs

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.model import FinishReason, Reply, TokenUsage
from eclose.calls.structured import build_structured_request
from eclose.values.family import Family
from eclose_train.construction.candidates import FamilyDraft
from eclose_train.construction.lengths import make_estimating_counter
from eclose_train.construction.roles import ConstructionTeam
from eclose_train.construction.settings import ConstructSettings
from eclose_train.construction.stages import (
    assemble_family,
    build_evidence_edits,
    build_question_edit,
    build_target_response,
    reverify_family,
    screen_source,
)
from eclose_world.roles.constructor import register_constructor_handlers
from eclose_world.roles.verifier import register_verifier_handlers
from eclose_world.server.chat_requests import ChatRequest, HandlerRegistry


class InProcess:
    """A chat model that is a registry of handlers."""

    name = "world/model"

    def __init__(self, registry: HandlerRegistry) -> None:
        self.registry = registry
        self.said: list[tuple[str, dict]] = []

    async def complete(self, request):
        """What the handler says, refused where it does not have the shape that was asked for."""
        schema = {"name": request.schema.name, "schema": dict(request.schema.schema), "strict": True}
        body = {
            "model": "world",
            "messages": list(request.messages),
            "response_format": {"type": "json_schema", "json_schema": schema},
            "seed": request.seed,
        }
        chat_request = ChatRequest.of(body)
        reply = self.registry.handler(chat_request.schema_name)(chat_request)
        self.said.append((request.schema.name, reply.content))
        if not jsonschema_rs.is_valid(dict(request.schema.schema), reply.content):
            raise CallFailure(CallFailureKind.INVALID, reply.text)
        return Reply(reply.text, FinishReason.STOP, TokenUsage(1, 1))


def world_model(*, defect=None, constructor_noise=0.0, verifier_noise=0.0, seed=0):
    registry = HandlerRegistry()
    register_constructor_handlers(registry, noise=constructor_noise, seed=seed, defect=defect)
    register_verifier_handlers(registry, noise=verifier_noise, seed=seed)
    return InProcess(registry)


async def through(model, question):
    """One question, as a team would ask it."""
    with suppress(CallFailure):
        await model.complete(build_structured_request(question, ConstructSettings().decoding))


class Built(NamedTuple):
    """What became of a source: a family, or who refused it and why."""

    family: Family | None
    reason: str | None


def build(source, model, settings=None):
    """A source through all stages."""
    team = ConstructionTeam(model, model, settings or ConstructSettings())

    async def run():
        outcome = await screen_source(source, team, make_estimating_counter())
        for part in (build_target_response, build_evidence_edits, build_question_edit):
            if isinstance(outcome, FamilyDraft):
                outcome = await part(outcome, team)
        outcome = (
            assemble_family(outcome, team, make_estimating_counter()) if isinstance(outcome, FamilyDraft) else outcome
        )
        return (
            await reverify_family(outcome, team) if isinstance(outcome, Family) and team.settings.reverify else outcome
        )

    outcome = asyncio.run(run())
    return Built(outcome, None) if isinstance(outcome, Family) else Built(None, outcome.reason)


def funnel(sources, model, settings=None):
    """Families, and how often each reason ended a source."""
    families, reasons = [], Counter()
    for source in sources:
        built = build(source, model, settings)
        if built.family is not None:
            families.append(built.family)
        else:
            reasons[built.reason] += 1
    return families, reasons
