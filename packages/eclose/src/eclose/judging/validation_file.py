"""Validation of a judge against people's verdicts, and the file that records it.

The file belongs to one judge under one set of guidelines. Reports print it beside every automated rate, correct the
rates of the validated run, and may carry the correction over to other runs of the same judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from eclose.errors import RecordError, SettingError, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.json_reader import require_regular_file
from eclose.files.jsonl import read_records
from eclose.files.manifest import read_manifest
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE, VALIDATION_FILE
from eclose.files.step import companion_file_path
from eclose.files.tables import TABLE_SUFFIXES, WORKBOOK_SUFFIXES
from eclose.judging.settings import REQUESTED_SETTINGS
from eclose.metrics.judge_against_people import (
    GroupValidation,
    JudgedLabel,
    ValidationCase,
    count_judge_errors,
    encode_rate_hits,
    validate_judge,
)
from eclose.metrics.repeats import JudgeComparison, TwoJudgesCase, compare_judges
from eclose.metrics.summary import UNKNOWN_GROUP
from eclose.prompts.judge_questions import CRITERION_QUESTIONS, EXTENDED_QUESTIONS, JudgeQuestion
from eclose.readers.judged_run import check_judged_inputs
from eclose.stats.arrays import Floats, Indices, number_distinct_labels
from eclose.stats.rate_correction import (
    CorrectedRate,
    JudgeErrors,
    corrected_rate,
    rate_from_judge_errors,
    sampling_weights,
)
from eclose.values.identity import content_hash
from eclose.values.instance import Instance
from eclose.values.judgment import Judgment
from eclose.values.response import Response
from eclose.values.verdict import SettledVerdict, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRecord:
    """The agreement of a judge with people, with everything that later reports need."""

    schema: Literal[1] = 1
    """Version of the file."""
    judge: str
    settings: Mapping[str, Any]
    """Settings of the judge with the hashes of its guidelines."""
    run: str
    """Identity of the judged responses; see ``hash_judged_responses``."""
    judged: int
    """Number of judged responses of the run."""
    labelled: int
    """Number of judged responses that people labelled."""
    not_in_run: int
    """Number of verdicts on responses outside the run; they are not used."""
    overall: GroupValidation
    datasets: Mapping[str, GroupValidation]
    corrected: Mapping[JudgedLabel, CorrectedRate]
    """Rates of the run as people would label it; the labelled responses must be a random sample of the run."""
    errors: Mapping[JudgedLabel, JudgeErrors]
    """Errors of the judge by question, from which other runs are corrected."""
    others: Mapping[str, GroupValidation] = field(default_factory=dict)
    """Agreement of other judges, or other efforts, with the same verdicts, by name of their run."""
    stratified: bool = False
    """Whether labelled responses were sampled by the judge's labels. Corrected rates are weighted for that. Agreement
    and errors then describe the labelled responses only and correct no other run."""
    stale: tuple[str, ...] = ()
    """One sentence for each file that changed since it was judged or labelled; only with ``allow_stale``."""


def hash_judged_responses(judgments: Iterable[Judgment | SettledVerdict]) -> str:
    """Return a hash that is equal for two runs over the same responses."""
    return content_hash(sorted(judgment.response_id for judgment in judgments))


class JudgedRun(NamedTuple):
    """The judgments of one judge with the questions of their responses."""

    judgments: Mapping[str, Judgment | SettledVerdict]
    """Judgments, or the verdicts of the judge, by response id."""
    questions: Mapping[str, str]
    """Question ids by response id; a response without a known question forms a cluster of its own."""
    judge: str

    @classmethod
    def of(cls, judgments: Iterable[Judgment], responses: Iterable[Response] = ()) -> JudgedRun:
        """Build a run; raise for judgments of several judges, or two judgments of one response."""
        by_id: dict[str, Judgment] = {}
        for judgment in judgments:
            if judgment.response_id in by_id:
                raise RecordError(
                    "was judged twice. Keep one judgment of each response.", record=f"response {judgment.response_id}"
                )
            by_id[judgment.response_id] = judgment
        judge = _require_one_judge({judgment.judge for judgment in by_id.values()})
        return cls(by_id, {response.id: response.instance_id for response in responses}, judge)

    @classmethod
    def of_verdicts(cls, verdicts: Iterable[SettledVerdict], judges: Iterable[str]) -> JudgedRun:
        """Build a run from the verdicts of a judge, one for each response; raise for several judges."""
        by_id = {verdict.response_id: verdict for verdict in verdicts}
        questions = {id_: verdict.instance_id for id_, verdict in by_id.items()}
        return cls(by_id, questions, _require_one_judge(judges))


def _require_one_judge(judges: Iterable[str]) -> str:
    names = sorted(judges)
    if len(names) != 1:
        named = " and ".join(names) if names else "no judge"
        raise UserError(f"the judgments are by {named}. A validation is of one judge: name one judge's file.")
    return names[0]


def build_validation(
    judgments: Iterable[Judgment],
    verdicts: Iterable[SettledVerdict],
    responses: Iterable[Response] = (),
    *,
    settings: Mapping[str, Any],
    rng: np.random.Generator,
    strata: Mapping[str, str] | None = None,
    resamples: int = 2_000,
) -> ValidationRecord:
    """Compare a judge with people, or with known labels, on the responses that both labelled.

    Args:
        judgments: All judgments of a run, by one judge.
        verdicts: People's verdicts; those on other responses are counted and left out.
        responses: Responses of the run, which tell what responses share a question.
        settings: Identity of the judge's settings.
        rng: Random generator of the intervals.
        strata: Stratum of every judged response, where the labelled ones were sampled by stratum.
        resamples: Number of bootstrap resamples.

    Raises:
        UserError: No verdict is on a response of the run, or the judgments are by several judges.
        RecordError: A response has two judgments or verdicts, or a verdict is on another question.
    """
    decisive = _select_decisive(settings)
    run = JudgedRun.of(judgments, responses)
    settled = _mark_abstentions(run, _index_verdicts(verdicts))
    _refuse_other_questions(run, settled)
    cases = [
        ValidationCase(
            row.instance_id, row.benchmark or UNKNOWN_GROUP, run.judgments[row.response_id].verdict, row.verdict
        )
        for row in settled.values()
        if row.response_id in run.judgments
    ]
    if not cases:
        raise UserError("no verdict is on a response of this run. Check that both files belong to the same run.")
    # Before ``_correct_labelled_run`` below, which draws from the same generator: the order is part of the printed
    # numbers.
    report = validate_judge(cases, rng=rng, resamples=resamples)
    return ValidationRecord(
        judge=run.judge,
        settings=decisive,
        run=hash_judged_responses(run.judgments.values()),
        judged=len(run.judgments),
        labelled=len(cases),
        not_in_run=len(settled) - len(cases),
        overall=report.overall,
        datasets=report.datasets,
        corrected=_correct_labelled_run(run, settled, strata, rng),
        errors=count_judge_errors(cases),
        stratified=strata is not None,
    )


def validate_run(
    run: Path,
    verdicts: Iterable[SettledVerdict],
    *,
    rng: np.random.Generator,
    strata: Mapping[str, str] | None = None,
    resamples: int = 2_000,
    allow_stale: bool = False,
) -> ValidationRecord:
    """Compare the judge of a run's folder with people; raise for stale judgments unless ``allow_stale``."""
    require_regular_file(run / JUDGMENTS_FILE)
    provenance = check_judged_inputs(run, allow_stale=allow_stale)
    responses = read_records(run / RESPONSES_FILE, Response)
    named = name_verdict_benchmarks(run, verdicts)
    validation = validate_judgments_file(run, named, responses, rng=rng, strata=strata, resamples=resamples)
    return replace(validation, stale=provenance.stale)


def name_verdict_benchmarks(run: Path, verdicts: Iterable[SettledVerdict]) -> list[SettledVerdict]:
    """Return the verdicts, each that names no benchmark with that of its question in the run."""
    rows = list(verdicts)
    unnamed = {row.instance_id for row in rows if row.benchmark is None}
    if not unnamed:
        return rows
    instances = read_records(run / INSTANCES_FILE, Instance)
    benchmarks = {instance.id: instance.benchmark for instance in instances if instance.id in unnamed}
    return [
        row if row.benchmark is not None else replace(row, benchmark=benchmarks.get(row.instance_id)) for row in rows
    ]


def validate_judgments_file(
    run: Path,
    verdicts: Iterable[SettledVerdict],
    responses: Iterable[Response] = (),
    *,
    rng: np.random.Generator,
    strata: Mapping[str, str] | None = None,
    resamples: int = 2_000,
) -> ValidationRecord:
    """Compare the judgments in a folder with people; the folder needs no responses."""
    return build_validation(
        read_judgments(run / JUDGMENTS_FILE),
        verdicts,
        responses,
        settings=read_judge_settings(run),
        rng=rng,
        strata=strata,
        resamples=resamples,
    )


def _refuse_other_questions(run: JudgedRun, settled: Mapping[str, SettledVerdict]) -> None:
    """Raise where a verdict is on another question than its response answers, so that only the ids agree."""
    for row in settled.values():
        question = run.questions.get(row.response_id, row.instance_id)
        if question != row.instance_id:
            raise RecordError(
                f"the verdict is on question {row.instance_id!r}, but in the run this response answers {question!r}."
                " Name the file of verdicts on this run.",
                record=f"response {row.response_id}",
            )


def _index_verdicts(verdicts: Iterable[SettledVerdict]) -> dict[str, SettledVerdict]:
    """Return the verdicts by response id; raise where two of one response differ."""
    settled: dict[str, SettledVerdict] = {}
    for row in verdicts:
        if settled.setdefault(row.response_id, row) != row:
            raise RecordError("has two different verdicts. Adjudicate them.", record=f"response {row.response_id}")
    return settled


def _mark_abstentions(run: JudgedRun, settled: Mapping[str, SettledVerdict]) -> dict[str, SettledVerdict]:
    """Return the verdicts of people with the abstentions of the run: the response decides them, and no judge."""
    abstaining = {id_ for id_, judgment in run.judgments.items() if judgment.verdict.abstained}
    return {
        id_: replace(row, verdict=replace(row.verdict, abstained=id_ in abstaining)) for id_, row in settled.items()
    }


def _select_decisive(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without guidelines of questions that give no validated label, such as sufficiency.

    A new text for one of those leaves the validation intact.
    """
    guidelines = settings.get("guidelines")
    if not isinstance(guidelines, Mapping) or not set(CRITERION_QUESTIONS.values()) <= set(guidelines):
        raise SettingError("the settings lack the guideline of a criterion. Pass JudgeSettings.identity.")
    # The joint guideline counts where it was used: it changes how all criteria are asked.
    decisive = [
        question
        for question in (*CRITERION_QUESTIONS.values(), *EXTENDED_QUESTIONS, JudgeQuestion.JOINT)
        if question in guidelines
    ]
    # What is asked on request changes no label that is validated.
    kept = {name: value for name, value in settings.items() if name not in REQUESTED_SETTINGS}
    return {**kept, "guidelines": {str(question): guidelines[question] for question in decisive}}


def _question_codes(run: JudgedRun, settled: Mapping[str, SettledVerdict]) -> Indices:
    """Return the cluster of every judged response: its question, or the response itself where that is unknown."""

    # Responses to one question fail together, so intervals treat the question as the unit. The tag keeps an id of a
    # question apart from an equal id of a response.
    def cluster(response_id: str) -> tuple[str, str]:
        if response_id in settled:
            return "question", settled[response_id].instance_id
        question = run.questions.get(response_id)
        return ("response", response_id) if question is None else ("question", question)

    return number_distinct_labels([cluster(response_id) for response_id in run.judgments])[0]


def _correct_labelled_run(
    run: JudgedRun,
    settled: Mapping[str, SettledVerdict],
    strata: Mapping[str, str] | None,
    rng: np.random.Generator,
) -> dict[JudgedLabel, CorrectedRate]:
    # All arrays have one entry per judged response, in the order of ``run.judgments``; unlabelled ones are unknown.
    question = _question_codes(run, settled)
    judged = [judgment.verdict for judgment in run.judgments.values()]
    human = [settled[id_].verdict if id_ in settled else Verdict() for id_ in run.judgments]
    weight = None if strata is None else _compute_weights(run, settled, strata)
    return {
        label: corrected_rate(
            encode_rate_hits(label, judged), encode_rate_hits(label, human), question, rng=rng, weight=weight
        )
        for label in JudgedLabel
    }


def _compute_weights(run: JudgedRun, settled: Mapping[str, SettledVerdict], strata: Mapping[str, str]) -> Floats:
    if missing := [id_ for id_ in run.judgments if id_ not in strata]:
        raise SettingError(f"response {missing[0]} has no stratum. Name one for every judged response, or none at all.")
    stratum, names = number_distinct_labels([strata[id_] for id_ in run.judgments])
    labelled = np.array([id_ in settled for id_ in run.judgments])
    # A stratum without labels has no weight: its responses could not be represented.
    if empty := set(names) - {strata[id_] for id_ in run.judgments if id_ in settled}:
        raise SettingError(
            f"no response of the stratum {min(empty)!r} is labelled. Label some, or leave the strata out."
        )
    return sampling_weights(stratum, labelled)


def require_validated_judge(validation: ValidationRecord, judge: str, settings: Mapping[str, Any]) -> None:
    """Raise SettingError unless the validation is of this judge with these settings."""
    if validation.judge != judge:
        raise SettingError(
            f"the validation is of {validation.judge}, the run was judged by {judge}. Validate that judge."
        )
    if changed := sorted(_find_differences(validation.settings, _select_decisive(settings))):
        raise SettingError(
            f"the validation is of {judge} with other settings: {', '.join(changed)} differ. Validate the judge again."
        )


def _find_differences(first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the names of settings that differ; nested names are joined by a blank."""
    for name in first.keys() | second.keys():
        left_value, right_value = first.get(name), second.get(name)
        if isinstance(left_value, Mapping) and isinstance(right_value, Mapping):
            yield from _find_differences(left_value, right_value, f"{prefix}{name} ")
        elif left_value != right_value:
            yield f"{prefix}{name}"


class CorrectedRunRates(NamedTuple):
    """The corrected rates of a run."""

    rates: Mapping[JudgedLabel, CorrectedRate]
    carried_over: bool
    """Whether the validation was made on other responses, which supposes the same error rates of the judge here."""


def correct_rates_by_validation(
    validation: ValidationRecord, run: JudgedRun, *, settings: Mapping[str, Any], rng: np.random.Generator
) -> CorrectedRunRates:
    """Return the corrected rates of a run; raise SettingError unless the validation is of its judge and settings."""
    require_validated_judge(validation, run.judge, settings)
    # The same responses: their labels were compared directly, so no assumption about other responses is needed.
    if hash_judged_responses(run.judgments.values()) == validation.run:
        _refuse_other_labels(validation, run)
        return CorrectedRunRates(validation.corrected, carried_over=False)
    if validation.stratified:
        raise SettingError(
            "the validation rests on a sample stratified by the judge's labels, and corrects only the run that the"
            " sample was drawn from. Label responses of this run with eclose label."
        )
    question = _question_codes(run, {})
    judged = [judgment.verdict for judgment in run.judgments.values()]
    rates = {
        label: rate_from_judge_errors(encode_rate_hits(label, judged), question, validation.errors[label], rng=rng)
        for label in JudgedLabel
    }
    return CorrectedRunRates(rates, carried_over=True)


def _refuse_other_labels(validation: ValidationRecord, run: JudgedRun) -> None:
    """Raise where the responses were judged again since the validation, whose rates are those of the old judgments."""
    verdicts = [judgment.verdict for judgment in run.judgments.values()]
    for label, rate in validation.corrected.items():
        # The file has no labels, but rate and count give back the number of hits.
        hits = encode_rate_hits(label, verdicts)
        counts = tuple(int((hits == code).sum()) for code in (1, 0))
        hits_then = round((rate.judge or 0) * rate.judged)
        if counts != (hits_then, rate.judged - hits_then):
            raise SettingError(
                f"the validation was made from other judgments of these responses ({label} differs)."
                " Run `eclose judge validate` or `eclose label` again."
            )


def compare_judge_runs(
    first: Iterable[Judgment],
    second: Iterable[Judgment],
    verdicts: Iterable[SettledVerdict],
    *,
    rng: np.random.Generator,
    resamples: int = 2_000,
) -> JudgeComparison:
    """Compare two judges, or two efforts of one, on the responses that both of them and people labelled."""
    baseline, candidate = JudgedRun.of(first).judgments, JudgedRun.of(second).judgments
    cases: Sequence[TwoJudgesCase] = [
        TwoJudgesCase(
            row.instance_id, row.benchmark or UNKNOWN_GROUP, baseline[id_].verdict, candidate[id_].verdict, row.verdict
        )
        for id_, row in _index_verdicts(verdicts).items()
        if id_ in baseline and id_ in candidate
    ]
    if not cases:
        raise UserError("no verdict is on a response of both judges. Check that all files belong to the same run.")
    return compare_judges(cases, rng=rng, resamples=resamples)


def read_judgments(path: Path | str) -> list[Judgment]:
    """Read a file of judgments."""
    return list(read_records(path, Judgment))


def read_people_verdicts(path: Path | str) -> list[SettledVerdict]:
    """Read a file of people's verdicts; for a spreadsheet, raise UserError with the command that imports it."""
    suffix = Path(path).suffix.lower()
    if suffix in (*TABLE_SUFFIXES, *WORKBOOK_SUFFIXES):
        require_regular_file(Path(path))
        table = f"Save it as CSV and import that: eclose annotate import {Path(path).with_suffix('.csv')}"
        table = table if suffix in WORKBOOK_SUFFIXES else f"Import it: eclose annotate import {path}"
        raise UserError(
            f"{path}: is a spreadsheet, not a file of verdicts. {table} --run RUN --out people. Then pass"
            " --verdicts people/verdicts.jsonl."
        )
    return list(read_records(path, SettledVerdict))


_ADAPTER = TypeAdapter(ValidationRecord)


def write_validation(path: Path | str, validation: ValidationRecord) -> None:
    """Write a validation atomically."""
    with AtomicFile(path) as file:
        file.write(_ADAPTER.dump_json(validation, indent=1) + b"\n")


def read_validation(path: Path | str) -> ValidationRecord:
    """Read a validation; raise UserError for another kind or version of file."""
    require_regular_file(Path(path))
    try:
        # Strict: a rate of another version with another meaning must not correct anything.
        return _ADAPTER.validate_json(Path(path).read_bytes(), strict=True, extra="forbid")
    except ValidationError as invalid:
        raise UserError(
            f"{path}: is no validation of this version of eclose ({invalid.error_count()} errors). "
            "Write it again with `eclose judge validate`."
        ) from invalid


def read_judge_settings(run: Path) -> Mapping[str, Any]:
    """Return the settings that a run was judged with; raise where no manifest has them."""
    manifest = companion_file_path(run / JUDGMENTS_FILE, "manifest.json")
    if not manifest.exists():
        raise UserError(
            f"{run}: {JUDGMENTS_FILE} has no manifest, so it is not known how it was judged, and a validation of the "
            f"judge cannot be applied to it. Judge the run again, or move {VALIDATION_FILE} away."
        )
    return read_manifest(manifest).settings
