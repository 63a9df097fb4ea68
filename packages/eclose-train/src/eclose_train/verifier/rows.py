"""Labelled rows for the heads of a verifier, made from counterfactual families.

A family gives pairs for free: the parts of one view belong together, the parts of two views do not. An edit is a change
of the text itself and is named by what it does, never by the label that follows. It must occur under both labels of a
head, or not at all: a truncation seen only as "aligned" teaches that short traces are aligned.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose.values.answers import match_answer, normalize_answer
from eclose_train.verifier.linear import VerifierHead, VerifierInput
from eclose_train.verifier.words import find_dates, find_names, find_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eclose.values.family import EvidenceEdit, Family, View

LEAST_LABEL_SHARE = 0.1
"""Smallest share of either label among the rows of an edit: a single counterexample would not keep a head from it."""


class RowEdit(StrEnum):
    """Changes of a text between a view and a row."""

    UNEDITED = "unedited"
    """Every part is that of a view, as it stands; the label says whether the parts belong together."""
    TRUNCATED = "truncated"
    """The trace is a beginning of a view's trace."""
    REPLACED_ANSWER = "replaced answer"
    """The answer is that of no view: a variant of the right one, or another name or value of the trace."""
    TRUNCATED_AND_REPLACED = "truncated, replaced answer"
    """Both: a variant of the right answer behind a beginning, or another name, such as the one that it reaches."""


class RowPairing(StrEnum):
    """Which part of a row belongs to another view than the trace."""

    MATCHED = "matched"
    CROSSED_QUESTION = "crossed question"
    CROSSED_ANSWER = "crossed answer"
    CROSSED_BOTH = "crossed question and answer"
    CROSSED_EVIDENCE = "crossed evidence"


@dataclass(frozen=True, slots=True)
class VerifierRow:
    """One labelled example for one head."""

    family_id: str
    head: VerifierHead
    edit: RowEdit
    label: bool
    """Whether the dependency holds."""
    input: VerifierInput
    """For the support head a single step with evidence; for the alignment head without an answer."""
    pairing: RowPairing = RowPairing.MATCHED


def build_verifier_rows(families: Iterable[Family], seed: int = 0) -> list[VerifierRow]:
    """Return the rows of all heads, in the order of the families; the same seed gives the same rows.

    Raises:
        UserError: An edit occurs under one label only.
    """
    rows = [
        row for family in families for row in _FamilyRows(family, Random(f"verifier rows/{seed}/{family.id}")).build()
    ]
    check_edits_under_both_labels(rows)
    return rows


def count_rows(rows: Iterable[VerifierRow]) -> Counter[tuple[VerifierHead, RowEdit, RowPairing, bool]]:
    """Count rows by head, edit, pairing and label."""
    return Counter((row.head, row.edit, row.pairing, row.label) for row in rows)


def check_edits_under_both_labels(rows: Iterable[VerifierRow]) -> None:
    """Raise UserError where either label is absent or rare among the rows of an edit, which gives the label away."""
    counts = Counter((row.head, row.edit, row.label) for row in rows)
    for head, edit in dict.fromkeys((head, edit) for head, edit, _ in counts):
        holds, fails = counts[head, edit, True], counts[head, edit, False]
        if min(holds, fails) < LEAST_LABEL_SHARE * (holds + fails):
            raise UserError(
                f"The rows of the {head} head with the edit '{edit}' are {holds:,} true and {fails:,} false. An edit"
                f" must occur under both labels (at least {LEAST_LABEL_SHARE:.0%} each), or the head learns the edit"
                " and not the dependency. Add families, or leave the edit out."
            )


class _FamilyRows:
    """Builds the rows of one family."""

    def __init__(self, family: Family, rng: Random) -> None:
        self.family = family
        self.rng = rng
        self.views = list(family.views)

    def build(self) -> Iterator[VerifierRow]:
        yield from self._alignment_rows()
        yield from self._closure_rows()
        for edit in self.family.evidence_edits:
            yield from self._support_rows(edit)

    def _row(
        self, head: VerifierHead, label: bool, row_input: VerifierInput, pairing: RowPairing, edit: RowEdit
    ) -> VerifierRow:
        return VerifierRow(
            family_id=self.family.id, head=head, edit=edit, label=label, input=row_input, pairing=pairing
        )

    def _closure_row(
        self, label: bool, row_input: VerifierInput, edit: RowEdit, pairing: RowPairing = RowPairing.MATCHED
    ) -> VerifierRow:
        return self._row(VerifierHead.CLOSURE, label, row_input, pairing, edit)

    # Alignment: the square of two questions and two traces, so that no question or trace gives its label away.

    def _alignment_rows(self) -> Iterator[VerifierRow]:
        gold, other = self.family.gold, self.family.question_edit.view
        for view, crossed in ((gold, other), (other, gold)):
            traces = [(view.trace.texts, RowEdit.UNEDITED)]
            length = self._draw_telling_length(view, crossed)
            if length is not None:
                traces.append((view.trace.texts[:length], RowEdit.TRUNCATED))
            for steps, edit in traces:
                for question, label, pairing in (
                    (view.question, True, RowPairing.MATCHED),
                    (crossed.question, False, RowPairing.CROSSED_QUESTION),
                ):
                    yield self._row(
                        VerifierHead.ALIGNMENT, label, VerifierInput(question, steps, answer=""), pairing, edit
                    )

    def _draw_telling_length(self, view: View, other: View) -> int | None:
        """Draw a length to cut a trace to, at which the rest still names something that the other trace does not.

        A shared beginning serves both questions, and would be labelled false against the other one wrongly.
        """
        texts = view.trace.texts
        mentioned = {name for text in (*other.trace.texts, other.question) for name in _mentions(text)}
        telling = [bool(_mentions(text) - mentioned) for text in texts]
        lengths = [length for length in range(1, len(texts)) if any(telling[:length])]
        return self.rng.choice(lengths) if lengths else None

    # Closure: it does not depend on the question, so crossed questions occur under both labels as well.

    def _closure_rows(self) -> Iterator[VerifierRow]:
        for number, view in enumerate(self.views):
            crossed = self._draw_other_answer(number)
            matched = VerifierInput(view.question, view.trace.texts, view.answer)
            for edit, row_input in (
                (RowEdit.UNEDITED, matched),
                (RowEdit.TRUNCATED, self._drop_conclusions(view, matched)),
            ):
                if row_input is None:
                    continue
                yield self._closure_row(True, row_input, edit)
                if crossed is not None:
                    yield self._closure_row(False, replace(row_input, answer=crossed), edit, RowPairing.CROSSED_ANSWER)
            yield from self._stopped_short(view, matched)
            yield from self._replaced_answers(view, matched)
            yield from self._reached_answers(view, matched)
        yield from self._crossed_question_closure()

    def _draw_other_answer(self, number: int) -> str | None:
        """Draw the answer of another view that differs from this view's; None where all match."""
        answer = self.views[number].answer
        others = [view.answer for view in self.views if not match_answer(view.answer, answer)]
        return self.rng.choice(others) if others else None

    def _crossed_question_closure(self) -> Iterator[VerifierRow]:
        """Yield rows with the question of the other view: closed with the trace's answer, open with the question's."""
        gold, other = self.family.gold, self.family.question_edit.view
        if match_answer(gold.answer, other.answer):
            return
        for view, crossed in ((gold, other), (other, gold)):
            row_input = VerifierInput(crossed.question, view.trace.texts, view.answer)
            yield self._closure_row(True, row_input, RowEdit.UNEDITED, RowPairing.CROSSED_QUESTION)
            row_input = replace(row_input, answer=crossed.answer)
            yield self._closure_row(False, row_input, RowEdit.UNEDITED, RowPairing.CROSSED_BOTH)

    def _drop_conclusions(self, view: View, matched: VerifierInput) -> VerifierInput | None:
        """Cut a trace behind its last fact, which leaves the answer established; None without such conclusions."""
        last_fact = _find_last_fact(view)
        if last_fact is None or last_fact + 1 >= len(view.trace):
            return None
        length = self.rng.randint(last_fact + 1, len(view.trace) - 1)
        return replace(matched, steps=view.trace.texts[:length])

    def _stopped_short(self, view: View, matched: VerifierInput) -> Iterator[VerifierRow]:
        """Yield the trace cut before a fact that the proof needs, with the right answer."""
        last_fact = _find_last_fact(view)
        # Without dropped conclusions of other rows the cut would occur under one label alone.
        if last_fact is None or last_fact == 0 or last_fact + 1 >= len(view.trace):
            return
        steps = view.trace.texts[: self.rng.randint(1, last_fact)]
        yield self._closure_row(False, replace(matched, steps=steps), RowEdit.TRUNCATED)

    def _replaced_answers(self, view: View, matched: VerifierInput) -> Iterator[VerifierRow]:
        """Yield the right answer in other words and a wrong hop or other option, both varied in the same ways."""
        aliases = self.family.source.aliases if match_answer(view.answer, self.family.gold.answer) else ()
        wrong = _list_wrong_answers(view, aliases)
        if not wrong:
            return
        right = self.rng.choice([view.answer, *aliases])
        for answer, label in ((right, True), (self.rng.choice(wrong), False)):
            variant = self.rng.choice(_vary_wording(answer))
            yield self._closure_row(label, replace(matched, answer=variant), RowEdit.REPLACED_ANSWER)

    def _reached_answers(self, view: View, matched: VerifierInput) -> Iterator[VerifierRow]:
        """Yield the right and a wrong answer behind the facts, and the name that a part of the facts ends with."""
        concluded, stopped = self._drop_conclusions(view, matched), next(self._stopped_short(view, matched), None)
        if concluded is None or stopped is None:
            return
        wrong = _list_wrong_answers(view, self.family.source.aliases)
        reached = [name for name in wrong if name in stopped.input.steps[-1] and name not in view.question]
        if not reached:
            return
        # A wrong name behind all facts as well: otherwise the length alone would tell the labels apart.
        for row_input, answer, label in (
            (concluded, view.answer, True),
            (concluded, self.rng.choice(wrong), False),
            (stopped.input, reached[-1], False),
        ):
            variant = self.rng.choice([answer, *_vary_wording(answer)])
            yield self._closure_row(label, replace(row_input, answer=variant), RowEdit.TRUNCATED_AND_REPLACED)

    # Support: the square of two bodies of evidence and the steps in which their traces differ.

    def _support_rows(self, edit: EvidenceEdit) -> Iterator[VerifierRow]:
        gold, view = self.family.gold, edit.view
        for own, crossed in ((gold, view), (view, gold)):
            for step in _find_changed_steps(own, crossed, edit.passage_id):
                for evidence, label, pairing in (
                    (own.evidence, True, RowPairing.MATCHED),
                    (crossed.evidence, False, RowPairing.CROSSED_EVIDENCE),
                ):
                    row_input = VerifierInput(own.question, (step,), answer="", evidence=evidence)
                    yield self._row(VerifierHead.SUPPORT, label, row_input, pairing, RowEdit.UNEDITED)


def _find_changed_steps(own: View, crossed: View, passage_id: str) -> list[str]:
    """Return the steps that rest on the edited passage and are not steps of the other view.

    A step on another passage stays supported: the edit leads the trace there, but does not change what is written.
    """
    return [
        text
        for text, step in zip(own.trace.texts, own.proof, strict=False)
        if passage_id in step.passage_ids and text not in crossed.trace.texts
    ]


def _find_last_fact(view: View) -> int | None:
    """Return the index of the last step that the proof needs and that states something of a passage."""
    if not view.proof:
        return None
    needed = {len(view.proof) - 1}
    # Premises lie before their step, so one pass from the end finds all of them.
    for number in range(len(view.proof) - 1, -1, -1):
        if number in needed:
            needed.update(view.proof[number].premises)
    return max((number for number in needed if view.proof[number].passage_ids), default=None)


def _mentions(text: str) -> set[str]:
    """Return the names and numbers of a text, normalised."""
    return {" ".join(normalize_answer(name)) for name in find_names(text)} | set(find_numbers(text))


# A trace that calls two names the same establishes both as answers.
_SAME_AS = ("another name", "known as", "same person", "alias", "real name", "stage name", "the name", "born as")


def _list_wrong_answers(view: View, aliases: Sequence[str]) -> list[str]:
    """Return names and values of the trace that the right answer does not share a word sequence with."""
    if any(phrase in text.lower() for text in view.trace.texts for phrase in _SAME_AS):
        return []
    polarity = {"yes": "no", "no": "yes"}.get(view.answer.lower().strip(" ."))
    if polarity is not None:
        return [polarity]
    trace = " ".join(view.trace.texts)
    right = {frozenset(normalize_answer(answer)) for answer in (view.answer, *aliases)}
    candidates = find_dates(trace) if find_dates(view.answer) else []
    if not candidates and view.answer.replace(",", "").isdigit():
        candidates = find_numbers(trace)
    if not candidates:
        candidates = [name for text in view.trace.texts for name in find_names(text)]
    words = ((candidate, frozenset(normalize_answer(candidate))) for candidate in dict.fromkeys(candidates))
    # Sets of words: a date may be written in two orders, and a year is a part of a date.
    return [candidate for candidate, own in words if own and not any(own <= other or other <= own for other in right)]


def _vary_wording(answer: str) -> list[str]:
    variants = [f"{answer}.", answer.lower(), f'"{answer}"', f"The answer is {answer}."]
    for date in find_dates(answer):
        first, second, year = date.replace(",", "").split()
        variants.append(
            answer.replace(date, f"{second} {first}, {year}" if first.isdigit() else f"{second} {first} {year}")
        )
    return [variant for variant in variants if variant != answer]
