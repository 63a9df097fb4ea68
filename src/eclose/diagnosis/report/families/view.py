"""A family -> what is shown of it: its views beside each other, and in each the words that differ from Gold.

Pure: the page and the terminal are made from the values here. Shows whatever is in a record, also one that fails a
gate, since that is the one somebody wants to look at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.core.edits import Replacement
from eclose.core.gates import check_family
from eclose.diagnosis.report.families.findings import FindingDisplay, display_findings
from eclose.diagnosis.report.word_diff import (
    MarkedText,
    diff_words,
    is_changed,
    mark_new,
    mark_same,
    match_counterparts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.core.family import EvidenceEdit, Family, FamilyProvenance, QuestionEdit, View
    from eclose.core.instance import Passage

GOLD, EVIDENCE, QUESTION = "Gold", "Evidence-CF", "Question-CF"


@dataclass(frozen=True, slots=True)
class PassageReference:
    """A passage that somebody names: its index among the passages, as models see it, and its title."""

    index: int | None
    """None where there is no such passage."""
    title: str

    def __str__(self) -> str:
        """``[6] Ana Ruiz``."""
        return f"[{'?' if self.index is None else self.index}] {self.title}".rstrip()


@dataclass(frozen=True, slots=True)
class StepDisplay:
    """One step, and what it rests on."""

    number: int
    words: MarkedText
    counterpart: int | None
    """The number of the step of Gold that it stands for; None for a step of its own."""
    passages: tuple[PassageReference, ...]
    premises: tuple[int, ...]
    """Numbers of earlier steps."""
    known: bool
    """Whether it is known what the step rests on."""
    first_affected: bool = False

    @property
    def taken_over(self) -> bool:
        """Whether it stands word for word in Gold."""
        return self.counterpart is not None and not is_changed(self.words)


@dataclass(frozen=True, slots=True)
class ChangeDisplay:
    """What was done to make a view."""

    passage: PassageReference | None = None
    claim: str = ""
    replacements: tuple[Replacement, ...] = ()
    keep: tuple[str, ...] = ()
    component: str = ""
    """What was changed in the question, in a few words."""
    told: bool = True
    """Whether anybody says which claim of the passage was changed."""


@dataclass(frozen=True, slots=True)
class ViewDisplay:
    """One view."""

    name: str
    question: MarkedText
    steps: tuple[StepDisplay, ...]
    answer: MarkedText
    support: tuple[PassageReference, ...]
    left_out: tuple[int, ...] = ()
    """Numbers of the steps of Gold that have no counterpart here."""
    change: ChangeDisplay | None = None
    """None for Gold."""


@dataclass(frozen=True, slots=True)
class PassageVersion:
    """A passage as it stands in some view, held against Gold."""

    view: str
    title: MarkedText
    text: MarkedText


@dataclass(frozen=True, slots=True)
class PassageDisplay:
    """A passage, once, with what is different elsewhere."""

    index: int
    title: str
    text: str
    notes: tuple[str, ...]
    """Which views rest on it, and where it was changed."""
    versions: tuple[PassageVersion, ...] = ()
    """Where it differs from Gold; none where it is the same everywhere."""

    @property
    def matters(self) -> bool:
        """Whether an answer rests on it, or it differs between the views."""
        return bool(self.notes)


@dataclass(frozen=True, slots=True)
class FamilyDisplay:
    """All that is shown of a family."""

    id: str
    facts: tuple[tuple[str, str], ...]
    """Where it comes from: name and value."""
    views: tuple[ViewDisplay, ...]
    passages: tuple[PassageDisplay, ...]
    findings: tuple[FindingDisplay, ...]
    provenance: tuple[tuple[str, str], ...]
    """Who built it and who checked it; empty for a family made elsewhere."""
    failures: tuple[str, ...]
    """Gates that it fails."""

    @property
    def matter(self) -> tuple[PassageDisplay, ...]:
        """The passages that matter."""
        return tuple(passage for passage in self.passages if passage.matters)

    @property
    def others(self) -> tuple[PassageDisplay, ...]:
        """The other passages."""
        return tuple(passage for passage in self.passages if not passage.matters)


def make_family_display(family: Family) -> FamilyDisplay:
    """Everything about a family, ready to be read."""
    names = view_names(family)
    edits, question = family.evidence_edits, family.question_edit
    views = (
        _view(GOLD, family.gold, None),
        *(
            _view(name, edit.view, family.gold, _evidence_change(edit), edit.first_affected_step)
            for name, edit in zip(names[1:], edits, strict=False)
        ),
        _view(QUESTION, question.view, family.gold, _question_change(question)),
    )
    return FamilyDisplay(
        family.id,
        tuple(_facts(family)),
        views,
        tuple(_passages(family, names)),
        display_findings(family, names[1:-1]),
        tuple(_provenance(family.provenance)) if family.provenance else (),
        tuple(map(str, check_family(family))),
    )


def view_names(family: Family) -> tuple[str, ...]:
    """The names of the views in order. Edits of the evidence are numbered where there are several."""
    count = len(family.evidence_edits)
    edits = (EVIDENCE,) if count == 1 else tuple(f"{EVIDENCE} {number}" for number in range(1, count + 1))
    return (GOLD, *edits, QUESTION)


def _facts(family: Family) -> Iterator[tuple[str, str]]:
    source = family.source
    yield "source", source.id
    yield "dataset", source.benchmark or "unknown"
    if source.kind:
        yield "kind", source.kind
    if source.hops is not None:
        yield "hops", str(source.hops)
    yield "reference", source.reference_answer if source.reference_answer is not None else "none"
    if source.aliases:
        yield "also accepted", " · ".join(source.aliases)


def _provenance(told: FamilyProvenance) -> Iterator[tuple[str, str]]:
    yield "constructor", told.constructor
    yield "verifier", told.verifier
    yield "verified again by", told.reverifier if told.reverifier is not None else "nobody"
    yield "attempts", ", ".join(f"{part} {count}" for part, count in told.attempts.items()) or "not counted"
    yield "guidelines", told.guidelines


# One view.


def _view(
    name: str, view: View, gold: View | None, change: ChangeDisplay | None = None, first: int | None = None
) -> ViewDisplay:
    ours, theirs = view.trace.texts, gold.trace.texts if gold else ()
    pairs = match_counterparts(theirs, ours) if gold else list(range(len(ours)))
    steps = (_step(view, place, theirs, pair, first if gold else None) for place, pair in enumerate(pairs))
    return ViewDisplay(
        name,
        diff_words(gold.question, view.question) if gold else mark_same(view.question),
        tuple(steps),
        diff_words(gold.answer, view.answer) if gold else mark_same(view.answer),
        _references(view.evidence, view.support_ids),
        tuple(number for number in range(1, len(theirs) + 1) if number - 1 not in pairs),
        change,
    )


def _step(view: View, place: int, gold: Sequence[str], pair: int | None, first: int | None) -> StepDisplay:
    text = view.trace.texts[place]
    known = place < len(view.proof)
    return StepDisplay(
        place + 1,
        _held_against(gold, text, pair),
        None if pair is None else pair + 1,
        _references(view.evidence, view.proof[place].passage_ids) if known else (),
        tuple(premise + 1 for premise in view.proof[place].premises) if known else (),
        known,
        place == first,
    )


def _held_against(gold: Sequence[str], text: str, pair: int | None) -> MarkedText:
    if pair is None:
        return mark_new(text)
    return diff_words(gold[pair], text) if gold else mark_same(text)


def _evidence_change(edit: EvidenceEdit) -> ChangeDisplay:
    (passage,) = _references(edit.view.evidence, (edit.passage_id,))
    told = edit.intervention
    if told is None:
        return ChangeDisplay(passage, told=False)
    return ChangeDisplay(passage, told.claim, told.replacements, told.keep)


def _question_change(edit: QuestionEdit) -> ChangeDisplay:
    return ChangeDisplay(component=edit.component or "")


def _references(evidence: Sequence[Passage], ids: Sequence[str]) -> tuple[PassageReference, ...]:
    """The passages with these ids; an id that is none of theirs is kept as it is."""
    places = {passage.id: index for index, passage in reversed(list(enumerate(evidence)))}
    return tuple(
        PassageReference(places[id_], evidence[places[id_]].title) if id_ in places else PassageReference(None, id_)
        for id_ in ids
    )


# The passages.


def _passages(family: Family, names: Sequence[str]) -> Iterator[PassageDisplay]:
    """Those of Gold in their order, then those that only other views have."""
    views = tuple(zip(names, family.views, strict=True))
    for index, passage in enumerate(family.gold.evidence):
        yield _passage(index, passage, views)
    known = {passage.id for passage in family.gold.evidence}
    for name, view in views[1:]:
        for index, passage in enumerate(view.evidence):
            if passage.id not in known:
                version = PassageVersion(name, mark_new(passage.title), mark_new(passage.text))
                yield PassageDisplay(index, passage.title, passage.text, (f"only in {name}",), (version,))


def _passage(index: int, passage: Passage, views: Sequence[tuple[str, View]]) -> PassageDisplay:
    versions, absent = [], []
    for name, view in views[1:]:
        other = next((one for one in view.evidence if one.id == passage.id), None)
        if other is None:
            absent.append(name)
        elif other != passage:
            title = diff_words(passage.title, other.title)
            versions.append(PassageVersion(name, title, diff_words(passage.text, other.text)))
    supported = [name for name, view in views if passage.id in view.support_ids]
    everywhere = len(supported) == len(views)
    notes = (
        *([f"supports {'every view' if everywhere else ', '.join(supported)}"] if supported else ()),
        *([f"changed in {', '.join(version.view for version in versions)}"] if versions else ()),
        *([f"not in {', '.join(absent)}"] if absent else ()),
    )
    return PassageDisplay(index, passage.title, passage.text, notes, tuple(versions))
