"""Words of a passage are replaced by other words, and nothing else changes.

An editor names words as they stand and what takes their place; code does the rest, so every byte outside the named
words stays by construction. A repeat of the old value in another spelling is found and refused rather than left to
contradict the edit. Whether the edited claim makes sense is for judges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from eclose.core.instance import Passage
from eclose.core.text_match import Place, is_whole, same_spelled, spelled, verbatim

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class EditProblem(StrEnum):
    """Why an edit is refused, as it is counted in a funnel."""

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
    """One thing that is wrong with an edit, in a sentence that can be told to whoever asked for it."""

    problem: EditProblem
    detail: str

    def __str__(self) -> str:
        """A sentence for a log."""
        return f"{self.problem.value}: {self.detail}"


@dataclass(frozen=True, slots=True)
class EditRefused:
    """Everything that is wrong with an edit; nothing was changed."""

    failures: tuple[EditFailure, ...]


@dataclass(frozen=True, slots=True)
class Replacement:
    """Words as they stand in a passage, and what takes their place."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Change:
    """One replaced stretch: where it stood in the old text, and where its successor stands in the new one."""

    before: Place
    after: Place


@dataclass(frozen=True, slots=True)
class Edited:
    """The new text and what changed in it, from left to right."""

    text: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class EditedPassage:
    """The new passage, with the id and the title of the old one, and what changed in its text."""

    passage: Passage
    changes: tuple[Change, ...]


def edit_text(text: str, replacements: Sequence[Replacement], keep: Sequence[str] = ()) -> Edited | EditRefused:
    """Replace every whole-word occurrence of each old text at once, except inside the texts to keep.

    Where one old text contains another ("Ada Byron", "Byron"), the longer one counts.

    >>> edit_text("Ann met Bo. Bo's dog bit Ann.", [Replacement("Ann", "Bo"), Replacement("Bo", "Ann")]).text
    "Bo met Ann. Ann's dog bit Bo."
    """
    if failures := tuple(_asked_wrongly(replacements, keep)):
        return EditRefused(failures)
    kept = [place for part in keep for place in verbatim(text, part)]
    found = {one: _free(text, one.old, kept) for one in replacements}
    chosen = sorted((place, one.new) for one, places in found.items() for place in _longest(places, found))
    failures = (*_absent(text, found, keep), *_conflicts(text, [place for place, _ in chosen], kept))
    if failures:
        return EditRefused(failures)
    edited = _rewritten(text, chosen)
    failures = tuple(_merged(edited))
    return EditRefused(failures) if failures else edited


def edit_passage(
    passage: Passage, replacements: Sequence[Replacement], keep: Sequence[str] = ()
) -> EditedPassage | EditRefused:
    """Edit the text of a passage; refused where its title or a repeat in another spelling would contradict it.

    A text to keep may stand in the title alone.
    """
    in_text = [part for part in keep if part in passage.text or part not in passage.title]
    edited = edit_text(passage.text, replacements, in_text)
    failures = [*_same_value(replacements), *_in_title(passage.title, replacements, keep)]
    if isinstance(edited, EditRefused):
        return EditRefused((*edited.failures, *failures))
    kept = [_moved(place, edited.changes) for part in in_text for place in verbatim(passage.text, part)]
    for one in replacements:
        for place in left_over(edited, one.old):
            if not any(place.within(other) for other in kept):
                still = f"{one.old!r} still stands there as {_shown(edited.text, place)}"
                failures.append(EditFailure(EditProblem.LEFT_OVER, still))
    if failures:
        return EditRefused(tuple(failures))
    return EditedPassage(replace(passage, text=edited.text), edited.changes)


def left_over(edited: Edited, old: str) -> tuple[Place, ...]:
    """Where the old value is still in the new text, in whatever spelling.

    Forgiven are case, accents, punctuation, spaces and hyphens, normal forms, the order within a date, and digits for
    number words up to 99. What a replacement itself wrote is not looked at. A place is one of the new text.
    """
    written = [change.after for change in edited.changes]
    return tuple(place for place in spelled(edited.text, old) if not any(place.within(other) for other in written))


# What is wrong with an edit.


def _asked_wrongly(replacements: Sequence[Replacement], keep: Sequence[str]) -> Iterator[EditFailure]:
    if not replacements:
        yield EditFailure(EditProblem.NOTHING_ASKED, "there is no replacement")
    seen: set[str] = set()
    for one in replacements:
        if not one.old.strip() or not one.new.strip():
            yield EditFailure(EditProblem.EMPTY, f"{one.old!r} cannot become {one.new!r}: one of them is blank")
        elif one.old == one.new:
            yield EditFailure(EditProblem.UNCHANGED, f"{one.old!r} would stay as it is")
        if one.old in seen:
            yield EditFailure(EditProblem.NAMED_TWICE, f"{one.old!r} is replaced more than once")
        seen.add(one.old)
    if not all(part.strip() for part in keep):
        yield EditFailure(EditProblem.EMPTY, "a text to keep is blank")


def _absent(text: str, found: dict[Replacement, list[Place]], keep: Sequence[str]) -> Iterator[EditFailure]:
    for one, places in found.items():
        if _longest(places, found):
            continue
        if one.old not in text:
            other = next((f", but {_shown(text, place)} does" for place in spelled(text, one.old)), "")
            yield EditFailure(EditProblem.NOT_FOUND, f"{one.old!r} does not stand in the text{other}")
        elif places:
            yield EditFailure(EditProblem.OVERLAP, f"{one.old!r} stands only inside longer words to replace")
        elif any(is_whole(text, place) for place in verbatim(text, one.old)):
            yield EditFailure(EditProblem.ALL_KEPT, f"{one.old!r} stands only inside texts to keep")
        else:
            yield EditFailure(EditProblem.INSIDE_A_WORD, f"{one.old!r} is only part of a longer word")
    for part in keep:
        if part not in text:
            yield EditFailure(EditProblem.KEPT_NOT_FOUND, f"{part!r}, to be kept, does not stand in the text")


def _conflicts(text: str, chosen: list[Place], kept: list[Place]) -> Iterator[EditFailure]:
    for one, other in pairwise(chosen):
        if one.meets(other):
            both = _shown(text, Place(one.start, other.end))
            yield EditFailure(EditProblem.OVERLAP, f"two replacements meet in {both}")
    for place in chosen:
        if any(place.meets(other) for other in kept):
            yield EditFailure(EditProblem.OVERLAP, f"only a part of {_shown(text, place)} is to be kept")


def _merged(edited: Edited) -> Iterator[EditFailure]:
    for change in edited.changes:
        if not is_whole(edited.text, change.after):
            shown = _shown(edited.text, change.after)
            yield EditFailure(EditProblem.RUNS_TOGETHER, f"{shown} runs together with what stands beside it")


def _same_value(replacements: Sequence[Replacement]) -> Iterator[EditFailure]:
    for one in replacements:
        if one.old != one.new and same_spelled(one.old, one.new):
            yield EditFailure(EditProblem.UNCHANGED, f"{one.new!r} is {one.old!r} in another spelling")


def _in_title(title: str, replacements: Sequence[Replacement], keep: Sequence[str]) -> Iterator[EditFailure]:
    kept = [place for part in keep if part for place in verbatim(title, part)]
    for one in replacements:
        if any(not any(place.within(other) for other in kept) for place in spelled(title, one.old)):
            yield EditFailure(EditProblem.IN_TITLE, f"{one.old!r} stands in the title {title!r}")


# Where words stand.


def _free(text: str, old: str, kept: list[Place]) -> list[Place]:
    """The places where the old text stands as whole words and is not to be kept."""
    whole = (place for place in verbatim(text, old) if is_whole(text, place))
    return [place for place in whole if not any(place.within(other) for other in kept)]


def _longest(places: list[Place], found: dict[Replacement, list[Place]]) -> list[Place]:
    """The places that are not inside a longer text to replace."""
    everything = [place for some in found.values() for place in some]
    return [one for one in places if not any(one.within(other) and one != other for other in everything)]


def _rewritten(text: str, chosen: list[tuple[Place, str]]) -> Edited:
    pieces, changes, done, size = [], [], 0, 0
    for place, new in chosen:
        size += place.start - done
        changes.append(Change(place, Place(size, size + len(new))))
        pieces += [text[done : place.start], new]
        size, done = size + len(new), place.end
    return Edited("".join([*pieces, text[done:]]), tuple(changes))


def _moved(place: Place, changes: tuple[Change, ...]) -> Place:
    """Where a place that was left alone stands in the new text."""
    before = [change for change in changes if change.before.end <= place.start]
    shift = before[-1].after.end - before[-1].before.end if before else 0
    return Place(place.start + shift, place.end + shift)


def _shown(text: str, place: Place) -> str:
    """A place with some words around it, for a message."""
    return repr(text[max(0, place.start - 20) : place.end + 20])
