"""Necessity of every gate: defects are planted, one kind at a time, and each gate is removed to see what passes.

The world's constructor breaks everything it writes in one named way, and sources are broken before anything reads
them; code, gates and the world's exact verifier check the outcome. The first check that refuses a case is its catcher.
Then each catcher is taken away in turn and its cases are tried again: they are refused later, or a family comes out
that is wrong. Gates on what code itself puts together cannot be broken that way; for these a finished family is broken
by hand so that nothing but the gate objects.

    python studies/campaigns/construct_gates.py
    python studies/campaigns/construct_gates.py --sources 4     a quick look
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.model import FinishReason, TokenUsage
from eclose.calls.model import Reply as ChatReply
from eclose.values.family import Family, FamilyFinding
from eclose.values.family_rules import MIN_SUPPORTING_PASSAGES, FamilyGate, check_family
from eclose.values.instance import Instance
from eclose.values.response import Step, Trace
from eclose_train.construction import roles, stages
from eclose_train.construction.candidates import FailedSource, FamilyDraft
from eclose_train.construction.lengths import make_estimating_counter
from eclose_train.construction.questions import ConstructionRole
from eclose_train.construction.settings import ConstructSettings
from eclose_world.faulty.bad_constructor_replies import REPLY_DEFECTS
from eclose_world.faulty.bad_sources import BAD_SOURCE_KINDS, make_bad_source
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.family_conditions import find_family_defects
from eclose_world.roles.constructor import register_constructor_handlers
from eclose_world.roles.judge import CANNOT_READ
from eclose_world.roles.verifier import register_verifier_handlers
from eclose_world.server.chat_requests import ChatRequest, HandlerRegistry
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eclose.calls.model import Request
    from eclose.calls.record_loop import RecordRejection

SEED = 77_031
PROFILES = ("2wiki", "hotpot", "musique")
CHECKS = tuple(role for role in ConstructionRole if not role.constructs)


class Direct:
    """Model of the world, called directly instead of over HTTP."""

    name = "world"

    def __init__(self, defect: str | None = None) -> None:
        self._registry = HandlerRegistry()
        register_constructor_handlers(self._registry, seed=SEED, defect=defect)
        register_verifier_handlers(self._registry, seed=SEED)

    async def complete(self, request: Request) -> ChatReply:
        assert request.schema is not None
        chat_request = ChatRequest(
            key="", model=self.name, messages=request.messages, schema_name=request.schema.name,
            schema=request.schema.schema, by_tool=False, temperature=0.0, max_tokens=None, seed=request.seed,
            logprobs=False, top_logprobs=0, stream=False, body={},
        )  # fmt: skip
        reply = self._registry.handler(request.schema.name)(chat_request)
        # What a client would find out by the shape of the reply.
        if isinstance(reply.content, str) or "unreadable" in reply.content:
            raise CallFailure(CallFailureKind.INVALID, CANNOT_READ)
        return ChatReply(json.dumps(reply.content), FinishReason.STOP, TokenUsage(0, 0))


@dataclass(frozen=True)
class Case:
    """Source and the defect planted in what is built from it."""

    source: Instance
    defect: str
    model: Direct


@dataclass(frozen=True)
class CaseOutcome:
    """Catcher that refused a case, or the family that was built."""

    catcher: str | None
    objections: tuple[str, ...] = ()
    family: Family | None = None

    @property
    def wrong(self) -> bool:
        return self.family is not None and bool(find_family_defects(self.family))


def build(case: Case) -> CaseOutcome:
    """Build a case through all stages, without the second check, which repeats the first."""
    members = roles.ConstructionTeam(case.model, case.model, ConstructSettings(reverify=False))

    async def run() -> Family | RecordRejection:
        draft: Any = await stages.screen_source(case.source, members, make_estimating_counter())
        for part in (stages.build_target_response, stages.build_evidence_edits, stages.build_question_edit):
            if isinstance(draft, FamilyDraft):
                draft = await part(draft, members)
        return (
            stages.assemble_family(draft, members, make_estimating_counter())
            if isinstance(draft, FamilyDraft)
            else draft
        )

    result = asyncio.run(run())
    if isinstance(result, Family):
        return CaseOutcome(None, family=result)
    if not isinstance(result.value, FailedSource):
        return CaseOutcome(result.reason)
    last = result.value.setbacks[-1]
    role = last.stage in CHECKS
    return CaseOutcome(last.stage if role else str(last), last.finding.objections if last.finding else ())


@contextmanager
def without_catcher(catcher: str) -> Iterator[None]:
    """Replace a role by one that always agrees, or open a gate, within the context."""
    with ExitStack() as stack:
        if catcher in CHECKS:
            find = roles.parse_check_reply

            def lenient(role: ConstructionRole, *arguments: Any, **more: Any) -> Any:
                finding = find(role, *arguments, **more)
                return _agreeing(finding) if role == catcher else finding

            stack.enter_context(patch.object(roles, "parse_check_reply", lenient))
        else:
            gate = catcher.removeprefix("gates: ")
            for name in ("check_original_response", "check_evidence_edit", "check_question_edit", "check_family"):
                stack.enter_context(patch.object(stages, name, _open_gate(getattr(stages, name), gate)))
        yield


def _agreeing(finding: FamilyFinding) -> FamilyFinding:
    """Return the finding without objections and with the minimum support."""
    answers = dict(finding.said)
    if "support" in answers:
        answers["support"] = list(dict.fromkeys([*answers["support"], *range(MIN_SUPPORTING_PASSAGES)]))
    return replace(finding, said=answers, objections=())


def _open_gate(check: Callable[..., Any], gate: str) -> Callable[..., Any]:
    return lambda *arguments: (failure for failure in check(*arguments) if failure.gate != gate)


# --- cases -------------------------------------------------------------------------------------------------------


def cases(count: int) -> Iterator[Case]:
    """Yield every kind of defect on ``count`` sources of each profile."""
    good = Direct()
    for profile in PROFILES:
        items = list(islice(make_world_items(profile, SEED), count))
        for kinds in REPLY_DEFECTS.values():
            for kind in kinds:
                model = Direct(kind)
                yield from (Case(item.instance, kind, model) for item in items)
        for kind in BAD_SOURCE_KINDS:
            for number, item in enumerate(items):
                if (source := make_bad_source(item, kind, Random(f"{SEED}/{number}"))) is not None:
                    yield Case(source, f"source: {kind}", good)


def break_family(family: Family) -> dict[FamilyGate, Family]:
    """Break the family by hand so that one gate alone objects; return the variants this family admits."""
    gold, (edit, *_), question_edit = family.gold, family.evidence_edits, family.question_edit
    first, view = edit.first_affected_step, edit.view
    spare = next(passage.id for passage in gold.evidence if passage.id not in gold.support_ids)

    def with_edit(changed: Any = edit, **more: Any) -> Family:
        return replace(family, evidence_edits=(replace(changed, view=replace(changed.view, **more)),))

    def with_question(**more: Any) -> Family:
        return replace(family, question_edit=replace(question_edit, view=replace(question_edit.view, **more)))

    retitled = tuple(
        replace(passage, title=f"{passage.title}s") if n == edit.passage_index else passage
        for n, passage in enumerate(view.evidence)
    )
    other = tuple(
        replace(passage, text=f"{passage.text} ") if n == 0 else passage for n, passage in enumerate(gold.evidence)
    )
    support = tuple(name for name in gold.support_ids if name != edit.passage_id)
    steps = list(view.trace.steps)
    families = {
        FamilyGate.WELL_FORMED: replace(family, gold=replace(gold, proof=gold.proof[:-1])),
        FamilyGate.IDENTIFIER_MEMBERSHIP: replace(
            family, gold=replace(gold, support_ids=(*gold.support_ids, "nowhere"))
        ),
        FamilyGate.GOLD_INPUT: replace(
            family, source=replace(family.source, question=f"{family.source.question} Now?")
        ),
        FamilyGate.GOLD_ANSWER: replace(family, source=replace(family.source, reference_answer="Nobody", aliases=())),
        FamilyGate.ANSWER_CHANGED: replace(family, source=replace(family.source, aliases=(view.answer,))),
        FamilyGate.SAME_QUESTION: with_edit(question=f"{view.question} Now?"),
        FamilyGate.SINGLE_EDITED_PASSAGE: with_edit(evidence=gold.evidence),
        FamilyGate.UNEDITED_IDENTICAL: with_edit(evidence=retitled),
        # Without a proof, since its steps would rest on a passage that is no longer in the support.
        FamilyGate.EDIT_IN_SUPPORT: replace(family, gold=replace(gold, support_ids=(*support, spare), proof=())),
        FamilyGate.SAME_EVIDENCE: with_question(evidence=other),
        FamilyGate.QUESTION_CHANGED: with_question(question=f"{gold.question} "),
        FamilyGate.NO_ANSWER_LEAK: with_question(question=f"{question_edit.view.question} {question_edit.view.answer}"),
    }
    if first:
        changed = Trace((Step("Something else is so."), *steps[1:]))
        families[FamilyGate.SHARED_PREFIX] = with_edit(trace=changed)
    same = Trace((*steps[:first], gold.trace.steps[first], *steps[first + 1 :]))
    families[FamilyGate.FIRST_DIVERGENCE] = with_edit(trace=same)
    return families


# --- tables ------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=12, help="sources of each profile")
    count = parser.parse_args().sources
    tried = [(case, build(case)) for case in cases(count)]
    through = sum(outcome.wrong for _, outcome in tried)
    print_catchers(tried)
    needed = print_mutants(tried)
    by_hand = print_by_hand(count)
    gates = {*CHECKS, *(f"gates: {gate.value}" for gate in FamilyGate)}
    missing = sorted(gates - needed - by_hand)
    print(f"not shown to be needed: {', '.join(missing) or 'none'}")
    return print_result(
        name="gates and checks without which a planted bad family gets through",
        value=len(gates) - len(missing),
        unit=f"of {len(gates)}; {through} of {len(tried):,} planted defects pass all of them",
        goal=f"{len(gates)}; 0",
        holds=not missing and not through,
    )


def print_catchers(tried: list[tuple[Case, CaseOutcome]]) -> None:
    """Print which check refused each kind of defect first; where none could be planted, a good family was built."""
    print(f"{len(tried):,} cases; planted defect -> who refused it first")
    for kind in dict.fromkeys(case.defect for case, _ in tried):
        catchers = Counter(_describe(outcome) for case, outcome in tried if case.defect == kind)
        print(f"  {kind:34} {_listed(catchers)}")
    alone = Counter(
        (outcome.catcher, outcome.objections[0])
        for _, outcome in tried
        if outcome.catcher and len(outcome.objections) == 1
    )
    print("judgements that objected alone")
    for (role, name), times in sorted(alone.items()):
        print(f"  {role:16} {name:28} {times}")


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{who} {times}" for who, times in counts.most_common()) or "none"


def _describe(outcome: CaseOutcome) -> str:
    return outcome.catcher or ("WRONG FAMILY" if outcome.wrong else "(not planted: a good family)")


def print_mutants(tried: list[tuple[Case, CaseOutcome]]) -> set[str]:
    """Print what becomes of each catcher's cases without it; return those without which a wrong family passes."""
    print("taken away -> what becomes of the cases it refused")
    needed = set()
    for catcher in sorted({str(outcome.catcher) for _, outcome in tried if outcome.catcher}):
        if catcher not in CHECKS and not catcher.startswith("gates: "):
            continue  # the constructor gives up, or code cannot make a view of it: there is nothing to let through
        cases = [case for case, outcome in tried if outcome.catcher == catcher]
        with without_catcher(catcher):
            outcomes = [build(case) for case in cases]
        wrong = sum(outcome.wrong for outcome in outcomes)
        later = Counter(_describe(outcome) for outcome in outcomes if outcome.family is None)
        print(f"  {catcher:32} {len(cases):4} cases, {wrong:4} wrong families; refused later: {_listed(later)}")
        if wrong:
            needed.add(catcher)
    return needed


def print_by_hand(count: int) -> set[str]:
    """Print and return the gates that alone refuse some family broken by hand."""
    from eclose_world.make.families import make_world_families  # noqa: PLC0415 - for this table alone

    alone: Counter[str] = Counter()
    for profile in PROFILES:
        for family in islice(make_world_families(profile, SEED), count):
            for gate, wrong in break_family(family).items():
                if {failure.gate for failure in check_family(wrong)} == {gate}:
                    alone[f"gates: {gate.value}"] += 1
    print("families broken by hand that one gate alone refuses")
    for gate in FamilyGate:
        print(f"  {gate.value:24} {alone[f'gates: {gate.value}']}")
    return set(alone)


if __name__ == "__main__":
    sys.exit(main())
