"""Verbs that judge: responses and their diagnosis, and one response."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from eclose.api.resolve import add_budget, resolve
from eclose.api.results import Results, diagnose
from eclose.calls.run import RunOptions
from eclose.calls.sync import also_sync, coroutine_of
from eclose.errors import RecordError, SettingError, UserError
from eclose.files.jsonl import parse_dataclass, read_records, scan_records, write_records
from eclose.files.manifest import hash_file
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.files.tables import Rows, ensure_data_file
from eclose.judging.additions import hold_run, take_inputs
from eclose.judging.inputs import find_judge_inputs
from eclose.judging.run import judge_responses
from eclose.judging.settings import JudgeSettings
from eclose.readers.conversion import build_case
from eclose.readers.import_settings import ImportSettings
from eclose.readers.intake import IntakeSettings
from eclose.readers.layouts import RecordLayout
from eclose.readers.rag_rows import convert_tool_record
from eclose.readers.readings import ReadingSummary, summarize_readings
from eclose.reading.response import read_response
from eclose.reading.text import ReadingStatus
from eclose.report.wording import describe_long_passages, describe_missing_traces
from eclose.values.instance import Instance
from eclose.values.judgment import Judgment
from eclose.values.response import Response

if TYPE_CHECKING:
    from eclose.calls.client import CallSettings
    from eclose.calls.http.endpoint import ServerAddress
    from eclose.calls.resolve import ModelRef
    from eclose.judging.inputs import JudgeInputFiles
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
    settings, calls, options = settings or JudgeSettings(), add_budget(calls, budget), options or RunOptions()
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


@also_sync
async def judge(
    instance: Instance | Mapping[str, Any],
    response: Response | Mapping[str, Any] | Sequence[Mapping[str, Any]] | str,
    *,
    judge: str | ModelRef,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    imported: ImportSettings | None = None,
) -> Judgment:
    """Judge one response to one question.

    ``ajudge`` is the coroutine.

    Args:
        instance: The question with its passages and, where there is one, its reference answer.
        response: A response or its fields, or what a system wrote: a text, the messages of a conversation, or the
            object of a chat API or a framework. What its tools returned becomes passages.
        judge: Model that judges, by name or as ``eclose.resolve`` returns it.
        settings: How the response is judged.
        calls: Concurrency, rate limits, deadlines and prices of the calls.
        budget: The most that the calls may cost, in the currency of the prices.
        base_url: Address of an OpenAI-compatible server.
        imported: How the response is read, as ``evaluate`` takes it.

    Returns:
        A label for each step and for each criterion, with reasons; None where the judge gave no usable reply.

    Raises:
        RecordError: The question or the response lacks a field.
        SettingError: One of them is of another kind, such as a question without its passages.
        UserError: The judge cannot be reached.

    Examples:
        >>> case = eclose.diagnose("demo").cases[0]
        >>> free = eclose.CallSettings(unpriced=True)
        >>> eclose.judge(case.instance, case.response, judge=server, calls=free).response_id == case.response.id
        True
    """
    question, answered = _read_case(instance, response, imported or ImportSettings())
    with TemporaryDirectory(prefix="eclose-") as scratch:
        folder = Path(scratch)
        # As a run over files: one response is judged, limited and accounted for like a million.
        write_records(folder / INSTANCES_FILE, [question])
        write_records(folder / RESPONSES_FILE, [answered])
        sources = find_judge_inputs(folder, folder)
        result = await judge_responses(sources, resolve(judge, base_url), folder, settings, add_budget(calls, budget))
        judgments = list(read_records(folder / JUDGMENTS_FILE, Judgment))
        if not judgments:
            # The response was set aside; the run's folder, which has the reason, is about to be removed.
            failure = json.loads(result.stage.quarantine_path.read_bytes())
            raise UserError(f"not judged: {failure.get('problem') or failure}")
    return judgments[0]


ajudge = coroutine_of(judge)
"""Coroutine of ``judge``."""


def _read_case(
    instance: Instance | Mapping[str, Any],
    response: Response | Mapping[str, Any] | Sequence[Mapping[str, Any]] | str,
    imported: ImportSettings = ImportSettings(),  # noqa: B008 - it is frozen
) -> tuple[Instance, Response]:
    """Return the question and the response; what an agent's tools returned is added to the passages.

    Raises:
        SettingError: One of them is of another kind.
        RecordError: One of them lacks a field.
    """
    if not isinstance(instance, Instance | Mapping):
        raise SettingError(
            f"instance: is of type {type(instance).__name__}. Give a question with its passages: "
            'eclose.judge({"question": "...", "contexts": ["..."]}, "the response", judge="provider/model").'
        )
    question = instance if isinstance(instance, Instance) else _read_question(instance)
    if isinstance(response, Response):
        return question, response
    if isinstance(response, Mapping) and isinstance(response.get("trace"), Mapping):
        return question, parse_dataclass(Response, dict(response))
    if not isinstance(response, str | Mapping | Sequence):
        raise SettingError(f"response: is of type {type(response).__name__}. Give a text, a Response, or messages.")
    content = response if isinstance(response, str | Mapping) else list(response)
    reading = read_response(content, question.question, imported)
    if reading.status is ReadingStatus.NOT_A_RESPONSE:
        raise RecordError(f"response: holds no answer and no step ({reading.rule}).")
    return build_case(question, reading, content, id=f"{question.id}-1")


def _read_question(fields: Mapping[str, Any]) -> Instance:
    """Return a question from the fields of an instance, or from the columns that ``evaluate`` reads."""
    if "evidence" in fields:
        return parse_dataclass(Instance, dict(fields))
    return convert_tool_record(dict(fields), RecordLayout.RAGAS).instance
