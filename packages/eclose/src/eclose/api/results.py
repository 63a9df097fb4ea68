"""Results of judged runs: rates, one row for each response, and the files of a report.

``diagnose`` reads the folders of judged runs and returns ``Results``. ``eclose.evaluate`` judges responses and returns
the same type.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from eclose.diagnosis.diagnose import Diagnosis, TraceStratum, diagnose_labels
from eclose.diagnosis.number_format import format_count, format_percent_with_interval
from eclose.diagnosis.response_failure import (
    COLUMN_TYPES,
    count_false_labels,
    describe_response_failure,
    describe_responses,
)
from eclose.diagnosis.run_counts import RunCounts, count_runs
from eclose.errors import SettingError
from eclose.files.parquet import get_remote_url, import_pyarrow, list_arrow_fields, split_path_pattern
from eclose.files.run_folder import REPORT_FOLDER, REPORT_PAGE, VALIDATION_FILE, list_paths
from eclose.files.tables import fit_column_type, infer_column_types
from eclose.metrics.rates import Metric
from eclose.readers.judged_run import JudgedCase, copy_unfinished_run, is_settled_by_people, name_run_folders
from eclose.report.context import BaseComparison, ReportContext, add_corrected_rates
from eclose.report.formats.file_formats import ReportFormat
from eclose.report.wording import describe_abstentions, describe_missing_traces
from eclose.stats.intervals import Estimate, Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import pandas as pd
    import pyarrow as pa

    from eclose.diagnosis.compare import RunComparison
    from eclose.readers.judged_run import JudgedCaseSet
    from eclose.values.verdict import FailureKind

_WORST = 5
"""Responses that the HTML view of a notebook lists."""


@dataclass(frozen=True, slots=True)
class MetricRate:
    """One rate of a set of responses.

    Attributes:
        value: The share of the judged responses; None where no response counts.
        interval: 95 % interval over questions.
        n: Judged responses in the denominator.
        unjudged: Responses without the label that would tell.
        bounds: Least and greatest value, whatever the unjudged responses turn out to be.
        corrected: The rate as labels of people correct it; None without a validation of the judge.
    """

    value: float | None
    interval: Interval | None
    n: int
    unjudged: int
    bounds: Interval | None
    corrected: Estimate | None = None

    def __str__(self) -> str:
        """Return ``63.8 % [59.7, 68.0], n = 600``."""
        return f"{format_percent_with_interval(self.value, self.interval)}, n = {self.n:,}"


class Rates(dict[str, MetricRate]):
    """Rates by their short names: Acc, LSR, A, C, K, GSR, TRR, LGG, LggShare, LggRisk and LggSound."""

    def __repr__(self) -> str:
        return "\n".join(f"{name:<9}{rate}" for name, rate in self.items())


@dataclass(frozen=True)
class Results:
    """Judged responses with their rates.

    Attributes:
        diagnosis: Counts and rates of all responses and of every group.
        cases: Every response with its question and judgment; of a run with more than 100,000 responses a sample, with
            all failures first.
        context: Validation of the judge, comparison and omitted responses, which a report prints beside the figures.
        notices: Sentences to read before the rates, on stale files and unused records.
        folder: Folder of the first run.
        counted: Labels of a large run, from whose files ``failures`` reads; None where ``cases`` holds every response.
    """

    diagnosis: Diagnosis
    cases: tuple[JudgedCase, ...]
    context: ReportContext
    notices: tuple[str, ...] = ()
    folder: Path | None = None
    counted: RunCounts | None = field(default=None, repr=False, compare=False)

    @property
    def rates(self) -> Rates:
        """All rates, with n, 95 % intervals, bounds and corrections."""
        overall, corrected = self.diagnosis.overall, self.context.corrected or {}
        return Rates(
            (
                str(metric),
                MetricRate(
                    value=rate.value,
                    interval=overall.estimates[metric].interval,
                    n=rate.n,
                    unjudged=rate.unjudged,
                    bounds=rate.bounds,
                    corrected=corrected.get(metric),
                ),
            )
            for metric, rate in overall.rates.items()
        )

    @property
    def worst(self) -> tuple[JudgedCase, ...]:
        """Unreliable responses, those with the most broken labels first."""
        unreliable = [case for case in self.cases if case.verdict.reliable is False]
        return tuple(sorted(unreliable, key=lambda case: (-count_false_labels(case.verdict), case.response.id)))

    def __len__(self) -> int:
        """Return the number of judged responses; a large run has more of them than ``cases``."""
        return self.diagnosis.overall.responses

    def __iter__(self) -> Iterator[JudgedCase]:
        return iter(self.cases)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one row for each response: ids, labels, what is wrong, how it was read, and your own columns.

        What was asked on request follows the labels: ``criterion_NAME`` for your own criteria; ``passages``,
        ``context_precision`` and ``context_recall``. A column of your own has ``own_`` before its name where the row
        has another one of that name.
        """
        return describe_responses(self.cases)

    def to_arrow(self) -> pa.Table:
        """Return the rows of ``to_dicts`` as an Arrow table; needs ``eclose[parquet]``."""
        arrow, _ = import_pyarrow("an Arrow table")
        rows = self.to_dicts()
        # Stated, not inferred: a column without any value would get the type null.
        types = dict.fromkeys(rows[0] if rows else (), str) | infer_column_types(rows)
        types |= {name: kind for name, kind in COLUMN_TYPES.items() if name in types}
        fitted = [{name: fit_column_type(value, types[name]) for name, value in row.items()} for row in rows]
        return arrow.Table.from_pylist(fitted, schema=arrow.schema(list_arrow_fields(types)))

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows of ``to_dicts`` as a data frame; missing labels are ``<NA>``.

        A response whose labels do not decide it is ``<NA>`` in ``reliable``: neither ``True`` nor ``False`` selects it.
        """
        import pandas as pd  # noqa: PLC0415 - not a dependency of the package

        frame = pd.DataFrame.from_records(self.to_dicts())
        types = {bool: "boolean", int: "Int64", float: "Float64"}
        return frame.astype({name: types[kind] for name, kind in COLUMN_TYPES.items() if name in frame.columns})

    def failures(self, kind: FailureKind | str | None = None) -> list[dict[str, Any]]:
        """Return the responses that need mending, as ``eclose failures`` lists them: the largest kind first.

        Args:
            kind: Only those of one kind: ``retrieval``, ``abstained``, ``unsound``, ``path``, ``incomplete``,
                ``decoupling`` or ``closure``. Every unreliable response has exactly one.

        Examples:
            >>> results = eclose.diagnose("demo")
            >>> {row["kind"] for row in results.failures("decoupling")}
            {'decoupling'}
        """
        from eclose.report.failures import FailureList  # noqa: PLC0415 - imports templates

        page = None if self.folder is None else find_report_page(self.folder)
        return [*FailureList(self.counted or RunCounts.of(self.cases), kind, page)]

    def report(self, folder: Path | str, formats: Collection[ReportFormat] = tuple(ReportFormat)) -> dict[str, Path]:
        """Write the same files as ``eclose report``, byte for byte.

        Args:
            folder: Folder of the files; it is created where it does not exist.
            formats: Files to write. Figures need matplotlib and are left out without it.

        Returns:
            The path of each file by its name.
        """
        from eclose.report.write import write_report_files  # noqa: PLC0415 - imports templates and plots

        return write_report_files(self.diagnosis, self.cases, Path(folder), self.context, formats)

    def __repr__(self) -> str:
        """Return the numbers of responses and questions, and the rates."""
        overall = self.diagnosis.overall
        counts = f"{format_count(overall.responses, 'response')} to {format_count(overall.questions, 'question')}"
        return f"{counts}\n{self.rates!r}"

    def _repr_html_(self) -> str:
        """Return the verdict, the rates and the worst responses for a notebook."""
        from eclose.report.formats.html_template import load_page_template  # noqa: PLC0415
        from eclose.report.headline import build_report_headline  # noqa: PLC0415

        statements = build_report_headline(self.diagnosis, self.context)
        worst = [(case.response.id, describe_response_failure(case)) for case in self.worst[:_WORST]]
        # Jinja escapes the values: a notebook runs whatever markup it is given.
        return load_page_template("results.html").render(
            title=self.context.title,
            notices=self.notices,
            trust=self.context.trust,
            statements=[(part.counted, part.lead, str(part.figure), part.meaning) for part in statements],
            rates=[(name, str(rate)) for name, rate in self.rates.items()],
            worst=worst,
            unreliable=len(self.worst),
        )


def diagnose(
    runs: Path | str | Sequence[Path | str],
    *,
    against: Path | str | None = None,
    validation: Path | str | None = None,
    title: str | None = None,
    origin: TraceStratum | str | None = None,
    seed: int = 42,
    resamples: int = 2_000,
    allow_stale: bool = False,
    notify: Callable[[str], None] | None = None,
) -> Results:
    """Diagnose judged runs: which responses are unreliable, how often, and why.

    Args:
        runs: Folder of a judged run, or several that are diagnosed together; also tables of their labels
            (``write_labels``), by file, folder or pattern, on disk or in object storage.
        against: Folder of another judged run to compare with, question by question.
        validation: File that ``eclose judge validate`` wrote; the one in the folder of a single run by default.
        title: Title of the report.
        origin: Traces to report, ``stated``, ``prose`` or ``hidden``; rates of one origin are not comparable with those
            of another. By default stated traces, or prose where none is stated, and the others in rows of their own.
        seed: Seed of the intervals of corrected rates and differences.
        resamples: Bootstrap resamples of the comparison.
        allow_stale: Use judgments although questions or responses changed after they were judged; every output says so.
        notify: Function that is called with each notice at once; ``Results.notices`` has all of them.

    Returns:
        The rates, one row for each response, and the report.

    Raises:
        UserError: A folder holds no judged run, or judgments of other responses.

    Examples:
        >>> results = eclose.diagnose("demo")
        >>> len(results)
        60
        >>> "report.html" in results.report("report")
        True
    """
    notify = notify or _ignore
    folders = list_paths(runs)
    with TemporaryDirectory(prefix="eclose-") as scratch:
        copies = {run: copy_unfinished_run(run, Path(scratch) / str(number)) for number, run in enumerate(folders)}
        if unfinished := [copy[1] for copy in copies.values() if copy is not None]:
            for sentence in unfinished:
                notify(sentence)
            results = diagnose(
                [run if (copy := copies[run]) is None else copy[0] for run in folders],
                against=against,
                validation=validation,
                title=title,
                origin=origin,
                seed=seed,
                resamples=resamples,
                allow_stale=allow_stale,
                notify=notify,
            )
            return replace(results, notices=(*unfinished, *results.notices), folder=folders[0])
    notices: list[str] = []

    def note(sentences: Iterable[str]) -> None:
        for sentence in sentences:
            notices.append(sentence)
            notify(sentence)

    validation = None if validation is None else Path(validation)
    base_folders = [] if against is None else [Path(against)]
    stratum = None if origin is None else TraceStratum(origin)
    counted = count_runs(folders, allow_stale=allow_stale, stratum=stratum)
    case_set = counted.case_set
    note(list_run_caveats(case_set))
    diagnosis = diagnose_labels(counted.labels, counted.whole)
    stale = _stale_validation(folders, validation)
    note([*(f"STALE: {sentence}" for sentence in stale), *describe_abstentions(diagnosis)])
    note(_describe_abstentions(case_set.cases))
    context = _context(case_set, stale, title)
    if base_folders:
        base = count_runs(base_folders, allow_stale=allow_stale, stratum=diagnosis.stratum)
        note(list_run_caveats(base.case_set))
        name = name_run_folders([*folders, *base_folders])[-1]
        context = _compared(context, counted, base, name, seed, resamples)
    else:
        context = replace(context, systems=_paired_systems(counted, seed, resamples))
    context = _scored(context, folders, case_set.cases, allow_stale=allow_stale)
    note(context.score_notices)
    # The command prints these among the cautions of the report.
    missing = describe_missing_traces(diagnosis.without_trace, diagnosis.overall.responses)
    notices += (*missing, *_describe_unlabelled(diagnosis))
    # Each part has its own generator from the same seed, so a comparison does not change the corrected rates.
    validated = validation is not None or (folders[0] / VALIDATION_FILE).exists()
    context = _corrected(context, folders, counted if validated else RunCounts.of(()), validation, seed)
    if context.validation is None:  # a validation treats the labels as those of a judge
        context = replace(context, settled_by_people=is_settled_by_people(folders, diagnosis.judges))
    results = Results(diagnosis=diagnosis, cases=tuple(case_set.cases), context=context, notices=tuple(notices))
    return replace(results, folder=folders[0], counted=counted if counted.sampled else None)


def _describe_unlabelled(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return a sentence on the responses that are neither reliable nor unreliable."""
    unlabelled = diagnosis.overall.rates[Metric.TRACE_RELIABILITY_RATE].unjudged
    if not unlabelled:
        return ()
    return (
        f"{unlabelled:,} of {format_count(diagnosis.overall.responses, 'response')} lack labels and are neither "
        "reliable nor unreliable: their `reliable` is None (<NA> in to_pandas), which a filter for False omits.",
    )


def _describe_abstentions(cases: Iterable[JudgedCase]) -> tuple[str, ...]:
    """Return a sentence on abstentions that count as reliable although the passages settle the question.

    Only judgments of earlier versions and of people, which do not record abstentions, have such.
    """
    ids = [case.response.id for case in cases if case.verdict.reliable and case.abstains]
    if not ids:
        return ()
    listed = ", ".join(ids[:_WORST]) + (", …" if len(ids) > _WORST else "")
    return (
        f"{format_count(len(ids), 'response')} reliable by L, A and C whose answer is an abstention, although the "
        f"passages settle the question: {listed}.",
    )


def _context(case_set: JudgedCaseSet, stale: Sequence[str], title: str | None) -> ReportContext:
    context = ReportContext(
        left_out=case_set.left_out,
        stale=(*case_set.stale, *stale),
        selected=case_set.selected,
        rejected=case_set.rejected,
        checked=case_set.checked,
    )
    return context if title is None else replace(context, title=title)


def _scored(
    context: ReportContext, runs: Sequence[Path], cases: Sequence[JudgedCase], *, allow_stale: bool
) -> ReportContext:
    from eclose.report.scores import read_score_columns  # noqa: PLC0415 - rarely needed

    ids = [case.response.id for case in cases]
    columns, notices, rejected = read_score_columns(runs, ids, allow_stale=allow_stale)
    return replace(context, scores=columns, score_notices=notices, rejected={**context.rejected, **rejected})


def _ignore(_notice: str) -> None:
    """Drop a notice."""


def compare(
    run: Path | str,
    base: Path | str,
    *,
    origin: TraceStratum | str | None = None,
    seed: int = 42,
    resamples: int = 2_000,
    allow_stale: bool = False,
) -> BaseComparison:
    """Compare two judged runs on the questions that both answer.

    Args:
        run: Folder of a judged run.
        base: Folder of the judged run to compare with.
        origin: Traces to compare, as in ``diagnose``.
        seed: Seed of the intervals.
        resamples: Bootstrap resamples of questions.
        allow_stale: Use judgments although questions or responses changed after they were judged.

    Returns:
        The difference of every rate with its interval, and the responses that changed class.

    Raises:
        UserError: The runs share no question, or one id stands for two questions.

    Examples:
        >>> comparison = eclose.compare("demo", "demo")
        >>> comparison.comparison.overall.questions
        30
    """
    results = diagnose(run, against=base, origin=origin, seed=seed, resamples=resamples, allow_stale=allow_stale)
    comparison = results.context.base
    assert comparison is not None
    return comparison


def default_report_folder(run: Path | str) -> Path:
    """Return the folder that ``eclose diagnose`` and ``eclose report`` write to by default.

    Raises:
        SettingError: The run is in object storage, where no report is written.
    """
    if (url := get_remote_url(run)) is not None:
        raise SettingError(f"{url}: is in object storage. Name a folder on this computer for the report with --out.")
    folder = Path(split_path_pattern(run)[0])
    return (folder.parent if folder.suffix == ".parquet" else folder) / REPORT_FOLDER


def find_report_page(run: Path | str) -> Path | None:
    """Return the page in the folder that commands write it to; None where there is none."""
    page = None if get_remote_url(run) is not None else default_report_folder(run) / REPORT_PAGE
    return page if page is not None and page.is_file() else None


def list_run_caveats(case_set: JudgedCaseSet) -> Iterator[str]:
    """Yield the sentences on stale files, marked with ``STALE``, and then all other notices."""
    yield from (f"STALE: {sentence}" for sentence in case_set.stale)
    yield from case_set.notices[len(case_set.stale) :]


def _stale_validation(runs: Sequence[Path], validation: Path | None) -> tuple[str, ...]:
    """Return a sentence for each file that was stale when the judge was validated."""
    from eclose.judging.validation_file import read_validation  # noqa: PLC0415 - the judge's modules are slow to import

    path = validation or runs[0] / VALIDATION_FILE
    # Several runs have several validations, so none is taken by default.
    if validation is None and (len(runs) > 1 or not path.exists()):
        return ()
    return tuple(f"{path.name}: {sentence}" for sentence in read_validation(path).stale)


def _compared(
    context: ReportContext, run: RunCounts, base: RunCounts, name: str, seed: int, resamples: int
) -> ReportContext:
    """Return the context with the comparison and with the stale files and unused records of the base run."""
    import numpy as np  # noqa: PLC0415

    from eclose.report.comparison import compare_with_base_run  # noqa: PLC0415

    comparison = compare_with_base_run(run, base, name, rng=np.random.default_rng(seed), resamples=resamples)
    stale = (*context.stale, *(f"{name}: {sentence}" for sentence in base.caveats.stale))
    rejected = {f"{name}/{file}": reasons for file, reasons in base.caveats.rejected.items()}
    return replace(context, base=comparison, stale=stale, rejected={**context.rejected, **rejected})


def _paired_systems(run: RunCounts, seed: int, resamples: int) -> tuple[str, str, RunComparison] | None:
    """Return the comparison of two systems; None for another number, or where they share no question."""
    import numpy as np  # noqa: PLC0415

    from eclose.diagnosis.compare import compare_counted_runs  # noqa: PLC0415

    systems = run.labels.systems()
    if not systems:
        return None
    base, name = sorted(systems)
    if set(systems[base].questions).isdisjoint(systems[name].questions):
        return None
    rng = np.random.default_rng(seed)
    return base, name, compare_counted_runs(systems[name], systems[base], rng=rng, resamples=resamples)


def _corrected(
    context: ReportContext, runs: Sequence[Path], counted: RunCounts, validation: Path | None, seed: int
) -> ReportContext:
    """Return the context with the corrected rates of the runs, or with the reason why there are none."""
    import numpy as np  # noqa: PLC0415

    from eclose.judging.correct_rates import correct_run_rates  # noqa: PLC0415

    rng = np.random.default_rng(seed)
    verdicts, judges = counted.list_verdicts(), counted.judges
    return add_corrected_rates(context, correct_run_rates(runs, verdicts, judges, validation, rng=rng))
