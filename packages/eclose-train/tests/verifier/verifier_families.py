"""A small family, for tests of rows and training."""

from __future__ import annotations

from eclose import Family, Instance, Passage, Trace
from eclose.values.family import EvidenceEdit, ProofStep, QuestionEdit, View, ViewKind

QUESTION = "Where was the director of Moonstruck born?"
CROSSED_QUESTION = "Where was the writer of Moonstruck born?"
PROOF = (ProofStep(("p1",)), ProofStep(("p2",)), ProofStep((), (0, 1)))


def make_view(
    kind: ViewKind, question: str, person: str, city: str, evidence: tuple[Passage, ...], role: str = "directed"
) -> View:
    trace = Trace.of(
        f"{person} {role} Moonstruck [1].", f"{person} was born in {city}.", f"Thus, the answer is {city}."
    )
    return View(kind, question, evidence, trace, city, ("p1", "p2"), PROOF)


def make_family(name: str = "f1") -> Family:
    evidence = (
        Passage("p1", "Moonstruck", "Norman Jewison directed Moonstruck."),
        Passage("p2", "Norman Jewison", "He was born in Toronto."),
    )
    edited = (evidence[0], Passage("p2", "Norman Jewison", "He was born in Ottawa."))
    gold = make_view(ViewKind.GOLD, QUESTION, "Norman Jewison", "Toronto", evidence)
    evidence_edit = EvidenceEdit(
        make_view(ViewKind.EVIDENCE_CF, QUESTION, "Norman Jewison", "Ottawa", edited), "p2", first_affected_step=1
    )
    question_edit = make_view(ViewKind.QUESTION_CF, CROSSED_QUESTION, "John Shanley", "New York", evidence, "wrote")
    source = Instance("q1", QUESTION, evidence, "Toronto", aliases=("City of Toronto",))
    return Family(name, source, gold, (evidence_edit,), QuestionEdit(question_edit))
