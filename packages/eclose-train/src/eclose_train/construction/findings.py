"""Findings of screens and verifiers on a family, for display: every judgement, its reason and its meaning.

A reply is shown as it came. Judgements of the package's own roles are also explained and compared with the accepted
answer; a reply of another shape is shown completely.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose_train.construction.questions import ACCEPTANCE_CONDITIONS, SOUNDNESS_JUDGEMENT, ConstructionRole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.values.family import Family, FamilyFinding

ROLE_WORDS: Mapping[str, str] = {
    ConstructionRole.SCREEN_SEED: "Can the source be built on?",
    ConstructionRole.VERIFY_TARGET: "Does the original response hold?",
    ConstructionRole.SCREEN_EVIDENCE: "Is it a clean change of the evidence?",
    ConstructionRole.VERIFY_EVIDENCE: "Does the reasoning change where it must, and only there?",
    ConstructionRole.SCREEN_QUESTION: "Is it a clean change of the question?",
    ConstructionRole.VERIFY_QUESTION: "Does the reasoning follow the question?",
}
"""The question that each role answers."""

_SOUND = "the passages or sound steps before it warrant it"
JUDGEMENT_WORDS: Mapping[tuple[str, str], str] = {
    (ConstructionRole.SCREEN_SEED, "warranted"): "the support alone warrants the reference answer",
    (ConstructionRole.SCREEN_SEED, "unique"): "no passage warrants an answer that excludes it",
    (ConstructionRole.SCREEN_SEED, "elsewhere"): "the other passages alone would warrant it too",
    (ConstructionRole.SCREEN_SEED, "support"): "passages that are needed",
    (ConstructionRole.SCREEN_SEED, "defect"): "what is wrong with the source itself",
    (ConstructionRole.VERIFY_TARGET, "soundness.steps.passages"): "passages that warrant it",
    (ConstructionRole.VERIFY_TARGET, "soundness.steps.premises"): "earlier steps it follows from",
    (ConstructionRole.VERIFY_TARGET, "alignment.aligned"): "the steps go after what the question asks",
    (ConstructionRole.VERIFY_TARGET, "closure.closed"): "the steps establish this answer and no other",
    (ConstructionRole.VERIFY_TARGET, "grounding.grounded"): "all that is needed stands in the support",
    (ConstructionRole.VERIFY_TARGET, "grounding.outside"): "steps that need other passages",
    (ConstructionRole.SCREEN_EVIDENCE, "localized"): "one claim is changed, and nothing else",
    (ConstructionRole.SCREEN_EVIDENCE, "coherent"): "nothing contradicts the changed passage",
    (ConstructionRole.SCREEN_EVIDENCE, "edited_after"): "the edited answer is warranted after the change",
    (ConstructionRole.SCREEN_EVIDENCE, "unique_after"): "no answer that excludes it is warranted after it",
    (ConstructionRole.SCREEN_EVIDENCE, "original_after"): "the original answer is still warranted after it",
    (ConstructionRole.SCREEN_EVIDENCE, "edited_before"): "the edited answer was warranted before it already",
    (ConstructionRole.SCREEN_EVIDENCE, "same_kind"): "both answers are of one kind",
    (ConstructionRole.VERIFY_EVIDENCE, "prefix.before"): "the shared steps hold before the change",
    (ConstructionRole.VERIFY_EVIDENCE, "prefix.after"): "the shared steps hold after it",
    (ConstructionRole.VERIFY_EVIDENCE, "switching.original_before"): "the original step is warranted before the change",
    (ConstructionRole.VERIFY_EVIDENCE, "switching.original_after"): "the original step is warranted after it",
    (ConstructionRole.VERIFY_EVIDENCE, "switching.edited_before"): "the edited step is warranted before the change",
    (ConstructionRole.VERIFY_EVIDENCE, "switching.edited_after"): "the edited step is warranted after it",
    (ConstructionRole.VERIFY_EVIDENCE, "alignment.aligned"): "the edited steps go after what the question asks",
    (ConstructionRole.VERIFY_EVIDENCE, "closure.original"): "the original steps establish the original answer",
    (ConstructionRole.VERIFY_EVIDENCE, "closure.edited"): "the edited steps establish the edited answer",
    (ConstructionRole.VERIFY_EVIDENCE, "closure.original_to_edited"): "the original steps establish the edited answer",
    (ConstructionRole.VERIFY_EVIDENCE, "closure.edited_to_original"): "the edited steps establish the original answer",
    (ConstructionRole.SCREEN_QUESTION, "changed"): "the questions ask for different things",
    (ConstructionRole.SCREEN_QUESTION, "edited_warranted"): "the passages warrant the edited answer",
    (ConstructionRole.SCREEN_QUESTION, "edited_unique"): "they warrant no answer that excludes it",
    (ConstructionRole.SCREEN_QUESTION, "original_fits_edited"): "the original answer fits the edited question",
    (ConstructionRole.SCREEN_QUESTION, "edited_fits_original"): "the edited answer fits the original question",
    (ConstructionRole.SCREEN_QUESTION, "natural"): "the edited question reads naturally",
    (ConstructionRole.SCREEN_QUESTION, "several_steps"): "no single statement answers it: it takes several steps",
    (ConstructionRole.SCREEN_QUESTION, "degenerate"): "it contains its answer or answers itself",
    (ConstructionRole.VERIFY_QUESTION, "alignment.original"): "the original steps go after the original question",
    (ConstructionRole.VERIFY_QUESTION, "alignment.edited"): "the edited steps go after the edited question",
    (
        ConstructionRole.VERIFY_QUESTION,
        "alignment.edited_to_original",
    ): "the edited steps go after the original question",
    (
        ConstructionRole.VERIFY_QUESTION,
        "alignment.original_to_edited",
    ): "the original steps go after the edited question",
    (ConstructionRole.VERIFY_QUESTION, "closure.closed"): "the edited steps establish their answer and no other",
}
"""Meaning of a yes to each judgement, after the guidelines."""

GOOD, BAD, PLAIN = "good", "bad", "plain"
"""Accepted, not accepted, and judgements without an accepted answer."""

# Replies are JSON of a model; a bound keeps a deeply nested one from exhausting the recursion.
_MAX_DEPTH = 8
"""Deeper parts of a reply are shown as JSON."""


@dataclass(frozen=True, slots=True)
class FamilyJudgementDisplay:
    """One answer of a reply."""

    name: str
    answer: str
    tone: str = PLAIN
    meaning: str = ""
    """Meaning of a yes; empty for judgements of other roles."""


@dataclass(frozen=True, slots=True)
class FindingPartDisplay:
    """Judgements that share a reason."""

    name: str
    """Path of the part; empty for the reply as a whole."""
    judgements: tuple[FamilyJudgementDisplay, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FindingDisplay:
    """One finding."""

    role: str
    question: str
    """The question of the role; the name of the role where it is unknown."""
    judge: str
    subject: str
    """The judged view, or the number of this finding among several; empty where there is only one."""
    again: bool
    objections: tuple[str, ...]
    parts: tuple[FindingPartDisplay, ...]

    @property
    def judgements(self) -> int:
        """Number of answers in all parts."""
        return sum(len(part.judgements) for part in self.parts)


def build_finding_displays(family: Family, edits: Sequence[str]) -> tuple[FindingDisplay, ...]:
    """Return all findings in order. ``edits`` are the names of the views with edited evidence."""
    # A role answers once per edit, and again when a second model verifies.
    counts = Counter((finding.role, finding.again) for finding in family.findings)
    numbers: Counter[tuple[str, bool]] = Counter()
    displays = []
    for finding in family.findings:
        key = (finding.role, finding.again)
        numbers[key] += 1
        if finding.edit is not None and finding.edit < len(edits):
            subject = edits[finding.edit]
        else:
            subject = f"{numbers[key]} of {counts[key]}" if counts[key] > 1 else ""
        displays.append(
            FindingDisplay(
                role=finding.role,
                question=ROLE_WORDS.get(finding.role, finding.role),
                judge=finding.judge,
                subject=subject,
                again=finding.again,
                objections=finding.objections,
                parts=tuple(_parts(finding, finding.said)),
            )
        )
    return tuple(displays)


def _parts(
    finding: FamilyFinding, reply: Mapping[str, Any], path: tuple[str, ...] = (), name: str = ""
) -> Iterator[FindingPartDisplay]:
    """Yield the answers of a reply itself, then those of its parts."""
    # Objects and lists of objects become parts of their own, plain values are answers.
    inner = {key: value for key, value in reply.items() if len(path) < _MAX_DEPTH and _has_parts(value)}
    # The id of a step is in its name already.
    plain_values = {
        key: value for key, value in reply.items() if key not in {*inner, "reason"} and not (key == "id" and name)
    }
    if plain_values or "reason" in reply:
        answers = tuple(_judgement(finding, (*path, key), value) for key, value in plain_values.items())
        yield FindingPartDisplay(name or ".".join(path), answers, _text(reply.get("reason", "")))
    for key, value in inner.items():
        if isinstance(value, Mapping):
            yield from _parts(finding, value, (*path, key))
        else:
            for number, entry in enumerate(value, start=1):
                entry_name = f"{'step' if key == 'steps' else key} {_text(entry.get('id', number))}"
                yield from _parts(finding, entry, (*path, key), ", ".join([*path, entry_name]))


def _has_parts(value: Any) -> bool:
    """Return whether a value is a non-empty object, or a non-empty list of such objects."""
    if isinstance(value, Mapping):
        return bool(value)
    return (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(entry, Mapping) and entry for entry in value)
    )


def _judgement(finding: FamilyFinding, path: tuple[str, ...], value: Any) -> FamilyJudgementDisplay:
    name = ".".join(path)
    meaning = JUDGEMENT_WORDS.get((finding.role, name), "")
    # Each step of a trace has its own verdict, without an entry in JUDGEMENT_WORDS.
    if finding.role in ROLE_WORDS and path == (SOUNDNESS_JUDGEMENT, "steps", "sound"):
        return FamilyJudgementDisplay("sound", _text(value), GOOD if value is True else BAD, _SOUND)
    return FamilyJudgementDisplay(path[-1], _text(value), _tone(finding, name, value), meaning)


def _tone(finding: FamilyFinding, name: str, value: Any) -> str:
    accepted = ACCEPTANCE_CONDITIONS[ConstructionRole(finding.role)].get(name) if finding.role in ROLE_WORDS else None
    # An objection counts even where the judgement has no accepted answer.
    if name in finding.objections or (accepted is not None and value is not accepted):
        return BAD
    return PLAIN if accepted is None else GOOD


def _text(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case None | Mapping() | list() | tuple() if not value:
            return "none"
        case list() | tuple() if not any(isinstance(item, Mapping | list | tuple) for item in value):
            return ", ".join(map(_text, value))
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)
