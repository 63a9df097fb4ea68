"""A family for display: its views side by side, each with the words that differ from Gold; and the HTML page of them.

The page is one file that needs no network, no server and no script. The terminal prints the same values. A family that
fails a gate is displayed as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.report import word_diff
from eclose.report.formats.html_template import csp_source_hash, load_page_template, read_page_text
from eclose.values.family import TextReplacement
from eclose.values.family_rules import check_family
from eclose_train.construction.findings import FindingDisplay, build_finding_displays

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.values.family import EvidenceEdit, Family, FamilyProvenance, View
    from eclose.values.instance import Passage

POLICY = "default-src 'none'; style-src '{style}'; img-src data:; base-uri 'none'; form-action 'none'"
"""Content security policy; the page has no script, so none is allowed."""


def render_family_page(families: Sequence[FamilyDisplay], *, name: str, selection: str, policy: bool = True) -> str:
    """Return the page. ``name`` is the origin of the families, ``selection`` says which of them are shown.

    Without its policy it must be just as safe, and tests open it that way as well.
    """
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only pages need

    # The report's style has the shared part: colours, type, badges, tables.
    style = read_page_text("page.css") + read_page_text("family.css")
    html: str = load_page_template("family.html").render(
        families=families,
        name=name,
        selection=selection,
        title=families[0].id if len(families) == 1 else "Families",
        policy=POLICY.format(style=csp_source_hash(style)) if policy else "",
        style=Markup(style),  # part of the package, not a value
    )
    return html


GOLD, EVIDENCE, QUESTION = "Gold", "Evidence-CF", "Question-CF"


@dataclass(frozen=True, slots=True)
class FamilyCitationDisplay:
    """A cited passage: its index among the passages, as models see it, and its title."""

    index: int | None
    """None for an id that no passage has."""
    title: str

    def __str__(self) -> str:
        return f"[{'?' if self.index is None else self.index}] {self.title}".rstrip()


@dataclass(frozen=True, slots=True)
class StepDisplay:
    """One step with its support."""

    number: int
    words: word_diff.MarkedText
    counterpart: int | None
    """Number of the corresponding step of Gold; None for a new step."""
    passages: tuple[FamilyCitationDisplay, ...]
    premises: tuple[int, ...]
    """Numbers of earlier steps."""
    support_recorded: bool
    """Whether the support of the step is recorded."""
    first_affected: bool = False

    @property
    def unchanged(self) -> bool:
        """Whether it is the same as its counterpart, word for word."""
        return self.counterpart is not None and not word_diff.has_word_changes(self.words)


@dataclass(frozen=True, slots=True)
class ViewEditDisplay:
    """The edit that made a view."""

    passage: FamilyCitationDisplay | None = None
    claim: str = ""
    replacements: tuple[TextReplacement, ...] = ()
    keep: tuple[str, ...] = ()
    component: str = ""
    """The changed part of the question, in a few words."""
    claim_recorded: bool = True
    """Whether the changed claim of the passage is recorded."""


@dataclass(frozen=True, slots=True)
class ViewDisplay:
    """One view."""

    name: str
    question: word_diff.MarkedText
    steps: tuple[StepDisplay, ...]
    answer: word_diff.MarkedText
    support: tuple[FamilyCitationDisplay, ...]
    omitted_steps: tuple[int, ...] = ()
    """Numbers of the steps of Gold without a counterpart here."""
    change: ViewEditDisplay | None = None
    """None for Gold."""


@dataclass(frozen=True, slots=True)
class FamilyPassageDisplay:
    """A passage in one view, compared with Gold."""

    view: str
    title: word_diff.MarkedText
    text: word_diff.MarkedText


@dataclass(frozen=True, slots=True)
class PassageDisplay:
    """A passage with its versions in other views."""

    index: int
    title: str
    text: str
    notes: tuple[str, ...]
    """The views that it supports, and those in which it was changed."""
    versions: tuple[FamilyPassageDisplay, ...] = ()
    """Versions that differ from Gold."""

    @property
    def relevant(self) -> bool:
        """Whether an answer depends on it, or it differs between the views."""
        return bool(self.notes)


@dataclass(frozen=True, slots=True)
class FamilyDisplay:
    """Everything that is displayed of a family."""

    id: str
    facts: tuple[tuple[str, str], ...]
    """Origin: names and values."""
    views: tuple[ViewDisplay, ...]
    passages: tuple[PassageDisplay, ...]
    findings: tuple[FindingDisplay, ...]
    provenance: tuple[tuple[str, str], ...]
    """Models that built and checked it; empty for a family from elsewhere."""
    failures: tuple[str, ...]
    """Gates that it fails."""

    @property
    def relevant_passages(self) -> tuple[PassageDisplay, ...]:
        """Passages that support an answer or differ between views."""
        return tuple(passage for passage in self.passages if passage.relevant)

    @property
    def other_passages(self) -> tuple[PassageDisplay, ...]:
        """All other passages."""
        return tuple(passage for passage in self.passages if not passage.relevant)


def make_family_display(family: Family) -> FamilyDisplay:
    """Return everything about a family for display."""
    names = name_family_views(family)
    edits, question = family.evidence_edits, family.question_edit
    views = (
        _view(GOLD, family.gold, None),
        *(
            _view(name, edit.view, family.gold, _evidence_change(edit), edit.first_affected_step)
            # names ends with the question view, which has no evidence edit.
            for name, edit in zip(names[1:], edits, strict=False)
        ),
        _view(QUESTION, question.view, family.gold, ViewEditDisplay(component=question.component or "")),
    )
    return FamilyDisplay(
        id=family.id,
        facts=tuple(_facts(family)),
        views=views,
        passages=tuple(_passages(family, names)),
        findings=build_finding_displays(family, names[1:-1]),
        provenance=tuple(_provenance(family.provenance)) if family.provenance else (),
        failures=tuple(map(str, check_family(family))),
    )


def name_family_views(family: Family) -> tuple[str, ...]:
    """Return the names of the views in order; several edits of the evidence are numbered."""
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


def _provenance(provenance: FamilyProvenance) -> Iterator[tuple[str, str]]:
    yield "constructor", provenance.constructor
    yield "verifier", provenance.verifier
    yield "verified again by", provenance.reverifier if provenance.reverifier is not None else "none"
    yield "attempts", ", ".join(f"{part} {count}" for part, count in provenance.attempts.items()) or "not counted"
    yield "guidelines", provenance.guidelines


# One view.


def _view(
    name: str, view: View, gold: View | None, change: ViewEditDisplay | None = None, first: int | None = None
) -> ViewDisplay:
    """Return one view; ``gold`` is None for Gold itself, ``first`` the index of the first affected step."""
    texts, gold_texts = view.trace.texts, gold.trace.texts if gold else ()
    # Gold is its own counterpart.
    pairs = word_diff.match_text_counterparts(gold_texts, texts) if gold else list(range(len(texts)))
    steps = (_step(view, index, gold_texts, pair, first if gold else None) for index, pair in enumerate(pairs))
    return ViewDisplay(
        name=name,
        question=word_diff.diff_words(gold.question, view.question)
        if gold
        else word_diff.mark_text_unchanged(view.question),
        steps=tuple(steps),
        answer=word_diff.diff_words(gold.answer, view.answer) if gold else word_diff.mark_text_unchanged(view.answer),
        support=_references(view.evidence, view.support_ids),
        omitted_steps=tuple(number for number in range(1, len(gold_texts) + 1) if number - 1 not in pairs),
        change=change,
    )


def _step(view: View, index: int, gold: Sequence[str], pair: int | None, first: int | None) -> StepDisplay:
    """Return one step, compared with its counterpart of Gold."""
    text = view.trace.texts[index]
    # A family from elsewhere may have no proof, or one of fewer steps.
    recorded = index < len(view.proof)
    return StepDisplay(
        number=index + 1,
        words=_compare_with_gold(gold, text, pair),
        counterpart=None if pair is None else pair + 1,
        passages=_references(view.evidence, view.proof[index].passage_ids) if recorded else (),
        premises=tuple(premise + 1 for premise in view.proof[index].premises) if recorded else (),
        support_recorded=recorded,
        first_affected=index == first,
    )


def _compare_with_gold(gold: Sequence[str], text: str, pair: int | None) -> word_diff.MarkedText:
    """Return the words of a step, with those that differ from its counterpart marked."""
    if pair is None:
        return word_diff.mark_text_new(text)
    return word_diff.diff_words(gold[pair], text) if gold else word_diff.mark_text_unchanged(text)


def _evidence_change(edit: EvidenceEdit) -> ViewEditDisplay:
    (passage,) = _references(edit.view.evidence, (edit.passage_id,))
    intervention = edit.intervention
    if intervention is None:
        return ViewEditDisplay(passage, claim_recorded=False)
    return ViewEditDisplay(passage, intervention.claim, intervention.replacements, intervention.keep)


def _references(evidence: Sequence[Passage], ids: Sequence[str]) -> tuple[FamilyCitationDisplay, ...]:
    """Return the passages with these ids; an unknown id is kept as it is."""
    # Reversed, so that the first of several passages with one id is cited.
    index_of = {passage.id: index for index, passage in reversed(list(enumerate(evidence)))}
    return tuple(
        FamilyCitationDisplay(index_of[id_], evidence[index_of[id_]].title)
        if id_ in index_of
        else FamilyCitationDisplay(None, id_)
        for id_ in ids
    )


# The passages.


def _passages(family: Family, names: Sequence[str]) -> Iterator[PassageDisplay]:
    """Yield the passages of Gold in order, then those that only other views have."""
    views = tuple(zip(names, family.views, strict=True))
    for index, passage in enumerate(family.gold.evidence):
        yield _passage(index, passage, views)
    gold_ids = {passage.id for passage in family.gold.evidence}
    for name, view in views[1:]:
        for index, passage in enumerate(view.evidence):
            # A passage that an edit added.
            if passage.id not in gold_ids:
                version = FamilyPassageDisplay(
                    name, word_diff.mark_text_new(passage.title), word_diff.mark_text_new(passage.text)
                )
                yield PassageDisplay(index, passage.title, passage.text, (f"only in {name}",), (version,))


def _passage(index: int, passage: Passage, views: Sequence[tuple[str, View]]) -> PassageDisplay:
    versions, absent = [], []
    for name, view in views[1:]:
        other = next((candidate for candidate in view.evidence if candidate.id == passage.id), None)
        if other is None:
            absent.append(name)
        # Title and text are compared separately, so an unchanged title is printed plainly.
        elif other != passage:
            title = word_diff.diff_words(passage.title, other.title)
            versions.append(FamilyPassageDisplay(name, title, word_diff.diff_words(passage.text, other.text)))
    # Notes: who uses the passage, where it differs, where it is absent.
    supported = [name for name, view in views if passage.id in view.support_ids]
    everywhere = len(supported) == len(views)
    notes = (
        *([f"supports {'every view' if everywhere else ', '.join(supported)}"] if supported else ()),
        *([f"changed in {', '.join(version.view for version in versions)}"] if versions else ()),
        *([f"not in {', '.join(absent)}"] if absent else ()),
    )
    return PassageDisplay(index, passage.title, passage.text, notes, tuple(versions))
