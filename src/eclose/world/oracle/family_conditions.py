"""The conditions of appendix B, decided from words: a function for each role that checks, a label for each judgement.

Names are those of the replies (``protocol.acceptance``). A label is None where the oracle cannot read what it would
have to rest on; it does not guess. :func:`defects` holds a whole family against all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.core.answers import contains_span, normalize_answer
from eclose.core.gates import MINIMUM_SUPPORT
from eclose.core.instance import Instance
from eclose.core.response import Response, Trace
from eclose.core.three_valued import Label, conjunction
from eclose.protocol.acceptance import SOUNDNESS, ACCEPTANCE_CONDITIONS
from eclose.protocol.construction import ConstructionRole, SeedDefect
from eclose.world.language.phrases import PRONOUNS, CommonDoer, Phrase
from eclose.world.language.questions import NO, YES, ChoiceQuestion, LookupQuestion, Target, read_question
from eclose.world.language.values import read_answer_value
from eclose.world.oracle import edit_effects
from eclose.world.oracle.answer_equality import is_same_answer
from eclose.world.oracle.evidence import read_evidence
from eclose.world.oracle.judge import judge
from eclose.world.oracle.soundness import judge_steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.core.family import EvidenceEdit, Family, View
    from eclose.core.instance import Passage
    from eclose.world.oracle.evidence import Derivation

Passages = tuple["Passage", ...]
MAX_ANSWER_WORDS = 10
"""Words of a short answer."""


@dataclass(frozen=True, slots=True)
class ReasonedAnswer:
    """A response: reasoning and answer."""

    trace: Trace
    answer: str


@dataclass(frozen=True, slots=True)
class ConditionLabels:
    """What is said of a candidate, judgement by judgement."""

    labels: Mapping[str, Label]
    steps: tuple[Label, ...] | None = None
    """For each step whether it is sound; None where no steps are judged."""

    @property
    def readable(self) -> bool:
        """Whether everything was decided."""
        return None not in self.labels.values() and None not in (self.steps or ())

    def objections(self, role: ConstructionRole) -> Iterator[str]:
        """What does not come out as wanted, the unreadable included."""
        for number, sound in enumerate(self.steps or (), start=1):
            if not sound:
                yield f"{'cannot read' if sound is None else SOUNDNESS}: step {number}"
        for name, wanted in ACCEPTANCE_CONDITIONS[role].items():
            if (label := self.labels[name]) is not wanted:
                yield f"cannot read: {name}" if label is None else name


# What passages warrant.


def find_derivations(question: str, passages: Passages) -> list[Derivation] | None:
    """Every answer that the passages give to a question; None when it cannot be read."""
    target = read_question(question)
    return None if target is None else read_evidence(passages).answers(target)


def is_warranted(question: str, passages: Passages, answer: str) -> Label:
    """W: the passages warrant the answer, under any name they give it."""
    found = find_derivations(question, passages)
    if found is None:
        return None
    if any(_is(answer, way, passages) for way in found):
        return True
    return None if read_evidence(passages).unread else False


def is_only_answer(question: str, passages: Passages, answer: str) -> Label:
    """That the passages warrant no answer that excludes this one."""
    found = find_derivations(question, passages)
    if found is None:
        return None
    if not all(_is(answer, way, passages) for way in found):
        return False
    return None if read_evidence(passages).unread else True


def _is(answer: str, way: Derivation, passages: Passages) -> bool:
    return is_same_answer(answer, way.value) or read_evidence(passages).same(read_answer_value(answer), way.value)


def label_steps(question: str, passages: Passages, trace: Trace) -> tuple[Label, ...]:
    """J: whether each step is warranted by the passages; a step that claims nothing is."""
    target = read_question(question)
    steps, _, _ = judge_steps(passages, trace, target.options if isinstance(target, ChoiceQuestion) else ())
    return tuple(True if step.substantive is False else step.sound for step in steps)


def is_aligned(question: str, trace: Trace) -> Label:
    """A: the trace goes after what the question asks, seen from the two of them alone."""
    return judge(Instance("", question, ()), Response("", "", trace, None)).aligned


def is_closed(question: str, trace: Trace, answer: str) -> Label:
    """C: the trace establishes the answer; for one that is after something else, what that comes to."""
    return judge(Instance("", question, ()), Response("", "", trace, answer)).closed


# One function for each role.


@dataclass(frozen=True, slots=True)
class SourceScreening:
    """What is said of a source."""

    support: tuple[int, ...]
    judged: ConditionLabels
    defect: SeedDefect | None


def screen_source(question: str, passages: Passages, accepted: Sequence[str]) -> SourceScreening:
    """B.2: the support of the reference, whether it follows from it, alone, and from nothing else."""
    found = find_derivations(question, passages) or []
    meant = [way for way in found if any(_is(answer, way, passages) for answer in accepted)]
    support = tuple(sorted((meant or found)[0].support)) if found else ()
    rest = tuple(passage for place, passage in enumerate(passages) if place not in support)
    needed = tuple(passages[place] for place in support)
    labels = {
        "warranted": _any_warranted(question, needed, accepted),
        "unique": conjunction((bool(meant), _any_alone(question, passages, accepted))),
        "elsewhere": _any_warranted(question, rest, accepted),
    }
    defect = _defect(question, passages, accepted, found, meant)
    if read_question(question) is None:
        labels = dict.fromkeys(labels, False)
    return SourceScreening(support, ConditionLabels(labels), defect)


def _any_warranted(question: str, passages: Passages, accepted: Sequence[str]) -> Label:
    found = [is_warranted(question, passages, answer) for answer in accepted]
    return True if True in found else None if None in found else False


def _any_alone(question: str, passages: Passages, accepted: Sequence[str]) -> Label:
    found = [is_only_answer(question, passages, answer) for answer in accepted]
    return True if True in found else None if None in found else False


def _defect(
    question: str, passages: Passages, accepted: Sequence[str], found: list[Derivation], meant: list[Derivation]
) -> SeedDefect | None:
    """The one thing that is wrong with a source, if something is."""
    target = read_question(question)
    if target is None:
        return SeedDefect.MALFORMED
    if len(accepted[0].split()) > MAX_ANSWER_WORDS:
        return SeedDefect.LONG_ANSWER
    if len(found) > 1:
        return SeedDefect.UNDERDETERMINED
    if found:
        return None if meant else SeedDefect.UNSUPPORTED_REFERENCE
    return SeedDefect.BROKEN_LINK if _of_another(target, passages, accepted) else SeedDefect.UNDERDETERMINED


def _of_another(target: Target, passages: Passages, accepted: Sequence[str]) -> bool:
    """Whether somebody has what is asked for, without a passage that joins them to the question."""
    if not isinstance(target, LookupQuestion) or not target.phrase.path:
        return False
    told = (one for reading in read_evidence(passages).readings for one in reading.statements)
    values = [one.value for one in told if one.relation is target.phrase.path[-1]]
    return any(is_same_answer(answer, value) for answer in accepted for value in values)


def check_target(
    question: str, passages: Passages, support: Sequence[int], told: ReasonedAnswer
) -> tuple[ConditionLabels, list[int]]:
    """B.3: L, A, C and R_E, and the numbers of the steps that hold by passages outside the support alone.

    Every step that claims something counts as needed: no more of them are asked for than are.
    """
    steps = label_steps(question, passages, told.trace)
    inside = label_steps(question, tuple(passages[place] for place in support), told.trace)
    pairs = enumerate(zip(steps, inside, strict=True), start=1)
    outside = [number for number, (anywhere, here) in pairs if anywhere and here is False]
    labels = {
        "alignment.aligned": is_aligned(question, told.trace),
        "closure.closed": is_closed(question, told.trace, told.answer),
        "grounding.grounded": not outside,
    }
    return ConditionLabels(labels, steps), outside


def screen_edit(question: str, before: Passages, place: int, edited: Passage, answer: str, new: str) -> ConditionLabels:
    """B.4 without traces: one claim changed, and the answer with it."""
    after, target = replace_passage(before, place, edited), read_question(question)
    return ConditionLabels(
        {
            "localized": edit_effects.is_localized(before[place], edited),
            "coherent": edit_effects.is_coherent(before, after, place),
            "edited_after": is_warranted(question, after, new),
            "unique_after": is_only_answer(question, after, new),
            "original_after": is_warranted(question, after, answer),
            "edited_before": is_warranted(question, before, new),
            "same_kind": None if target is None else edit_effects.is_same_kind(target, answer, new),
        }
    )


def replace_passage(passages: Passages, place: int, edited: Passage) -> Passages:
    """The passages with one of them in another form."""
    return (*passages[:place], edited, *passages[place + 1 :])


def check_edit(
    question: str, before: Passages, after: Passages, gold: ReasonedAnswer, new: ReasonedAnswer, first: int
) -> ConditionLabels:
    """B.4 with traces: the steps switch at the first affected one, counted from zero, and so does closure."""
    ours, theirs = label_steps(question, before, gold.trace), label_steps(question, after, new.trace)
    crossed, back = label_steps(question, after, gold.trace), label_steps(question, before, new.trace)
    labels = {
        "prefix.before": conjunction(ours[:first]),
        "prefix.after": conjunction(crossed[:first]),
        "switching.original_before": _at(ours, first),
        "switching.original_after": _at(crossed, first),
        "switching.edited_before": _at(back, first),
        "switching.edited_after": _at(theirs, first),
        "alignment.aligned": is_aligned(question, new.trace),
        "closure.original": is_closed(question, gold.trace, gold.answer),
        "closure.edited": is_closed(question, new.trace, new.answer),
        "closure.original_to_edited": is_closed(question, gold.trace, new.answer),
        "closure.edited_to_original": is_closed(question, new.trace, gold.answer),
    }
    return ConditionLabels(labels, theirs)


def _at(labels: Sequence[Label], place: int) -> Label:
    """A step that is not there was not judged."""
    return labels[place] if 0 <= place < len(labels) else None


def screen_question(question: str, edited: str, passages: Passages, answer: str, new: str) -> ConditionLabels:
    """B.5 without traces: something else is asked, and each question has its own answer."""
    old_target, target = read_question(question), read_question(edited)
    found = find_derivations(edited, passages)
    facts = min((len(way.hops) for way in found), default=0) if found is not None else 0
    return ConditionLabels(
        {
            "changed": None if old_target is None or target is None else _asks(old_target) != _asks(target),
            "edited_warranted": is_warranted(edited, passages, new),
            "edited_unique": is_only_answer(edited, passages, new),
            "original_fits_edited": is_warranted(edited, passages, answer),
            "edited_fits_original": is_warranted(question, passages, new),
            "natural": None if target is None else _is_plain(target, passages),
            "several_steps": None if target is None else facts > 1,
            "degenerate": None if target is None else _is_degenerate(target, edited, new),
        }
    )


def _asks(target: Target) -> object:
    """What is asked for, whatever the words and whichever of two sides comes first."""
    if isinstance(target, LookupQuestion):
        return _bare(target.phrase)
    sides = frozenset(_bare(phrase) for phrase in target.phrases())
    return type(target), sides, target.least if isinstance(target, ChoiceQuestion) else None


def _bare(phrase: Phrase) -> Phrase:
    base = CommonDoer(tuple(sorted(phrase.base.deeds, key=str))) if isinstance(phrase.base, CommonDoer) else phrase.base
    return Phrase(base, phrase.path)


def _is_plain(target: Target, passages: Passages) -> bool:
    """Whether it says whom it means: no pronoun, and no name that two of the same kind bear."""
    phrases = (target.phrase,) if isinstance(target, LookupQuestion) else target.phrases()
    evidence = read_evidence(passages)
    for phrase in phrases:
        if isinstance(phrase.base, CommonDoer):
            continue
        if phrase.base in PRONOUNS or len(evidence.referents(phrase.base, phrase.start_type or "")) > 1:
            return False
    return True


def _is_degenerate(target: Target, question: str, answer: str) -> bool:
    """Whether it names its answer without offering it, or compares a thing with itself."""
    if not isinstance(target, LookupQuestion):
        one, other = target.phrases()
        return _bare(one) == _bare(other)
    words = normalize_answer(answer)
    return words not in {(YES,), (NO,)} and contains_span(normalize_answer(question), words)


def check_question(
    question: str, edited: str, passages: Passages, gold: ReasonedAnswer, new: ReasonedAnswer
) -> ConditionLabels:
    """B.5 with traces: each goes after its own question, and the new one establishes its answer."""
    labels = {
        "alignment.original": is_aligned(question, gold.trace),
        "alignment.edited": is_aligned(edited, new.trace),
        "alignment.edited_to_original": is_aligned(question, new.trace),
        "alignment.original_to_edited": is_aligned(edited, gold.trace),
        "closure.closed": is_closed(edited, new.trace, new.answer),
    }
    return ConditionLabels(labels, label_steps(edited, passages, new.trace))


# Whole families.


def find_family_defects(family: Family) -> tuple[str, ...]:
    """What is wrong with a family by the oracle, from its words alone; nothing for a correct one."""
    return tuple(_defects(family))


def _defects(family: Family) -> Iterator[str]:
    source, gold = family.source, family.gold
    yield from (f"source: {one}" for one in find_source_defects(source))
    yield from (f"gold: {one}" for one in find_gold_defects(source, gold))
    if not family.evidence_edits:
        yield "there is no evidence edit"
    for number, edit in enumerate(family.evidence_edits, start=1):
        yield from (f"evidence edit {number}: {one}" for one in find_evidence_edit_defects(gold, edit))
    yield from (f"question edit: {one}" for one in find_question_edit_defects(gold, family.question_edit.view))


def find_source_defects(source: Instance) -> Iterator[str]:
    """What is wrong with a source: all of B.2."""
    if source.reference_answer is None:
        yield "there is no reference"
        return
    screened = screen_source(source.question, source.evidence, source.accepted_answers)
    yield from screened.judged.objections(ConstructionRole.SCREEN_SEED)
    if screened.defect is not None:
        yield str(screened.defect)
    if len(screened.support) < MINIMUM_SUPPORT:
        yield "support"


def find_gold_defects(source: Instance, gold: View) -> Iterator[str]:
    """What is wrong with the original response: all of B.3."""
    if (gold.question, gold.evidence) != (source.question, source.evidence):
        yield "another question or other passages than the source's"
    if (right := is_warranted(gold.question, gold.evidence, gold.answer)) is not True:
        yield "cannot read: answer" if right is None else "answer"
    judged, _ = check_target(gold.question, gold.evidence, _places(gold), _told(gold))
    yield from judged.objections(ConstructionRole.VERIFY_TARGET)


def find_evidence_edit_defects(gold: View, edit: EvidenceEdit) -> Iterator[str]:
    """What is wrong with an edit of the evidence: all of B.4."""
    view, before, after = edit.view, gold.evidence, edit.view.evidence
    if view.question != gold.question:
        yield "another question"
    moved = [place for place, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]]
    if len(moved) != 1 or len(before) != len(after) or after[moved[0]].title != before[moved[0]].title:
        yield "not one changed passage"
        return
    place = moved[0]
    if place not in _places(gold):
        yield "an edit outside the support"
    yield from screen_edit(gold.question, before, place, after[place], gold.answer, view.answer).objections(
        ConstructionRole.SCREEN_EVIDENCE
    )
    if gold.trace.steps[: edit.first_affected_step] != view.trace.steps[: edit.first_affected_step]:
        yield "no shared beginning"
    yield from check_edit(gold.question, before, after, _told(gold), _told(view), edit.first_affected_step).objections(
        ConstructionRole.VERIFY_EVIDENCE
    )


def find_question_edit_defects(gold: View, view: View) -> Iterator[str]:
    """What is wrong with an edit of the question: all of B.5."""
    if view.evidence != gold.evidence:
        yield "other passages"
    screened = screen_question(gold.question, view.question, gold.evidence, gold.answer, view.answer)
    yield from screened.objections(ConstructionRole.SCREEN_QUESTION)
    checked = check_question(gold.question, view.question, gold.evidence, _told(gold), _told(view))
    yield from checked.objections(ConstructionRole.VERIFY_QUESTION)


def _told(view: View) -> ReasonedAnswer:
    return ReasonedAnswer(view.trace, view.answer)


def _places(view: View) -> tuple[int, ...]:
    return tuple(place for place, passage in enumerate(view.evidence) if passage.id in view.support_ids)
