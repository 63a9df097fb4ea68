"""Scores of detectors joined with responses and settled verdicts: the detector study of the paper (appendix A.5).

Every response and every score is accounted for: used, or left out under a reason. Responses without a score and
responses whose group is undecided are left out; neither is ever given a score or a group instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from eclose.detectors.scores import DetectorKind, DetectorScore
from eclose.detectors.study_statistics import (
    DISJOINT_GROUPS,
    DetectorIdentity,
    DetectorResult,
    ScoreTable,
    StudyGroup,
    StudySettings,
    compute_detector_results,
    list_study_groups,
)
from eclose.errors import UserError
from eclose.files.json_reader import require_regular_file
from eclose.files.jsonl import read_records
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.files.verify import ProvenanceCheck, check_result_provenance, check_verdicts_provenance
from eclose.readers.judged_run import describe_rejects, read_judged_cases, read_run_records, refuse_reused_question_ids
from eclose.stats.arrays import Flags, number_distinct_labels
from eclose.values.model_family import same_model_family
from eclose.values.response import Response
from eclose.values.verdict import SettledVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from eclose.values.verdict import Verdict

NO_RECORD = "not run"
"""Reason of a response for which a detector has no record, neither a score nor a reason."""
NO_VERDICT = "no verdict"
"""Reason of a response that was never judged."""


@dataclass(frozen=True, slots=True)
class GroupScoreCounts:
    """How many responses of a group one detector scored, and why it did not score the others."""

    responses: int
    scored: int
    unscored: Mapping[str, int]
    """Responses without a score by reason; with ``scored`` they add up to ``responses``."""


@dataclass(frozen=True, slots=True)
class DetectorCounts:
    """What became of the records of one detector."""

    records: int
    groups: Mapping[StudyGroup, GroupScoreCounts]
    undecided: GroupScoreCounts
    """Responses whose labels decide no group; the study uses none of their scores."""
    unknown_responses: int
    """Records about responses that are not in the study's input."""

    @property
    def used(self) -> int:
        """Scores that the statistics rest on."""
        return sum(self.groups[group].scored for group in DISJOINT_GROUPS)


@dataclass(frozen=True, slots=True)
class StudyInputs:
    """Scores of detectors, and responses with settled verdicts, with what a reader must know about them."""

    scores: Sequence[DetectorScore]
    """Records of one or more detectors, at most one for each response and detector."""
    responses: Sequence[Response]
    verdicts: Sequence[SettledVerdict]
    """Settled verdicts on the responses, of people or of a judge."""
    label_source: str = ""
    """Who labelled the responses, in a sentence."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Responses of the runs that cannot be studied, by reason."""
    notices: tuple[str, ...] = ()
    """Sentences on stale, unchecked and unused files; the report prints them first."""


@dataclass(frozen=True, slots=True)
class DetectorStudy:
    """Statistics of all detectors, each on the responses that it scored."""

    settings: StudySettings
    responses: int
    """Responses of the input: those of the three disjoint groups and the undecided ones."""
    questions: int
    """Questions with a decided response; these are drawn."""
    groups: Mapping[StudyGroup, int]
    undecided: Mapping[str, int]
    """Responses without a group by reason: which labels are missing."""
    unclassified: Mapping[str, int]
    """Responses in the gap that are in none of its three classes, by the class that is known of them."""
    unknown_verdicts: int
    """Verdicts on responses that are not in the input."""
    results: tuple[DetectorResult, ...]
    counts: Mapping[DetectorIdentity, DetectorCounts]
    unshared: int
    """Decided responses that some of the detectors scored, and others did not."""
    common_responses: int
    """Decided responses that every detector scored."""
    common: tuple[DetectorResult, ...]
    """The same statistics on the common responses; empty unless the detectors differ by more than is tolerated."""
    same_family_pairs: tuple[tuple[str, str], ...]
    """Pairs of a detector's model and a model of the same family whose responses it scored."""
    label_source: str
    left_out: Mapping[str, int]
    notices: tuple[str, ...]


def study_detectors(inputs: StudyInputs, settings: StudySettings | None = None) -> DetectorStudy:
    """Compute the statistics of the paper's detector study, and what was left out.

    Raises:
        UserError: There is no score, or no decided response; an id stands for two responses; a response has two
            verdicts or two scores of one detector, or a verdict that names another question.
    """
    settings = settings or StudySettings()
    # Sorted, so that folds and draws do not depend on the order of records in files.
    answered = dict(sorted(index_responses(inputs.responses).items()))
    labels = index_verdicts(inputs.verdicts)
    records = index_scores(inputs.scores)
    table = make_score_table(answered, labels, records)
    scored = ~np.isnan(table.scores)
    common: Flags = np.logical_and.reduce(scored)
    scored_by_some: Flags = np.logical_or.reduce(scored)
    unshared = int((scored_by_some & ~common).sum())
    differ = unshared > settings.tolerated_difference * int(scored_by_some.sum())
    groups = {id_: list_study_groups(labels[id_].verdict) if id_ in labels else () for id_ in answered}
    # Models of detectors with the models whose responses they scored: a model may favour its own family.
    pairs = {
        (detector.model, source.model)
        for detector, part in records.items()
        for response_id in part
        if (response := answered.get(response_id)) is not None and (source := response.source) is not None
    }
    return DetectorStudy(
        settings=settings,
        responses=len(answered),
        questions=len(table.dataset),
        groups={group: int(table.members[group].sum()) for group in StudyGroup},
        undecided=_count_reasons(_explain_undecided(labels.get(id_)) for id_ in answered if not groups[id_]),
        unclassified=_count_reasons(
            str(labels[id_].verdict.failure_class) for id_ in answered if groups[id_] == (StudyGroup.GAP,)
        ),
        unknown_verdicts=len(labels.keys() - answered.keys()),
        results=compute_detector_results(table, settings),
        counts={detector: count_records(part, groups) for detector, part in records.items()},
        unshared=unshared,
        common_responses=int(common.sum()),
        common=compute_detector_results(table.restrict_responses(common), settings) if differ else (),
        same_family_pairs=tuple(sorted(pair for pair in pairs if same_model_family(*pair))),
        label_source=inputs.label_source,
        left_out=inputs.left_out,
        notices=inputs.notices,
    )


def study_run(
    runs: Sequence[Path],
    score_files: Sequence[Path],
    *,
    verdicts: Path | None = None,
    settings: StudySettings | None = None,
    allow_stale: bool = False,
) -> DetectorStudy:
    """Compute the statistics of the detector study for the files of labelled runs, as ``read_study_inputs`` takes them.

    Raises:
        UserError: The files do not belong together, or hold no score or no decided response.
    """
    return study_detectors(read_study_inputs(runs, score_files, verdicts, allow_stale=allow_stale), settings)


def index_responses(responses: Iterable[Response]) -> dict[str, Response]:
    """Return the responses by id; raise at an id that stands for two."""
    answered: dict[str, Response] = {}
    for response in responses:
        if response.id in answered:
            raise UserError(f"two responses have the id {response.id!r}. Give every response a unique id.")
        answered[response.id] = response
    return answered


def index_verdicts(verdicts: Iterable[SettledVerdict]) -> dict[str, SettledVerdict]:
    """Return the verdicts by response id; raise at a second one on a response."""
    labels: dict[str, SettledVerdict] = {}
    for row in verdicts:
        if row.response_id in labels:
            raise UserError(f"response {row.response_id!r} has two verdicts. Keep the settled one.")
        labels[row.response_id] = row
    return labels


def index_scores(scores: Iterable[DetectorScore]) -> dict[DetectorIdentity, dict[str, DetectorScore]]:
    """Return the records by detector and response id, in the order of the paper's tables."""
    records: dict[DetectorIdentity, dict[str, DetectorScore]] = {}
    for record in scores:
        part = records.setdefault(DetectorIdentity(record.detector, record.model), {})
        if record.response_id in part:
            raise UserError(
                f"response {record.response_id!r} has two scores of {record.detector} with {record.model}."
                " Name every file of scores once, and keep one run of each detector."
            )
        part[record.response_id] = record
    if not records:
        raise UserError("there is no score to study. Score the responses first.")
    kinds = list(DetectorKind)
    return dict(sorted(records.items(), key=lambda item: (kinds.index(item[0].kind), item[0].model)))


def make_score_table(
    answered: Mapping[str, Response],
    labels: Mapping[str, SettledVerdict],
    records: Mapping[DetectorIdentity, Mapping[str, DetectorScore]],
) -> ScoreTable:
    """Return the scores on the decided responses; raise where there is none."""
    rows: list[SettledVerdict] = []
    for response_id, response in answered.items():
        row = labels.get(response_id)
        if row is not None and row.instance_id != response.instance_id:
            raise UserError(
                f"the verdict on response {response_id!r} names question {row.instance_id!r}, and the response answers"
                f" {response.instance_id!r}. Use the verdicts of this run."
            )
        if row is not None and list_study_groups(row.verdict):
            rows.append(row)
    if not rows:
        raise UserError("no response has labels that decide its group. Judge or label the responses first.")
    # Ids of questions are unique within a benchmark only.
    keys = [(row.benchmark or "", row.instance_id) for row in rows]
    questions = sorted(set(keys))
    number = {key: index for index, key in enumerate(questions)}
    dataset, _ = number_distinct_labels([benchmark for benchmark, _ in questions])
    groups = [list_study_groups(row.verdict) for row in rows]
    # A response without a score has NaN, which numpy makes of None.
    scores = [
        [None if (record := part.get(row.response_id)) is None else record.score for row in rows]
        for part in records.values()
    ]
    return ScoreTable(
        detectors=tuple(records),
        response_ids=tuple(row.response_id for row in rows),
        scores=np.array(scores, float),
        question=np.array([number[key] for key in keys], np.intp),
        dataset=dataset,
        members={group: np.array([group in parts for parts in groups], bool) for group in StudyGroup},
    )


def _explain_undecided(row: SettledVerdict | None) -> str:
    """Return why a response has no group: the labels that are missing among L, A and C."""
    if row is None:
        return NO_VERDICT
    verdict: Verdict = row.verdict
    if verdict.abstained:
        return "it says that it found no answer"
    labels = {"L": verdict.locally_sound, "A": verdict.aligned, "C": verdict.closed}
    return f"no label {' and '.join(letter for letter, label in labels.items() if label is None)}"


def _count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(reasons).items()))


def count_records(part: Mapping[str, DetectorScore], groups: Mapping[str, tuple[StudyGroup, ...]]) -> DetectorCounts:
    """Return what became of a detector's records, group by group."""
    return DetectorCounts(
        records=len(part),
        groups={
            group: _count_group(part, [id_ for id_, members in groups.items() if group in members])
            for group in StudyGroup
        },
        undecided=_count_group(part, [id_ for id_, members in groups.items() if not members]),
        unknown_responses=len(part.keys() - groups.keys()),
    )


def _count_group(part: Mapping[str, DetectorScore], ids: Sequence[str]) -> GroupScoreCounts:
    records = [part.get(id_) for id_ in ids]
    reasons = [NO_RECORD if record is None else record.unscored for record in records]
    unscored = _count_reasons(str(reason) for reason in reasons if reason is not None)
    return GroupScoreCounts(len(ids), reasons.count(None), unscored)


UNCHECKED_SCORES = "No manifest says which responses these scores were made from, so that was not checked."


def read_study_inputs(
    runs: Sequence[Path], score_files: Sequence[Path], verdicts: Path | None = None, *, allow_stale: bool = False
) -> StudyInputs:
    """Read the responses of runs, their settled verdicts and the scores of detectors.

    The verdicts are those of a file, such as those of people, or else the judgments of the runs. With ``allow_stale``,
    a notice says which results were made from other files.

    Raises:
        UserError: A result was made from other files, a file holds no score, or one id stands for two questions.
    """
    scores: list[DetectorScore] = []
    for path in score_files:
        require_regular_file(path)
        scores += (records := list(read_records(path, DetectorScore)))
        if not records:
            raise UserError(f"{path}: there is no score in this file. Check that this is the file you meant.")
    provenance = [_check_scores(path, runs, allow_stale=allow_stale) for path in score_files]
    notices = [f"STALE: {sentence}" for check in provenance for sentence in check.stale]
    notices += [UNCHECKED_SCORES] if not all(check.checked for check in provenance) else []
    labelled = (
        _read_judged(runs, allow_stale=allow_stale)
        if verdicts is None
        else _read_with_verdicts(runs, verdicts, allow_stale=allow_stale)
    )
    return replace(labelled, scores=scores, notices=(*labelled.notices, *notices))


def _check_scores(path: Path, runs: Sequence[Path], *, allow_stale: bool) -> ProvenanceCheck:
    """Compare a file of scores, and the questions and responses of its folder, with its manifest."""
    # A file of scores belongs to the run in whose folder it lies; elsewhere, to the only run.
    run = next((run for run in runs if run.resolve() == path.resolve().parent), runs[0] if len(runs) == 1 else None)
    sources = () if run is None else (run / INSTANCES_FILE, run / RESPONSES_FILE)
    check = check_result_provenance(path, [source for source in sources if source.is_file()])
    return check.refuse_stale(path, "Score the responses again", allow_stale=allow_stale)


def _read_judged(runs: Sequence[Path], *, allow_stale: bool) -> StudyInputs:
    # Read one by one: scores have the plain response ids, so ids must not get the names of runs before them.
    parts = [read_judged_cases(run, allow_stale=allow_stale) for run in runs]
    refuse_reused_question_ids(*(part.cases for part in parts))
    cases = [case for part in parts for case in part.cases]
    judges = ", ".join(sorted({case.judgment.judge for case in cases}))
    stale = [f"STALE: {sentence}" for part in parts for sentence in part.stale]
    others = [sentence for part in parts for sentence in part.notices[len(part.stale) :]]
    return StudyInputs(
        scores=(),
        responses=tuple(case.response for case in cases),
        verdicts=tuple(case.row for case in cases),
        label_source=f"The groups rest on the labels of {judges}, as settled in the judgments.",
        left_out=_count_reasons(reason for part in parts for _, reason in part.left_out),
        notices=tuple(dict.fromkeys([*stale, *others])),
    )


def _read_with_verdicts(runs: Sequence[Path], verdicts: Path, *, allow_stale: bool) -> StudyInputs:
    require_regular_file(verdicts)
    check = check_verdicts_provenance(verdicts, allow_stale=allow_stale)
    parts = [read_run_records(run) for run in runs]
    rejects = chain.from_iterable(describe_rejects(part.rejected) for part in parts)
    return StudyInputs(
        scores=(),
        responses=tuple(response for part in parts for response in part.responses),
        verdicts=tuple(read_records(verdicts, SettledVerdict)),
        label_source=f"The groups rest on the settled verdicts in {verdicts.name}.",
        left_out=_count_reasons(reason for part in parts for _, reason in part.left_out),
        notices=(*(f"STALE: {sentence}" for sentence in check.stale), *rejects),
    )
