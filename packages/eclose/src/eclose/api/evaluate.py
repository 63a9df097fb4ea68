"""Judge a set of responses and diagnose them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from eclose.api.resolve import add_budget, resolve
from eclose.api.results import Results, diagnose
from eclose.calls.progress_line import watch_run
from eclose.calls.sync import also_sync, coroutine_of
from eclose.errors import SettingError
from eclose.files.jsonl import scan_records
from eclose.files.manifest import hash_file
from eclose.files.tables import Rows, ensure_data_file
from eclose.judging.additions import hold_run, take_inputs
from eclose.judging.run import judge_responses
from eclose.judging.settings import JudgeSettings
from eclose.readers.intake import IntakeSettings
from eclose.readers.readings import ReadingSummary, summarize_readings
from eclose.report.wording import describe_long_passages, describe_missing_traces
from eclose.values.instance import Instance
from eclose.values.response import Response

if TYPE_CHECKING:
    from eclose.calls.client import CallSettings
    from eclose.calls.http.endpoint import ServerAddress
    from eclose.calls.resolve import ModelRef
    from eclose.calls.run import RunOptions
    from eclose.judging.inputs import JudgeInputFiles
    from eclose.progress import ProgressOption
    from eclose.readers.import_settings import ImportSettings
    from eclose.readers.response_tasks import ResponseFilter


@also_sync
async def evaluate(
    data: Path | str | Rows,
    *,
    judge: str | ModelRef,
    questions: Path | str | None = None,
    out: Path | str | None = None,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    imported: ImportSettings | None = None,
    options: RunOptions | None = None,
    only: ResponseFilter | None = None,
    intake: IntakeSettings | None = None,
    progress: ProgressOption = True,
) -> Results:
    """Judge responses with a model and diagnose them: which are unreliable, how often, and why.

    ``aevaluate`` is the coroutine.

    Args:
        data: Responses with their questions and passages: a list of dicts, a pandas or Polars data frame, an Arrow
            table, a Hugging Face dataset, a file in any known layout, or the folder of a run.
        judge: Model that judges: ``provider/model``, a base URL, a folder of weights, ``vllm:NAME``, or
            ``inspect/PROVIDER/MODEL``.
        questions: File of the questions, where they are not in ``data``.
        out: Folder of the run. The same call with the same folder continues it, and no call is paid for twice.
            By default the folder of ``data``; for rows and for files elsewhere a temporary one, so nothing is kept.
        settings: How responses are judged.
        calls: Concurrency, rate limits, deadlines and prices of the calls.
        budget: The most that the run may cost, in the currency of the prices.
        base_url: Address of an OpenAI-compatible server.
        imported: How a file of another tool is read: its layout, field paths, names that it leaves out, and whether
            prose is split into steps.
        options: Ledger, retry, replay and force, as the options of ``eclose judge``.
        only: Choice of the responses to judge, such as one band of a calibrated detector by
            ``eclose.detectors.bands.build_band_filter``; all by default. The rates then describe these alone.
        intake: Which responses are taken (since a time, a sample), and whether they are added to those that the run
            in ``out`` has. What was added is counted in ``Results.notices``.
        progress: Whether to show progress in a terminal or a notebook, or a function that is called with it.

    Returns:
        Rates with intervals, one row a response, and the report.

    Raises:
        UserError: The data cannot be read, or the judge cannot be reached.
        SettingError: A setting is wrong or missing.

    Examples:
        >>> free = eclose.CallSettings(unpriced=True)
        >>> results = eclose.evaluate("run", judge=server, calls=free)
        >>> len(results), sorted(results.rates)[:3]
        (60, ['A', 'Acc', 'C'])
    """
    intake = (intake or IntakeSettings()).at(datetime.now(UTC))
    intake.require_folder(out)
    if only is not None and (intake.append or intake.chooses):
        raise SettingError("only and intake: both choose responses. Leave one of them out.")
    settings, calls = settings or JudgeSettings(), add_budget(calls, budget)
    options = watch_run(options, progress, accepted="judged")
    with TemporaryDirectory(prefix="eclose-") as scratch:
        # The scratch folder is made in any case and used only where nothing is to be kept.
        folder = Path(out) if out is not None else _folder_of(data) or Path(scratch)
        path = ensure_data_file(data, Path(scratch) if intake.append else folder, force=options.force)
        model = resolve(judge, base_url, keyless=options.replay)
        with hold_run(folder, options.ledger, intake):
            sources = await take_inputs(
                path,
                folder,
                model,
                settings,
                intake,
                deadline=calls.deadline,
                instances=None if questions is None else Path(questions),
                imported=imported,
                force=options.force,
                # Rows have no name; those of another call are others.
                name=None if path.parent != Path(scratch) else f"rows {hash_file(path).removeprefix('sha256:')[:8]}",
            )
            readings = summarize_responses(sources)
            for sentence in (*readings.cautions, *describe_judge_inputs(sources, readings)):
                warnings.warn(sentence, stacklevel=2)
            chosen = intake if intake.chooses and not intake.append else only
            await judge_responses(sources, model, folder, settings, calls, options, only=chosen)
            results = diagnose(folder)
    results = replace(results, notices=(*describe_added(sources), *results.notices))
    # A result must not name a folder that no longer exists.
    return results if out is not None or folder != Path(scratch) else replace(results, folder=None)


aevaluate = coroutine_of(evaluate)
"""Coroutine of ``evaluate``."""


def summarize_responses(sources: JudgeInputFiles) -> ReadingSummary:
    """Return how the responses that are to be judged were read."""
    records = scan_records(sources.responses, Response)
    return summarize_readings(record.value for record in records if record.value is not None)


def describe_judge_inputs(sources: JudgeInputFiles, readings: ReadingSummary) -> tuple[str, ...]:
    """Return what to know before a judge is paid: responses without a trace, and long passages."""
    questions = (record.value for record in scan_records(sources.instances, Instance))
    lengths = [sum(len(passage.text) for passage in question.evidence) for question in questions if question]
    # Four characters a token: to a tenth, in English.
    tokens = sum(lengths) / max(len(lengths), 1) / 4
    return describe_missing_traces(readings.without_trace, readings.responses) + describe_long_passages(tokens)


def describe_added(sources: JudgeInputFiles) -> tuple[str, ...]:
    """Return one sentence each on the files, questions and responses that a run was given this time."""
    # A single file that was read needs no count.
    counts = {name: counts for name, counts in sources.added.items() if name != "files" or counts.received > 1}
    return tuple(f"{name}: {count.format_equation('new')}" for name, count in counts.items())


def _folder_of(data: Path | str | Rows) -> Path | None:
    return Path(data) if isinstance(data, str | Path) and Path(data).is_dir() else None
