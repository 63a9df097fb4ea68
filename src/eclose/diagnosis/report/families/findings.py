"""What screens and verifiers said of a family -> what is shown of it: every judgement, its reason, and what it means.

A reply is shown as it came. Where it is one of ours, its judgements are also told in words and held against what is
wanted of them; of a reply of another shape every part is shown all the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.protocol.acceptance import SOUNDNESS, WANTED
from eclose.protocol.construction import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.core.family import Family, FamilyFinding

ROLE_WORDS: Mapping[str, str] = {
    Role.SCREEN_SEED: "Can the source be built on?",
    Role.VERIFY_TARGET: "Does the original response hold?",
    Role.SCREEN_EVIDENCE: "Is it a clean change of the evidence?",
    Role.VERIFY_EVIDENCE: "Does the reasoning change where it must, and only there?",
    Role.SCREEN_QUESTION: "Is it a clean change of the question?",
    Role.VERIFY_QUESTION: "Does the reasoning follow the question?",
}
"""What each of them was asked, in short."""

_SOUND = "the passages or sound steps before it warrant it"
JUDGEMENT_WORDS: Mapping[tuple[str, str], str] = {
    (Role.SCREEN_SEED, "warranted"): "the support alone warrants the reference answer",
    (Role.SCREEN_SEED, "unique"): "no passage warrants an answer that excludes it",
    (Role.SCREEN_SEED, "elsewhere"): "the other passages alone would warrant it too",
    (Role.SCREEN_SEED, "support"): "passages that are needed",
    (Role.SCREEN_SEED, "defect"): "what is wrong with the source itself",
    (Role.VERIFY_TARGET, "soundness.steps.passages"): "passages that warrant it",
    (Role.VERIFY_TARGET, "soundness.steps.premises"): "earlier steps it follows from",
    (Role.VERIFY_TARGET, "alignment.aligned"): "the steps go after what the question asks",
    (Role.VERIFY_TARGET, "closure.closed"): "the steps establish this answer and no other",
    (Role.VERIFY_TARGET, "grounding.grounded"): "all that is needed stands in the support",
    (Role.VERIFY_TARGET, "grounding.outside"): "steps that need other passages",
    (Role.SCREEN_EVIDENCE, "localized"): "one claim is changed, and nothing else",
    (Role.SCREEN_EVIDENCE, "coherent"): "nothing contradicts the changed passage",
    (Role.SCREEN_EVIDENCE, "edited_after"): "the edited answer is warranted after the change",
    (Role.SCREEN_EVIDENCE, "unique_after"): "no answer that excludes it is warranted after it",
    (Role.SCREEN_EVIDENCE, "original_after"): "the original answer is still warranted after it",
    (Role.SCREEN_EVIDENCE, "edited_before"): "the edited answer was warranted before it already",
    (Role.SCREEN_EVIDENCE, "same_kind"): "both answers are of one kind",
    (Role.VERIFY_EVIDENCE, "prefix.before"): "the shared steps hold before the change",
    (Role.VERIFY_EVIDENCE, "prefix.after"): "the shared steps hold after it",
    (Role.VERIFY_EVIDENCE, "switching.original_before"): "the original step is warranted before the change",
    (Role.VERIFY_EVIDENCE, "switching.original_after"): "the original step is warranted after it",
    (Role.VERIFY_EVIDENCE, "switching.edited_before"): "the edited step is warranted before the change",
    (Role.VERIFY_EVIDENCE, "switching.edited_after"): "the edited step is warranted after it",
    (Role.VERIFY_EVIDENCE, "alignment.aligned"): "the edited steps go after what the question asks",
    (Role.VERIFY_EVIDENCE, "closure.original"): "the original steps establish the original answer",
    (Role.VERIFY_EVIDENCE, "closure.edited"): "the edited steps establish the edited answer",
    (Role.VERIFY_EVIDENCE, "closure.original_to_edited"): "the original steps establish the edited answer",
    (Role.VERIFY_EVIDENCE, "closure.edited_to_original"): "the edited steps establish the original answer",
    (Role.SCREEN_QUESTION, "changed"): "the questions ask for different things",
    (Role.SCREEN_QUESTION, "edited_warranted"): "the passages warrant the edited answer",
    (Role.SCREEN_QUESTION, "edited_unique"): "they warrant no answer that excludes it",
    (Role.SCREEN_QUESTION, "original_fits_edited"): "the original answer fits the edited question",
    (Role.SCREEN_QUESTION, "edited_fits_original"): "the edited answer fits the original question",
    (Role.SCREEN_QUESTION, "natural"): "the edited question reads naturally",
    (Role.SCREEN_QUESTION, "several_steps"): "no single statement answers it: it takes several steps",
    (Role.SCREEN_QUESTION, "degenerate"): "it contains its answer or answers itself",
    (Role.VERIFY_QUESTION, "alignment.original"): "the original steps go after the original question",
    (Role.VERIFY_QUESTION, "alignment.edited"): "the edited steps go after the edited question",
    (Role.VERIFY_QUESTION, "alignment.edited_to_original"): "the edited steps go after the original question",
    (Role.VERIFY_QUESTION, "alignment.original_to_edited"): "the original steps go after the edited question",
    (Role.VERIFY_QUESTION, "closure.closed"): "the edited steps establish their answer and no other",
}
"""What a yes to each judgement says, after the guidelines."""

GOOD, BAD, PLAIN = "good", "bad", "plain"
"""As wanted, not as wanted, and what nobody wants to be one way or the other."""

_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class JudgementDisplay:
    """One answer out of a reply."""

    name: str
    said: str
    tone: str = PLAIN
    told: str = ""
    """What a yes would mean; empty where it is not one of ours."""


@dataclass(frozen=True, slots=True)
class FindingPart:
    """The judgements that share a reason."""

    name: str
    """Empty for what was said of the whole."""
    judgements: tuple[JudgementDisplay, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FindingDisplay:
    """What one of them said."""

    role: str
    told: str
    """What was asked, in words; the role itself where it is not one of ours."""
    judge: str
    of: str
    """The view that was judged, or which of several findings this is; empty where there is only one."""
    again: bool
    objections: tuple[str, ...]
    parts: tuple[FindingPart, ...]

    @property
    def judgements(self) -> int:
        """How many answers it holds."""
        return sum(len(part.judgements) for part in self.parts)


def display_findings(family: Family, edits: Sequence[str]) -> tuple[FindingDisplay, ...]:
    """Everything that was said, in order. ``edits`` are the names of the views with edited evidence."""
    counts = Counter((finding.role, finding.again) for finding in family.findings)
    seen: Counter[tuple[str, bool]] = Counter()
    shown = []
    for finding in family.findings:
        kind = (finding.role, finding.again)
        seen[kind] += 1
        shown.append(_shown(finding, _whose(finding, seen[kind], counts[kind], edits)))
    return tuple(shown)


def _whose(finding: FamilyFinding, number: int, count: int, edits: Sequence[str]) -> str:
    """Which view a finding is about, where it is about one; else which of several it is."""
    if finding.edit is not None and finding.edit < len(edits):
        return edits[finding.edit]
    return f"{number} of {count}" if count > 1 else ""


def _shown(finding: FamilyFinding, of: str) -> FindingDisplay:
    told = ROLE_WORDS.get(finding.role, finding.role)
    parts = tuple(_parts(finding, finding.said))
    return FindingDisplay(finding.role, told, finding.judge, of, finding.again, finding.objections, parts)


def _parts(
    finding: FamilyFinding, said: Mapping[str, Any], path: tuple[str, ...] = (), name: str = ""
) -> Iterator[FindingPart]:
    """What a reply says itself, then what its parts say."""
    inner = {key: value for key, value in said.items() if len(path) < _DEEPEST and _has_parts(value)}
    # The id of a step is in its name already.
    own = {key: value for key, value in said.items() if key not in {*inner, "reason"} and not (key == "id" and name)}
    if own or "reason" in said:
        answers = tuple(_judgement(finding, (*path, key), value) for key, value in own.items())
        yield FindingPart(name or ".".join(path), answers, _text(said.get("reason", "")))
    for key, value in inner.items():
        if isinstance(value, Mapping):
            yield from _parts(finding, value, (*path, key))
        else:
            for number, entry in enumerate(value, start=1):
                named = f"{_entry(key)} {_text(entry.get('id', number))}"
                yield from _parts(finding, entry, (*path, key), ", ".join([*path, named]))


def _has_parts(value: Any) -> bool:
    """Whether a value is an object with something in it, or a list of such."""
    if isinstance(value, Mapping):
        return bool(value)
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) and one for one in value)


def _entry(key: str) -> str:
    return "step" if key == "steps" else key


def _judgement(finding: FamilyFinding, path: tuple[str, ...], value: Any) -> JudgementDisplay:
    name = ".".join(path)
    told = JUDGEMENT_WORDS.get((finding.role, name), "")
    if finding.role in ROLE_WORDS and path == (SOUNDNESS, "steps", "sound"):
        return JudgementDisplay("sound", _text(value), GOOD if value is True else BAD, _SOUND)
    return JudgementDisplay(path[-1], _text(value), _tone(finding, name, value), told)


def _tone(finding: FamilyFinding, name: str, value: Any) -> str:
    wanted = WANTED[Role(finding.role)].get(name) if finding.role in ROLE_WORDS else None
    if name in finding.objections or (wanted is not None and value is not wanted):
        return BAD
    return PLAIN if wanted is None else GOOD


def _text(value: Any) -> str:
    """A value of JSON for people."""
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case None | Mapping() | list() | tuple() if not value:
            return "none"
        case list() | tuple() if not any(isinstance(one, Mapping | list | tuple) for one in value):
            return ", ".join(map(_text, value))
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)
