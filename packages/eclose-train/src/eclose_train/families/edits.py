"""Replacement of words in a passage, leaving every other byte unchanged.

An editor names words as they are written and the words that replace them; code applies the edit. An occurrence of the
old value in another spelling is detected and the edit refused, because it would contradict the new value. Whether the
edited claim makes sense is left to judges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from eclose.values.answers import (
    TextSpan,
    equal_up_to_spelling,
    find_exact_spans,
    find_respelled_spans,
    is_whole_word_span,
)
from eclose.values.instance import Passage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.values.family import TextReplacement


class EditProblem(StrEnum):
    """The reasons for which an edit is refused; a funnel counts by them."""

    NOTHING_ASKED = "nothing_asked"
    EMPTY = "empty"
    UNCHANGED = "unchanged"
    NAMED_TWICE = "named_twice"
    NOT_FOUND = "not_found"
    INSIDE_A_WORD = "inside_a_word"
    ALL_KEPT = "all_kept"
    KEPT_NOT_FOUND = "kept_not_found"
    OVERLAP = "overlap"
    RUNS_TOGETHER = "runs_together"
    IN_TITLE = "in_title"
    LEFT_OVER = "left_over"


@dataclass(frozen=True, slots=True)
class EditFailure:
    """A problem of an edit, with a sentence that names the words in question."""

    problem: EditProblem
    detail: str

    def __str__(self) -> str:
        return f"{self.problem.value}: {self.detail}"


@dataclass(frozen=True, slots=True)
class RefusedEdit:
    """All problems of an edit that was not applied."""

    failures: tuple[EditFailure, ...]


@dataclass(frozen=True, slots=True)
class ChangedTextSpan:
    """A replaced span: its position in the old text, and the position of the new words in the new text."""

    before: TextSpan
    after: TextSpan


@dataclass(frozen=True, slots=True)
class EditedText:
    """The new text with its changes from left to right."""

    text: str
    changes: tuple[ChangedTextSpan, ...]


@dataclass(frozen=True, slots=True)
class EditedPassage:
    """The new passage, with id and title of the old one, and the changes of its text."""

    passage: Passage
    changes: tuple[ChangedTextSpan, ...]


def edit_text(text: str, replacements: Sequence[TextReplacement], keep: Sequence[str] = ()) -> EditedText | RefusedEdit:
    """Replace every whole-word occurrence of each old text at once, except inside the texts to keep.

    Where one old text contains another ("Ada Byron", "Byron"), the longer one is replaced.

    >>> from eclose.values.family import TextReplacement
    >>> swap = [TextReplacement("Ann", "Bo"), TextReplacement("Bo", "Ann")]
    >>> edit_text("Ann met Bo. Bo's dog bit Ann.", swap).text
    "Bo met Ann. Ann's dog bit Bo."
    """
    if failures := tuple(_check_request(replacements, keep)):
        return RefusedEdit(failures)
    protected = [span for part in keep for span in find_exact_spans(text, part)]
    # All spans are located in the old text before anything is replaced: only so can two names be swapped.
    spans = {replacement: _find_replaceable(text, replacement.old, protected) for replacement in replacements}
    chosen = sorted(
        (span, replacement.new) for replacement, candidates in spans.items() for span in _drop_nested(candidates, spans)
    )
    failures = (*_check_presence(text, spans, keep), *_check_overlaps(text, [span for span, _ in chosen], protected))
    if failures:
        return RefusedEdit(failures)
    edited = _apply(text, chosen)
    failures = tuple(_check_boundaries(edited))
    return RefusedEdit(failures) if failures else edited


def edit_passage(
    passage: Passage, replacements: Sequence[TextReplacement], keep: Sequence[str] = ()
) -> EditedPassage | RefusedEdit:
    """Edit the text of a passage; refuse where its title, or the old value in another spelling, would contradict it.

    A text to keep may occur in the title alone.
    """
    keep_in_text = [part for part in keep if part in passage.text or part not in passage.title]
    edited = edit_text(passage.text, replacements, keep_in_text)
    failures = [*_check_values(replacements), *_check_title(passage.title, replacements, keep)]
    if isinstance(edited, RefusedEdit):
        return RefusedEdit((*edited.failures, *failures))
    protected = [_shift(span, edited.changes) for part in keep_in_text for span in find_exact_spans(passage.text, part)]
    for replacement in replacements:
        for span in find_leftover_values(edited, replacement.old):
            if not any(span.is_within(other) for other in protected):
                detail = f"{replacement.old!r} is left in the text as {_quote(edited.text, span)}"
                failures.append(EditFailure(EditProblem.LEFT_OVER, detail))
    if failures:
        return RefusedEdit(tuple(failures))
    return EditedPassage(replace(passage, text=edited.text), edited.changes)


def find_leftover_values(edited: EditedText, old: str) -> tuple[TextSpan, ...]:
    """Return the spans of the new text that still contain the old value, in any spelling.

    Spellings may differ in case, accents, punctuation, spaces and hyphens, Unicode normal form, the order within a
    date, and digits for number words up to 99. Words that the edit itself inserted are skipped.
    """
    inserted = [change.after for change in edited.changes]
    return tuple(
        span for span in find_respelled_spans(edited.text, old) if not any(span.is_within(other) for other in inserted)
    )


# Problems of an edit.


def _check_request(replacements: Sequence[TextReplacement], keep: Sequence[str]) -> Iterator[EditFailure]:
    if not replacements:
        yield EditFailure(EditProblem.NOTHING_ASKED, "there is no replacement")
    olds: set[str] = set()
    for old, new in ((replacement.old, replacement.new) for replacement in replacements):
        if not old.strip() or not new.strip():
            yield EditFailure(EditProblem.EMPTY, f"{old!r} cannot become {new!r}: a blank text is not allowed")
        elif old == new:
            yield EditFailure(EditProblem.UNCHANGED, f"{old!r} would stay as it is")
        if old in olds:
            yield EditFailure(EditProblem.NAMED_TWICE, f"{old!r} is replaced more than once")
        olds.add(old)
    if not all(part.strip() for part in keep):
        yield EditFailure(EditProblem.EMPTY, "a text to keep is blank")


def _check_presence(
    text: str, spans: dict[TextReplacement, list[TextSpan]], keep: Sequence[str]
) -> Iterator[EditFailure]:
    """Yield old texts that have no replaceable occurrence, with the reason, and texts to keep that are missing."""
    for replacement, candidates in spans.items():
        old = replacement.old
        if _drop_nested(candidates, spans):
            continue
        if old not in text:
            hint = next((f", but {_quote(text, span)} does" for span in find_respelled_spans(text, old)), "")
            yield EditFailure(EditProblem.NOT_FOUND, f"{old!r} does not occur in the text{hint}")
        elif candidates:
            yield EditFailure(EditProblem.OVERLAP, f"{old!r} occurs only inside longer words to replace")
        elif any(is_whole_word_span(text, span) for span in find_exact_spans(text, old)):
            yield EditFailure(EditProblem.ALL_KEPT, f"{old!r} occurs only inside texts to keep")
        else:
            yield EditFailure(EditProblem.INSIDE_A_WORD, f"{old!r} is only part of a longer word")
    for part in keep:
        if part not in text:
            yield EditFailure(EditProblem.KEPT_NOT_FOUND, f"{part!r}, to be kept, does not occur in the text")


def _check_overlaps(text: str, chosen: list[TextSpan], protected: list[TextSpan]) -> Iterator[EditFailure]:
    # ``chosen`` is sorted, so overlapping replacements are neighbours.
    for span, following in pairwise(chosen):
        if span.overlaps(following):
            both = _quote(text, TextSpan(span.start, following.end))
            yield EditFailure(EditProblem.OVERLAP, f"two replacements meet in {both}")
    for span in chosen:
        if any(span.overlaps(other) for other in protected):
            yield EditFailure(EditProblem.OVERLAP, f"only a part of {_quote(text, span)} is to be kept")


def _check_boundaries(edited: EditedText) -> Iterator[EditFailure]:
    """Yield inserted words that merge with their neighbours into a longer word."""
    for change in edited.changes:
        if not is_whole_word_span(edited.text, change.after):
            merged = _quote(edited.text, change.after)
            yield EditFailure(EditProblem.RUNS_TOGETHER, f"{merged} runs together with the text beside it")


def _check_values(replacements: Sequence[TextReplacement]) -> Iterator[EditFailure]:
    """Yield replacements that only respell a value."""
    for old, new in ((replacement.old, replacement.new) for replacement in replacements):
        if old != new and equal_up_to_spelling(old, new):
            yield EditFailure(EditProblem.UNCHANGED, f"{new!r} is {old!r} in another spelling")


def _check_title(title: str, replacements: Sequence[TextReplacement], keep: Sequence[str]) -> Iterator[EditFailure]:
    protected = [span for part in keep if part for span in find_exact_spans(title, part)]
    for replacement in replacements:
        spans = find_respelled_spans(title, replacement.old)
        if any(not any(span.is_within(other) for other in protected) for span in spans):
            yield EditFailure(EditProblem.IN_TITLE, f"{replacement.old!r} occurs in the title {title!r}")


# Positions of words.


def _find_replaceable(text: str, old: str, protected: list[TextSpan]) -> list[TextSpan]:
    """Return the spans where the old text is a whole word outside the protected spans."""
    spans = (span for span in find_exact_spans(text, old) if is_whole_word_span(text, span))
    return [span for span in spans if not any(span.is_within(other) for other in protected)]


def _drop_nested(candidates: list[TextSpan], spans: dict[TextReplacement, list[TextSpan]]) -> list[TextSpan]:
    """Return the candidates that lie inside no longer text to replace."""
    replaceable = [span for group in spans.values() for span in group]
    return [span for span in candidates if not any(span.is_within(other) and span != other for other in replaceable)]


def _apply(text: str, chosen: list[tuple[TextSpan, str]]) -> EditedText:
    # ``copied`` counts characters of the old text, ``size`` characters of the new one.
    pieces, changes, copied, size = [], [], 0, 0
    for span, new in chosen:
        size += span.start - copied
        changes.append(ChangedTextSpan(span, TextSpan(size, size + len(new))))
        pieces += [text[copied : span.start], new]
        size, copied = size + len(new), span.end
    return EditedText("".join([*pieces, text[copied:]]), tuple(changes))


def _shift(span: TextSpan, changes: tuple[ChangedTextSpan, ...]) -> TextSpan:
    preceding = [change for change in changes if change.before.end <= span.start]
    shift = preceding[-1].after.end - preceding[-1].before.end if preceding else 0
    return TextSpan(span.start + shift, span.end + shift)


def _quote(text: str, span: TextSpan) -> str:
    """Return the span with 20 characters of context on either side, quoted for a message."""
    return repr(text[max(0, span.start - 20) : span.end + 20])
