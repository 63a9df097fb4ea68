"""Labels of judged runs, with the responses that a report shows: all of a small run, a sample of a large one.

The records of a run are read once for their labels; the texts of responses that are shown are read by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eclose.diagnosis.compare import QuestionKey, name_outcome
from eclose.diagnosis.label_file import is_label_file, read_label_file
from eclose.diagnosis.label_table import LabelTable, TraceStratum, count_by_appearance
from eclose.diagnosis.labelled_run import HeldCases, LabelledRun, QuestionHashes, read_run_files
from eclose.diagnosis.response_sample import ResponseStratum, choose_responses
from eclose.errors import SettingError, UserError
from eclose.files.parquet import get_remote_url
from eclose.metrics.rates import VERDICTS
from eclose.readers.judged_run import (
    NAMED_TWICE,
    JudgedCase,
    JudgedCaseSet,
    combine_caveats,
    describe_contained_run,
    describe_reused_question,
    name_run_folders,
    prefix_response_id,
)
from eclose.stats.arrays import Indices
from eclose.values.verdict import SettledVerdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LARGE_RUN = 100_000
"""Responses above which a report shows a sample."""
SAMPLE_SIZE = 5_000
"""Responses of a large run that a report shows."""


@dataclass(frozen=True)
class RunCounts:
    """Labels of one or more judged runs."""

    runs: Mapping[str, LabelledRun]
    """The runs by their names."""
    shown: Indices
    """Rows of the responses that a report shows."""
    repeated_ids: bool = False
    """Whether two runs have a response id in common, so that the name of the run is put before every id."""
    whole: LabelTable | None = None
    """The labels of all strata, where ``runs`` are those of one of several."""

    @classmethod
    def of(cls, cases: Sequence[JudgedCase], stratum: TraceStratum | None = None) -> RunCounts:
        """Return the counts of cases, of those of a stratum; by default of the headline's."""
        run = LabelledRun(LabelTable.of(cases), HeldCases(cases), JudgedCaseSet(()))
        return cls({"": run}, np.arange(len(cases)))._take_stratum(stratum)

    def _take_stratum(self, stratum: TraceStratum | None) -> RunCounts:
        """Return the responses of a stratum alone, with the labels of all beside them."""
        strata = self.labels.divide_by_stratum()
        stratum = stratum or next(iter(strata), None)
        if strata.keys() <= {stratum}:
            return self
        if stratum not in strata:
            names = ", ".join(strata)
            raise UserError(f"{', '.join(self.runs)}: has no response with {stratum} traces, only {names} ones.")
        rows = strata[stratum]
        ends = np.cumsum([len(run.labels) for run in self.runs.values()])[:-1]
        runs = {
            name: run._replace(labels=run.labels.select(own))
            for (name, run), own in zip(self.runs.items(), np.split(rows, ends), strict=True)
        }
        return replace(self, runs=runs, shown=np.arange(rows.sum()), whole=self.labels)

    @cached_property
    def labels(self) -> LabelTable:
        """The labels of all runs."""
        return LabelTable.concatenate([run.labels for run in self.runs.values()])

    @cached_property
    def caveats(self) -> JudgedCaseSet:
        """The caveats of the rates, without the cases."""
        sets = {name: run.caveats for name, run in self.runs.items()}
        return next(iter(sets.values())) if len(sets) == 1 else combine_caveats(sets, repeated_ids=self.repeated_ids)

    @cached_property
    def case_set(self) -> JudgedCaseSet:
        """The responses that a report shows, and the caveats of the rates."""
        return replace(self.caveats, cases=tuple(self.read_cases(self.shown)))

    @property
    def sampled(self) -> bool:
        """Whether responses were counted that are not shown."""
        return len(self.labels) > len(self.shown)

    @property
    def judges(self) -> list[str]:
        """The judges of the responses, in the order of their first judgments."""
        return [self.labels.judges[number] for number in count_by_appearance(self.labels.judge)]

    def list_verdicts(self) -> list[SettledVerdict]:
        """Return the verdicts of all responses with their ids; without their sources where not all are shown."""
        if not self.sampled:
            return [case.row for case in self.case_set.cases]
        verdicts = []
        for name, run in self.runs.items():
            labels, prefix = run.labels, f"{name}/" if self.repeated_ids else ""
            keys = (labels.questions[number] for number in labels.question.tolist())
            codes, ids = labels.verdict.tolist(), run.source.read_ids(labels.positions)
            for id_, (benchmark, question), code in zip(ids, keys, codes, strict=True):
                verdicts.append(SettledVerdict(f"{prefix}{id_}", question, VERDICTS[code], benchmark))
        return verdicts

    def read_cases(self, rows: Indices) -> Iterator[JudgedCase]:
        """Yield the whole cases of some responses."""
        for name, run, own in self._divide(rows):
            cases = run.source.read_cases(run.labels.positions[own])
            yield from (prefix_response_id(name, case) for case in cases) if self.repeated_ids else cases

    def list_questions(self) -> Iterator[tuple[QuestionKey, QuestionHashes, int]]:
        """Yield key and hashes of the questions of each run, and a row that answers them; without unknown ones."""
        start = 0
        for run in self.runs.values():
            labels = run.labels
            # Questions are numbered in the order of their first responses.
            _, rows = np.unique(labels.question, return_index=True)
            hashes = run.source.hash_questions(labels.positions[rows])
            entries = zip(labels.questions, hashes, (start + rows).tolist(), strict=True)
            yield from (entry for entry in entries if entry[1].text)
            start += len(labels)

    def _divide(self, rows: Indices) -> Iterator[tuple[str, LabelledRun, Indices]]:
        """Yield each run with its name and its own rows among some rows of all runs."""
        start = 0
        for name, run in self.runs.items():
            yield name, run, rows[(rows >= start) & (rows < start + len(run.labels))] - start
            start += len(run.labels)


def count_runs(
    runs: Sequence[Path | str], *, allow_stale: bool = False, stratum: TraceStratum | None = None
) -> RunCounts:
    """Read the labels of judged runs together, and choose the responses to show.

    Where two runs use the same response id, the name of the run is put before every id.

    Args:
        runs: Folders of judged runs, or tables of their labels.
        allow_stale: Use judgments although questions or responses changed after they were judged.
        stratum: Stratum of the responses; by default that of the headline, and the others are counted apart.

    Raises:
        SettingError: A run is named twice.
        UserError: All responses of one run are in another one, so that they would count twice; or one id stands for
            two questions; or the conditions of ``read_judged_cases``.
    """
    if len({str(get_remote_url(run) or Path(run).resolve()) for run in runs}) < len(runs):
        raise SettingError(NAMED_TWICE)
    names = name_run_folders([Path(run) for run in runs])
    parts = {name: _read_run(run, allow_stale=allow_stale) for name, run in zip(names, runs, strict=True)}
    refuse_shared_responses(parts)
    ids = np.concatenate([run.labels.ids for run in parts.values()])
    counts = RunCounts(parts, np.arange(len(ids)), repeated_ids=len(parts) > 1 and len(np.unique(ids)) < len(ids))
    counts = counts._take_stratum(stratum)
    return replace(counts, shown=_sample(counts.labels)) if len(counts.labels) > LARGE_RUN else counts


def _sample(labels: LabelTable) -> Indices:
    """Return the rows of a sample of responses."""
    models, model = labels.group_by_model()
    benchmarks, benchmark = labels.group_by_benchmark()
    outcomes = [name_outcome(verdict) for verdict in VERDICTS]
    names = sorted(set(outcomes))
    outcome = np.array([names.index(name) for name in outcomes])[labels.verdict]
    groups, stratum = np.unique((outcome * len(benchmarks) + benchmark) * len(models) + model, return_inverse=True)
    strata = [
        ResponseStratum(names[pair // len(benchmarks)], benchmarks[pair % len(benchmarks)], models[number])
        for pair, number in (divmod(group, len(models)) for group in groups.tolist())
    ]
    return choose_responses(strata, stratum, labels.ids, SAMPLE_SIZE)


def refuse_shared_responses(runs: Mapping[str, LabelledRun]) -> None:
    """Raise UserError where all responses of a run are in another one, or where one id stands for two questions."""
    # In both orders, since either run may be a part of the other.
    for (name, run), (other_name, other) in permutations(runs.items(), 2):
        if _is_contained(run, other):
            raise UserError(describe_contained_run(name, other_name))
    refuse_reused_questions(*(RunCounts({name: run}, np.arange(len(run.labels))) for name, run in runs.items()))


def _is_contained(run: LabelledRun, other: LabelledRun) -> bool:
    """Return whether every response of a run is in another one."""
    _, rows, other_rows = np.intersect1d(run.labels.ids, other.labels.ids, assume_unique=True, return_indices=True)
    if len(rows) < len(run.labels) or not len(rows):
        return False
    # Different systems may use the same ids, so the responses themselves decide; the first difference ends it.
    order = np.argsort(rows)
    pairs = zip(
        run.source.read_cases(run.labels.positions[rows[order]]),
        other.source.read_cases(other.labels.positions[other_rows[order]]),
        strict=True,
    )
    return all(own.response == others.response for own, others in pairs)


def refuse_reused_questions(*runs: RunCounts) -> None:
    """Raise UserError where one id stands for two questions; the message has both texts."""
    if (responses := _find_reused_question(*runs)) is not None:
        first, second = (next(run.read_cases(np.array([row]))).instance for run, row in responses)
        raise UserError(describe_reused_question(first, second))


def _find_reused_question(*runs: RunCounts) -> tuple[tuple[RunCounts, int], tuple[RunCounts, int]] | None:
    """Return the first two responses to different questions with one id; None where there are none."""
    # A single run has every question once.
    if sum(len(run.runs) for run in runs) < 2:
        return None
    answers: dict[QuestionKey, tuple[int, RunCounts, int]] = {}
    for run in runs:
        for key, hashes, row in run.list_questions():
            text, first_run, first_row = answers.setdefault(key, (hashes.text, run, row))
            if text != hashes.text:
                return (first_run, first_row), (run, row)
    return None


def count_other_passages(run: RunCounts, base: RunCounts) -> int:
    """Return the number of shared questions with other passages in the base run."""
    passages, base_passages = _hash_passages(run), _hash_passages(base)
    return sum(passages[key] != base_passages[key] for key in passages.keys() & base_passages.keys())


def _hash_passages(run: RunCounts) -> dict[QuestionKey, set[int]]:
    """Return the hashes of the passages of every question, of which several runs may have several."""
    by_question: dict[QuestionKey, set[int]] = {}
    for key, hashes, _ in run.list_questions():
        by_question.setdefault(key, set()).add(hashes.passages)
    return by_question


def _read_run(run: Path | str, *, allow_stale: bool) -> LabelledRun:
    if is_label_file(run):
        return read_label_file(run, allow_stale=allow_stale)
    return read_run_files(Path(run), allow_stale=allow_stale)
