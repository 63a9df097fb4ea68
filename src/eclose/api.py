"""The Python interface: verbs that call models, synchronous and asynchronous.

Each verb does what the command of its name does and writes the same files. The synchronous ones also work inside a
running event loop, such as that of a notebook; the ones that begin with ``a`` are coroutines.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from eclose.benchmarks.layouts import RecordLayout
from eclose.calls.client import CallSettings
from eclose.calls.coroutines import run_coroutine
from eclose.calls.run import run_models_on_records
from eclose.construction.run import construct_families, resolve_construction_models
from eclose.construction.settings import ConstructSettings
from eclose.core.instance import Instance
from eclose.core.judgment import Judgment
from eclose.core.response import Response
from eclose.detection.local_run import score_responses_locally
from eclose.detection.run import detect_responses
from eclose.detection.scores import DetectorKind
from eclose.detection.settings import ChatDetectorSettings, find_detector_settings
from eclose.detection.verifier.files import load_verifier
from eclose.detection.verifier.run import score_responses_with_verifier
from eclose.diagnosis.results import Results, diagnose
from eclose.errors import SettingError, UserError
from eclose.generation import GenerateSettings, SourceLabels, find_generator_model, generate_responses
from eclose.integrations.inspect.grader_scores import scan_inspect_statements
from eclose.integrations.inspect.model import INSPECT_PREFIX, InspectModelRef
from eclose.judging.find_inputs import find_judge_inputs
from eclose.judging.grader_closure import plan_grader_run, scan_judgment_statements
from eclose.judging.run import judge_responses
from eclose.judging.settings import JudgeSettings
from eclose.models.adapter_recipe import find_adapter_recipes
from eclose.models.resolve import ModelRef, find_model_ref, resolve_model_ref
from eclose.store.records.jsonl import parse_dataclass, read_records, write_records
from eclose.store.records.table_rows import Rows, ensure_data_file
from eclose.store.runs.folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.benchmarks.import_settings import ImportSettings
    from eclose.calls.run import RunOptions, RunResult
    from eclose.detection.settings import DetectorSettings
    from eclose.models.openai.endpoint import ServerAddress
    from eclose.response_tasks import ResponseFilter


def resolve(name: str | ModelRef, base_url: str | ServerAddress | None = None, *, keyless: bool = False) -> ModelRef:
    """Find a model by name, for several verbs to share.

    Args:
        name: ``provider/model``, a base URL, a folder of weights, ``vllm:NAME``, ``transformers:NAME``, or
            ``inspect/PROVIDER/MODEL``.
        base_url: Address of an OpenAI-compatible server.
        keyless: Whether nothing will be sent, so that no API key is needed.

    Returns:
        A reference that every verb takes in place of a name.

    Raises:
        SettingError: The provider is unknown or its key is missing.

    Example:
        >>> eclose.resolve("http://127.0.0.1:8000/v1").route.base_url
        'http://127.0.0.1:8000/v1'
    """
    if not isinstance(name, str):
        return name
    if name.startswith(INSPECT_PREFIX):
        url, server = (base_url, None) if isinstance(base_url, str | None) else (base_url.url, base_url.name)
        return InspectModelRef(name.removeprefix(INSPECT_PREFIX), url, server=server)
    return find_model_ref(name, base_url=base_url, keyless=keyless)


def _call_settings(calls: CallSettings | None, budget: float | None) -> CallSettings:
    calls = calls or CallSettings()
    return calls if budget is None else replace(calls, budget=budget)


async def aevaluate(
    data: Path | str | Rows,
    *,
    judge: str | ModelRef,
    questions: Path | str | None = None,
    out: Path | str | None = None,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    layout: RecordLayout = RecordLayout.AUTO,
    imported: ImportSettings | None = None,
    options: RunOptions | None = None,
    only: ResponseFilter | None = None,
) -> Results:
    """Judge responses and diagnose them; see ``evaluate``."""
    with TemporaryDirectory(prefix="eclose-") as scratch:
        # The scratch folder is made in any case and used only where nothing is to be kept.
        folder = Path(out) if out is not None else _folder_of(data) or Path(scratch)
        path = ensure_data_file(data, folder)
        sources = find_judge_inputs(path, folder, None if questions is None else Path(questions), layout, imported)
        model = resolve(judge, base_url, keyless=options is not None and options.replay)
        await judge_responses(sources, model, folder, settings, _call_settings(calls, budget), options, only=only)
        results = diagnose(folder)
    # A result must not name a folder that no longer exists.
    return results if out is not None or folder != Path(scratch) else replace(results, folder=None)


def evaluate(
    data: Path | str | Rows,
    *,
    judge: str | ModelRef,
    questions: Path | str | None = None,
    out: Path | str | None = None,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    layout: RecordLayout = RecordLayout.AUTO,
    imported: ImportSettings | None = None,
    options: RunOptions | None = None,
    only: ResponseFilter | None = None,
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
        layout: Layout of ``data``; found out by default.
        imported: How a file of another tool is read: field paths, names that it leaves out, and whether prose is
            split into steps.
        options: Ledger, retry, replay and force, as the options of ``eclose judge``.
        only: Choice of the responses to judge, such as one band of a calibrated detector by
            ``eclose.detection.cascade.build_band_filter``; all by default. The rates then describe these alone.

    Returns:
        Rates with intervals, one row a response, and the report.

    Raises:
        UserError: The data cannot be read, or the judge cannot be reached.
        SettingError: A setting is wrong or missing.

    Example:
        >>> free = eclose.CallSettings(unpriced=True)
        >>> results = eclose.evaluate("run", judge=server, calls=free)
        >>> len(results), sorted(results.rates)[:3]
        (60, ['A', 'Acc', 'C'])
    """
    return run_coroutine(
        aevaluate(
            data,
            judge=judge,
            questions=questions,
            out=out,
            settings=settings,
            calls=calls,
            budget=budget,
            base_url=base_url,
            layout=layout,
            imported=imported,
            options=options,
            only=only,
        )
    )


def _folder_of(data: Path | str | Rows) -> Path | None:
    """Return the folder of a run that ``data`` names; None for rows and for files."""
    return Path(data) if isinstance(data, str | Path) and Path(data).is_dir() else None


async def ajudge(
    instance: Instance | Mapping[str, Any],
    response: Response | Mapping[str, Any] | str,
    *,
    judge: str | ModelRef,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
) -> Judgment:
    """Judge one response; see ``judge``."""
    question = instance if isinstance(instance, Instance) else parse_dataclass(Instance, dict(instance))
    with TemporaryDirectory(prefix="eclose-") as scratch:
        folder = Path(scratch)
        # As a run over files: one response is judged, limited and accounted for like a million.
        write_records(folder / INSTANCES_FILE, [question])
        write_records(folder / RESPONSES_FILE, [_response(response, question)])
        sources = find_judge_inputs(folder, folder)
        result = await judge_responses(
            sources, resolve(judge, base_url), folder, settings, _call_settings(calls, budget)
        )
        judgments = list(read_records(folder / JUDGMENTS_FILE, Judgment))
        if not judgments:
            # The response was set aside; the run's folder, which has the reason, is about to be removed.
            failure = json.loads(result.stage.quarantine_path.read_bytes())
            raise UserError(f"not judged: {failure.get('problem') or failure}")
    return judgments[0]


def judge(
    instance: Instance | Mapping[str, Any],
    response: Response | Mapping[str, Any] | str,
    *,
    judge: str | ModelRef,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
) -> Judgment:
    """Judge one response to one question.

    ``ajudge`` is the coroutine.

    Args:
        instance: The question with its passages and, where there is one, its reference answer.
        response: A response, its fields as a dict, or the text of a completion.
        judge: Model that judges, by name or as ``eclose.resolve`` returns it.
        settings: How the response is judged.
        calls: Concurrency, rate limits, deadlines and prices of the calls.
        budget: The most that the calls may cost, in the currency of the prices.
        base_url: Address of an OpenAI-compatible server.

    Returns:
        A label for each step and for each criterion, with reasons; None where the judge gave no usable reply.

    Raises:
        RecordError: The question or the response lacks a field.
        UserError: The judge cannot be reached.

    Example:
        >>> case = eclose.diagnose("demo").cases[0]
        >>> free = eclose.CallSettings(unpriced=True)
        >>> eclose.judge(case.instance, case.response, judge=server, calls=free).response_id == case.response.id
        True
    """
    return run_coroutine(
        ajudge(
            instance,
            response,
            judge=judge,
            settings=settings,
            calls=calls,
            budget=budget,
            base_url=base_url,
        )
    )


def _response(response: Response | Mapping[str, Any] | str, instance: Instance) -> Response:
    if isinstance(response, Response):
        return response
    if isinstance(response, str):
        return Response.from_completion(f"{instance.id}-1", instance.id, response, None)
    return parse_dataclass(Response, dict(response))


async def agenerate(
    instances: Path | str | Rows,
    *,
    model: str | ModelRef,
    out: Path | str,
    adapter: Path | str | None = None,
    adapter_recipe: Path | str | None = None,
    base_model: str | None = None,
    labels: SourceLabels | None = None,
    revision: str | None = None,
    dtype: str = "auto",
    settings: GenerateSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    options: RunOptions | None = None,
) -> RunResult:
    """Generate responses; see ``generate``."""
    adapter_folder = None if adapter is None else Path(adapter)
    recipes = find_adapter_recipes(adapter_folder, None if adapter_recipe is None else Path(adapter_recipe))
    generator = (
        find_generator_model(
            model,
            adapter=adapter_folder,
            base_model=base_model,
            revision=revision,
            dtype=dtype,
            recipes=recipes,
            labels=labels,
            base_url=base_url,
            keyless=options is not None and options.replay,
        )
        if isinstance(model, str)
        else model
    )
    # An adapter answers under the prompt that it was trained with; another prompt would measure something else.
    settings = (settings or GenerateSettings()).as_trained(recipes)
    path = ensure_data_file(instances, Path(out), "questions.jsonl")
    return await generate_responses(path, generator, out, settings, _call_settings(calls, budget), options)


def generate(
    instances: Path | str | Rows,
    *,
    model: str | ModelRef,
    out: Path | str,
    adapter: Path | str | None = None,
    adapter_recipe: Path | str | None = None,
    base_model: str | None = None,
    labels: SourceLabels | None = None,
    revision: str | None = None,
    dtype: str = "auto",
    settings: GenerateSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    options: RunOptions | None = None,
) -> RunResult:
    """Let a model answer questions over passages, and write ``responses.jsonl`` into a run's folder.

    ``agenerate`` is the coroutine.

    Args:
        instances: Questions with passages: a file in any known layout, or rows as ``evaluate`` takes them.
        model: Model that answers: ``provider/model``, a base URL, a folder of weights, or ``vllm:NAME``.
        out: Folder of the run. The same call continues it, and no call is paid for twice.
        adapter: Folder of an adapter for weights in this process.
        adapter_recipe: For a served adapter: its ``recipe.json``, or the folder of its training run.
        base_model: For a served adapter: the served name of the model below it.
        labels: Backbone, method and training seed in the responses' source, where no recipe names them.
        revision: Commit of a model on the hub.
        dtype: Precision of weights in this process.
        settings: Prompt, lengths and number of questions.
        calls: Concurrency, rate limits, deadlines and prices of the calls.
        budget: The most that the run may cost, in the currency of the prices.
        base_url: Address of an OpenAI-compatible server.
        options: Ledger, retry, replay and force, as the options of ``eclose generate``.

    Returns:
        The manifest of the run, with counts of records and calls.

    Raises:
        UserError: The questions cannot be read, or the model cannot be reached.
        SettingError: A setting is wrong or contradicts the adapter's recipe.

    Example:
        >>> settings, free = eclose.GenerateSettings(limit=3), eclose.CallSettings(unpriced=True)
        >>> result = eclose.generate(
        ...     "demo/instances.jsonl", model=server, out="answers", settings=settings, calls=free
        ... )
        >>> result.manifest.counts.accepted
        3
    """
    return run_coroutine(
        agenerate(
            instances,
            model=model,
            out=out,
            adapter=adapter,
            adapter_recipe=adapter_recipe,
            base_model=base_model,
            labels=labels,
            revision=revision,
            dtype=dtype,
            settings=settings,
            calls=calls,
            budget=budget,
            base_url=base_url,
            options=options,
        )
    )


async def aconstruct(
    instances: Path | str | Rows,
    *,
    constructor: str | ModelRef,
    verifier: str | ModelRef,
    out: Path | str,
    reverifier: str | ModelRef | None = None,
    settings: ConstructSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    layout: RecordLayout = RecordLayout.AUTO,
    limit: int | None = None,
    options: RunOptions | None = None,
) -> RunResult:
    """Build counterfactual families; see ``construct``."""
    settings, calls = settings or ConstructSettings(), _call_settings(calls, budget)
    if reverifier is not None and not settings.reverify:
        raise SettingError("reverifier: the settings say not to verify finished families again. Leave one of them out.")
    names = [
        None if name is None else resolve(name, base_url, keyless=options is not None and options.replay)
        for name in (constructor, verifier, reverifier)
    ]
    models = await resolve_construction_models(names[0], names[1], names[2], deadline=calls.deadline)  # type: ignore[arg-type]
    path = ensure_data_file(instances, Path(out), "questions.jsonl")
    return await construct_families(path, models, out, settings, calls, options, layout=layout, limit=limit)


def construct(
    instances: Path | str | Rows,
    *,
    constructor: str | ModelRef,
    verifier: str | ModelRef,
    out: Path | str,
    reverifier: str | ModelRef | None = None,
    settings: ConstructSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    layout: RecordLayout = RecordLayout.AUTO,
    limit: int | None = None,
    options: RunOptions | None = None,
) -> RunResult:
    """Build counterfactual families to train on, and write them into a run's folder.

    ``aconstruct`` is the coroutine.

    Args:
        instances: Questions with passages and reference answers: a file in any known layout, or rows.
        constructor: Model that writes the parts of a family.
        verifier: Model that checks them; better not of the constructor's family.
        out: Folder of the run. The same call continues it, and no call is paid for twice.
        reverifier: Model that checks finished families; the verifier by default.
        settings: Numbers of edits and attempts, lengths and decoding.
        calls: Concurrency, rate limits, deadlines and prices of the calls.
        budget: The most that the run may cost, in the currency of the prices.
        base_url: Address of an OpenAI-compatible server.
        layout: Layout of the questions; found out by default.
        limit: Number of sources to process, the first in seeded order; None for all.
        options: Ledger, retry, replay and force, as the options of ``eclose construct``.

    Returns:
        The manifest of the run, with counts of sources and calls.

    Raises:
        UserError: The questions cannot be read, or a model cannot be reached.
        SettingError: A setting is wrong.

    Example:
        >>> free = eclose.CallSettings(unpriced=True)
        >>> result = eclose.construct(
        ...     "sources.jsonl", constructor=server, verifier=server, out="families", limit=2, calls=free
        ... )
        >>> result.manifest.counts.received
        2
    """
    return run_coroutine(
        aconstruct(
            instances,
            constructor=constructor,
            verifier=verifier,
            out=out,
            reverifier=reverifier,
            settings=settings,
            calls=calls,
            budget=budget,
            base_url=base_url,
            layout=layout,
            limit=limit,
            options=options,
        )
    )


async def adetect(
    run: Path | str,
    *,
    detector: str | DetectorSettings,
    model: str | ModelRef | None = None,
    verifier: Path | str | None = None,
    out: Path | str | None = None,
    judgments: Path | str | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    options: RunOptions | None = None,
    allow_stale: bool = False,
) -> RunResult:
    """Score the responses of a run with a detector; see ``detect``."""
    if detector == DetectorKind.VERIFIER or verifier is not None:
        return await _score_with_verifier(Path(run), detector, verifier, model, out, options)
    if model is None:
        raise SettingError("model: every detector but verifier needs the model behind it. Name one.")
    settings = find_detector_settings(detector) if isinstance(detector, str) else detector
    folder, scores = Path(run), None if out is None else Path(out)
    if isinstance(settings, ChatDetectorSettings):
        if judgments is not None:
            raise SettingError(f"judgments: the detector {settings.detector} reads none. Leave it out.")
        model_ref = resolve(model, base_url, keyless=options is not None and options.replay)
        return await detect_responses(folder, model_ref, settings, _call_settings(calls, budget), options, out=scores)
    if not isinstance(model, str):
        raise SettingError(f"model: the detector {settings.detector} takes a folder of weights or a hub name.")
    return await score_responses_locally(
        folder,
        settings.build_detector(model),
        out=scores,
        judgments=None if judgments is None else Path(judgments),
        batch_tokens=settings.batch_tokens,
        options=options,
        allow_stale=allow_stale,
    )


async def _score_with_verifier(
    run: Path,
    detector: str | DetectorSettings,
    verifier: Path | str | None,
    model: str | ModelRef | None,
    out: Path | str | None,
    options: RunOptions | None,
) -> RunResult:
    """Score the responses of a run with a trained verifier."""
    if detector != DetectorKind.VERIFIER or verifier is None:
        raise SettingError("verifier: the detector verifier, and no other, needs the folder of a trained verifier.")
    if model is not None and not isinstance(model, str):
        raise SettingError("model: a verifier takes a folder of weights or a hub name.")
    loaded = load_verifier(Path(verifier), model=model)
    scores = None if out is None else Path(out)
    return await asyncio.to_thread(score_responses_with_verifier, run, loaded, out=scores, options=options)


def detect(
    run: Path | str,
    *,
    detector: str | DetectorSettings,
    model: str | ModelRef | None = None,
    verifier: Path | str | None = None,
    out: Path | str | None = None,
    judgments: Path | str | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    options: RunOptions | None = None,
    allow_stale: bool = False,
) -> RunResult:
    """Score every response of a run with a detector that sees no reference answer, and write ``scores-NAME.jsonl``.

    A score lies between 0 and 1, and a low one means failure. A response without a score has a reason instead.
    ``adetect`` is the coroutine.

    Args:
        run: Folder of a run, with questions and responses.
        detector: ``ragas``, ``veriscore`` or ``alignment``, which ask a chat model; ``closure`` or ``alignscore``,
            whose entailment model runs in this process; ``verifier``, learned from families; or the settings of one of
            the first five.
        model: Model behind the detector. For a chat model a name as ``eclose.resolve`` takes it; for an entailment
            model a folder of weights or a hub name. For a hidden verifier the weights of its model, where these are
            not those that it was trained with; nothing for a linear one.
        verifier: For ``verifier``: the folder that ``eclose.train_verifier`` wrote.
        out: File to write, for a second model behind one detector; ``scores-NAME.jsonl`` in the folder by default.
        judgments: For ``alignscore``: the judgments that say which steps are substantive; those of the run by default.
        calls: Concurrency, rate limits, deadlines and prices of the calls to a chat model.
        budget: The most that the calls may cost, in the currency of the prices.
        base_url: Address of an OpenAI-compatible server.
        options: Ledger, retry, replay and force, as the options of ``eclose detect``.
        allow_stale: Use judgments that were made from other files than those in the folder.

    Returns:
        The manifest of the run, with counts of responses; those without a score are counted by reason.

    Raises:
        UserError: The files cannot be read, or the model cannot be reached or is no entailment model.
        SettingError: A setting is wrong, or the server reports no log-probabilities where these are needed.

    Example:
        >>> free = eclose.CallSettings(unpriced=True)
        >>> result = eclose.detect("run", detector="alignment", model=server, calls=free)
        >>> result.manifest.counts.accepted, result.manifest.calls["unscored"]
        (60, {})
    """
    return run_coroutine(
        adetect(
            run,
            detector=detector,
            model=model,
            verifier=verifier,
            out=out,
            judgments=judgments,
            calls=calls,
            budget=budget,
            base_url=base_url,
            options=options,
            allow_stale=allow_stale,
        )
    )


async def ajudge_log(
    log: Path | str,
    *,
    judge: str | ModelRef,
    out: Path | str,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    options: RunOptions | None = None,
    allow_stale: bool = False,
) -> RunResult:
    """Judge the explanations of graders; see ``judge_log``."""
    path, settings, calls = Path(log), settings or JudgeSettings(), _call_settings(calls, budget)
    if path.is_dir():
        names = (INSTANCES_FILE, RESPONSES_FILE, JUDGMENTS_FILE)
        inputs, scan = tuple(path / name for name in names), partial(scan_judgment_statements, allow_stale=allow_stale)
    else:
        inputs, scan = (path,), partial(scan_inspect_statements)
    keyless = options is not None and options.replay
    model = await resolve_model_ref(resolve(judge, base_url, keyless=keyless), calls.deadline)
    run = plan_grader_run(partial(scan, path), inputs, model, Path(out), settings)
    return await run_models_on_records(run, calls, options)


def judge_log(
    log: Path | str,
    *,
    judge: str | ModelRef,
    out: Path | str,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    options: RunOptions | None = None,
    allow_stale: bool = False,
) -> RunResult:
    """Judge whether graders' explanations establish the scores that they recorded: closure, applied to judges.

    ``ajudge_log`` is the coroutine.

    Args:
        log: Log of Inspect (``.eval`` or ``.json``), or the folder of a judged run.
        judge: Model that judges the explanations: best another one than the grader.
        out: Folder for ``grader-closure.jsonl``. The same call continues it, and no call is paid for twice.
        settings: Attempts, lengths and temperature of the judge.
        calls: Concurrency, rate limits, deadlines and prices of the calls.
        budget: The most that the run may cost, in the currency of the prices.
        base_url: Address of an OpenAI-compatible server.
        options: Ledger, retry, replay and force, as the options of ``eclose judge-log``.
        allow_stale: Use judgments of a run that were made from other files than those in the folder.

    Returns:
        The manifest of the run. Scores without an explanation are counted as rejected.

    Raises:
        UserError: The log cannot be read, or the judge cannot be reached.

    Example:
        >>> free = eclose.CallSettings(unpriced=True)
        >>> result = eclose.judge_log("demo", judge=server, out="graders", calls=free)
        >>> result.manifest.counts.conserved
        True
    """
    return run_coroutine(
        ajudge_log(
            log,
            judge=judge,
            out=out,
            settings=settings,
            calls=calls,
            budget=budget,
            base_url=base_url,
            options=options,
            allow_stale=allow_stale,
        )
    )
