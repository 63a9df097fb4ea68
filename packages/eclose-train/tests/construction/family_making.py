"""A family with everything that can be told of one: two edits, proofs, interventions, findings, provenance."""

from __future__ import annotations

from dataclasses import replace

from eclose.values.family import (
    EvidenceEdit,
    Family,
    FamilyFinding,
    FamilyProvenance,
    PassageIntervention,
    ProofStep,
    QuestionEdit,
    TextReplacement,
    View,
    ViewKind,
)
from eclose.values.instance import Instance, Passage
from eclose.values.response import Trace
from eclose_train.construction.candidates import parse_evidence_edit, parse_question_edit
from eclose_train.construction.questions import ConstructionRole
from eclose_train.construction.roles import parse_check_reply
from tests.construction.test_candidates import GOLD, QUESTION, SOURCE, VARIATION, step
from tests.construction.test_check_replies import good

ANOTHER = VARIATION | {
    "passage": 0, "claim": "Blue Harbour is a 1994 film directed by Ana Ruiz.", "first": 1, "answer": "Lima",
    "keep": [], "replacements": [{"old": "Ana Ruiz", "new": "Bo Lund"}],
    "steps": [step("Blue Harbour was directed by Bo Lund.", [0]), step("Bo Lund grew up in Lima.", [], [1])],
}  # fmt: skip
SOUND = {ConstructionRole.VERIFY_TARGET: 3, ConstructionRole.VERIFY_EVIDENCE: 3, ConstructionRole.VERIFY_QUESTION: 2}
"""How many steps each was to judge."""


def finding(
    role: ConstructionRole, judge: str = "house/judge", *, again: bool = False, **other: object
) -> FamilyFinding:
    """What somebody said who had nothing against it, but for what is given."""
    reply = good(role) | other
    if (steps := SOUND.get(role)) and SOUND_KEY not in other:
        entry = reply[SOUND_KEY]["steps"][-1]
        reply[SOUND_KEY] = {"steps": [{**entry, "id": number + 1, "sound": True} for number in range(steps)]}
    return parse_check_reply(role, judge, reply, passages=10, steps=steps, support=(0, 3), again=again)


SOUND_KEY = "soundness"
FINDINGS = (
    finding(ConstructionRole.SCREEN_SEED),
    finding(ConstructionRole.VERIFY_TARGET),
    replace(finding(ConstructionRole.SCREEN_EVIDENCE), edit=0),
    replace(finding(ConstructionRole.VERIFY_EVIDENCE), edit=0),
    replace(
        finding(ConstructionRole.SCREEN_EVIDENCE, original_after=True, reason="the Arica Prize still points at Arica"),
        edit=1,
    ),
    replace(finding(ConstructionRole.VERIFY_EVIDENCE), edit=1),
    finding(ConstructionRole.SCREEN_QUESTION),
    finding(ConstructionRole.VERIFY_QUESTION),
    finding(ConstructionRole.VERIFY_QUESTION, "house/second", again=True),
)


def full_family() -> Family:
    """Two edits of the evidence, one of the question, everything said."""
    first, second = (parse_evidence_edit(GOLD, draft) for draft in (VARIATION, ANOTHER))
    assert isinstance(first, EvidenceEdit)
    assert isinstance(second, EvidenceEdit)
    source = replace(SOURCE, benchmark="harbours", kind="bridge", hops=2, aliases=("Arica, Chile",))
    provenance = FamilyProvenance(
        "maker/large", "house/judge", "sha256:0123", {"target": 1, "evidence": 2}, "house/second"
    )
    question = parse_question_edit(GOLD, QUESTION)
    return Family("family-q", source, GOLD, (first, second), question, FINDINGS, provenance)


def hostile_family(number: int, text: str) -> Family:
    """A family in which every text is hostile."""
    other = f"{text} {number}"
    evidence = (Passage(text, text, f"{text} then {text}"), Passage("1", other, text))
    edited = (replace(evidence[0], title=other, text=f"{other} then {text}"), evidence[1], Passage(other, text, text))
    proof = (ProofStep((text, other, "1")), ProofStep((), (0,)))
    gold = View(ViewKind.GOLD, text, evidence, Trace.of(text, other), text, (text, text), proof)
    swapped = View(ViewKind.EVIDENCE_CF, other, edited, Trace.of(text, f"{other} so"), other, (text, "x"), proof)
    question_view = View(ViewKind.QUESTION_CF, other, evidence[:1], Trace.of(other), other, (), ())
    change = PassageIntervention(text, (TextReplacement(text, other),), (text,))
    reply = {text: True, "reason": text, "part": {text: text, "reason": text, "steps": [{"id": text, text: [text]}]}}
    return Family(
        f"{text}#{number}",
        Instance(f"{text}#{number}", text, evidence, text, (text,), benchmark=text, kind=text),
        gold,
        (EvidenceEdit(swapped, text, 1, change),),
        QuestionEdit(question_view, text),
        (FamilyFinding(text, text, reply, (text,)), FamilyFinding(ConstructionRole.SCREEN_SEED, text, reply)),
        FamilyProvenance(text, text, text, {text: 1}, text),
    )
