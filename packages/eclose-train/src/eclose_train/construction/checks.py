"""Checks of families: of each part by models, and of a whole file by code alone.

Models check candidates under construction and finished families by the same functions. Code checks the form, the gates,
repeated ids, and whether families are short enough to train on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.files.id_set import SeenIds
from eclose.files.jsonl import ReadRecord, encode_json_line
from eclose.prompts.material_json import disclose_passages, disclose_steps
from eclose.values.family_rules import check_family
from eclose_train.construction import questions as material
from eclose_train.construction.lengths import make_path_counter
from eclose_train.families.files import open_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import TypeAlias

    from eclose.values.family import EvidenceEdit, Family, FamilyFinding, QuestionEdit, View
    from eclose.values.instance import Instance, Passage
    from eclose_train.construction.candidates import CandidateRejection
    from eclose_train.construction.lengths import PathTokenCounter
    from eclose_train.construction.roles import ConstructionTeam

    CheckResult: TypeAlias = "tuple[FamilyFinding, ...] | CandidateRejection"
    """Findings on an accepted part, or the first objection."""


class FamilyProblem(NamedTuple):
    """A problem of a record: where it is, the gate that it fails, and the detail."""

    where: str
    gate: str
    detail: str


@dataclass
class FamilyValidation:
    """The counts and problems of a file of families."""

    path: Path
    passed: int = 0
    failed: int = 0
    unreadable: int = 0
    problems: list[FamilyProblem] = field(default_factory=list)

    @property
    def received(self) -> int:
        """Number of records in the file."""
        return self.passed + self.failed + self.unreadable


def validate_families(
    path: Path | str,
    *,
    tokenizer: str | None = None,
    max_length: int = 8_192,
    hub: bool = False,
    wrap: Callable[[Iterable[Any], str], Iterable[Any]] = lambda records, _label: records,
) -> FamilyValidation:
    """Check all that code can check in a file of families, in ``families.jsonl`` of a run's folder, or in a dataset.

    Tokens are estimated without ``tokenizer``, a folder or name of the model to train. ``wrap`` wraps the records with
    a label, for a progress display.
    """
    source = open_families(path, hub=hub)
    validation = FamilyValidation(source.json_file or Path(path))
    length, ids = make_path_counter(tokenizer), SeenIds()
    for number, record in enumerate(wrap(source.scan(), f"reading {validation.path.name}"), start=1):
        problems = list(_list_problems(record, number, length, max_length, ids))
        if record.error is not None:
            validation.unreadable += 1
        elif problems:
            validation.failed += 1
        else:
            validation.passed += 1
        validation.problems += (FamilyProblem(record.where, gate, detail) for gate, detail in problems)
    return validation


def _list_problems(
    record: ReadRecord[Family], number: int, length: PathTokenCounter, max_length: int, ids: SeenIds
) -> Iterator[tuple[str, str]]:
    """Yield each gate that a record fails, with the detail."""
    family = record.value
    if family is None:
        yield "unreadable", str(record.error or record.rejected)
        return
    for failure in check_family(family):
        yield failure.gate.value, f"{failure.where}: {failure.detail}"
    if first := ids.add(family.id, encode_json_line(family), number):
        yield "repeated_id", f"{family.id!r} is the id of record {first[0]} as well"
    if (tokens := length.count_family(family)) > max_length:
        yield "too_long", f"{tokens:,} tokens are more than {max_length:,}"


async def verify_source(source: Instance, reference: str, team: ConstructionTeam) -> CheckResult:
    """Check whether a family can be built from a source (seed screen)."""
    # Retained if |E| >= 2, E warrants the reference, D warrants it uniquely, and D without E does not (appendix B.2).
    seed = material.SourceScreenMaterial(source.question, disclose_passages(source.evidence), reference, source.aliases)
    return await team.judge(seed)


async def verify_target_response(gold: View, team: ConstructionTeam) -> CheckResult:
    """Check whether the original response is sound, aligned, closed and grounded; the reference is withheld."""
    # V* = L and A and C and R_E (appendix B.3).
    check = material.TargetCheckMaterial(
        gold.question,
        disclose_passages(gold.evidence),
        find_passage_indices(gold.evidence, gold.support_ids),
        disclose_steps(gold.trace),
        gold.answer,
    )
    return await team.judge(check)


async def verify_evidence_edit(gold: View, edit: EvidenceEdit, team: ConstructionTeam) -> CheckResult:
    """Check whether an evidence edit switches one step and the answer, and nothing else."""
    view, edited = edit.view, disclose_passages(edit.view.evidence)[edit.passage_index]
    question, evidence = gold.question, disclose_passages(gold.evidence)
    # The screen sees no trace, so it is the cheaper call and comes first.
    screen = material.EvidenceScreenMaterial(question, evidence, edited, gold.answer, view.answer)
    # Steps before the first affected one must hold in both contexts, that step only in its own, and closure must fail
    # for the crossed pairs of trace and answer (appendix B.4).
    check = material.EvidenceCheckMaterial(
        question,
        evidence,
        edited,
        disclose_steps(gold.trace),
        gold.answer,
        disclose_steps(view.trace),
        view.answer,
        edit.first_affected_step + 1,
    )
    return await team.judge(screen, check)


async def verify_question_edit(gold: View, edit: QuestionEdit, team: ConstructionTeam) -> CheckResult:
    """Check whether another question to the same evidence switches the trace."""
    evidence, view = disclose_passages(gold.evidence), edit.view
    # Neither answer may satisfy the other question (appendix B.5).
    screen = material.QuestionScreenMaterial(gold.question, view.question, evidence, gold.answer, view.answer)
    # Both traces must align with their own question and with no other (appendix B.5). No pair tests closure here,
    # because question and trace change together.
    check = material.QuestionCheckMaterial(
        gold.question,
        view.question,
        evidence,
        disclose_steps(gold.trace),
        gold.answer,
        disclose_steps(view.trace),
        view.answer,
    )
    return await team.judge(screen, check)


def find_passage_indices(evidence: tuple[Passage, ...], ids: tuple[str, ...]) -> tuple[int, ...]:
    """Return the indices of passages in the evidence, by their ids."""
    index_of: Mapping[str, int] = {passage.id: index for index, passage in enumerate(evidence)}
    return tuple(index_of[passage_id] for passage_id in ids)
