"""A judge validated: its judgments joined with people's verdicts, and the small file that says how far to trust it.

The file belongs to one judge under one set of guidelines. Reports print it beside every automated rate, correct the
rates of the run it was made on, and may carry the correction over to other runs of the same judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from eclose.cases import check_run
from eclose.core.identity import content_hash
from eclose.core.judgment import Judgment
from eclose.core.response import Response
from eclose.core.verdict import SettledVerdict, Verdict
from eclose.errors import RecordError, SettingError, UserError
from eclose.metrics.judge_agreement import (
    GroupValidation,
    JudgedLabel,
    ValidationCase,
    hit_codes,
    judge_errors,
    validate_judge,
)
from eclose.metrics.judge_comparison import JudgeComparison, TwoJudgesCase, compare_judges
from eclose.metrics.summary import UNKNOWN
from eclose.protocol.judging import QUESTIONS, Question
from eclose.stats.arrays import Floats, Indices, codes
from eclose.stats.rate_correction import CorrectedRate, JudgeErrors, carried_over_rate, corrected_rate, sampling_weights
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.json_reader import require_file
from eclose.store.records.jsonl import read_records as read_records
from eclose.store.runs.folder import JUDGMENTS, RESPONSES
from eclose.store.runs.manifest import read_manifest
from eclose.store.runs.step import sibling_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A judge against people, with all that later reports need."""

    schema: Literal[1] = 1
    """The version of the file."""
    judge: str
    settings: Mapping[str, Any]
    """How the judge was asked, the hashes of its guidelines among it."""
    run: str
    """The identity of the responses that were judged; see ``run_identity``."""
    judged: int
    """Responses of the run."""
    labelled: int
    """Those of them that people labelled."""
    not_in_run: int
    """Verdicts on responses that the run does not have; they are not used."""
    overall: GroupValidation
    datasets: Mapping[str, GroupValidation]
    corrected: Mapping[JudgedLabel, CorrectedRate]
    """The rates of the run, as people would see them. The labelled responses must be a random sample of it."""
    errors: Mapping[JudgedLabel, JudgeErrors]
    """How the judge errs, question by question: what carries the correction over to other runs."""
    others: Mapping[str, GroupValidation] = field(default_factory=dict)
    """Other judges, or other efforts, against the same verdicts, by the name of their run."""
    stratified: bool = False
    """Whether the labelled ones were drawn by what the judge said of them. The corrected rates allow for that; how
    far the judge agrees and errs is then told of the labelled ones alone, and corrects no other run."""
    stale: tuple[str, ...] = ()
    """Files that are not those that were judged or labelled, a sentence each; only where that was allowed."""


def run_identity(judgments: Iterable[Judgment]) -> str:
    """Equal for two runs over the same responses."""
    return content_hash(sorted(judgment.response_id for judgment in judgments))


class JudgedRun(NamedTuple):
    """Judgments of one judge with the questions they belong to."""

    judgments: Mapping[str, Judgment]
    """By response id."""
    questions: Mapping[str, str]
    """The question of each response, where it is known; a response without one stands for itself."""
    judge: str

    @classmethod
    def of(cls, judgments: Iterable[Judgment], responses: Iterable[Response] = ()) -> JudgedRun:
        """Refuses judgments of several judges, and two of one response."""
        by_id: dict[str, Judgment] = {}
        for judgment in judgments:
            if judgment.response_id in by_id:
                raise RecordError(
                    "was judged twice. Keep one judgment of each response.", record=f"response {judgment.response_id}"
                )
            by_id[judgment.response_id] = judgment
        judges = sorted({judgment.judge for judgment in by_id.values()})
        if len(judges) != 1:
            named = " and ".join(judges) if judges else "nobody"
            raise UserError(f"the judgments are by {named}. A validation is of one judge: give one judge's file.")
        return cls(by_id, {response.id: response.instance_id for response in responses}, judges[0])


def validate(
    judgments: Iterable[Judgment],
    verdicts: Iterable[SettledVerdict],
    responses: Iterable[Response] = (),
    *,
    settings: Mapping[str, Any],
    rng: np.random.Generator,
    strata: Mapping[str, str] | None = None,
    resamples: int = 2_000,
) -> Validation:
    """Compare a judge with people, or with the truth of a world, on the responses that both labelled.

    ``responses`` tell which responses share a question, the unlabelled ones included. ``settings`` is the identity of
    the judge's settings. ``strata`` names the stratum of every judged response, where the labelled ones were drawn
    stratum by stratum and not with equal chance.
    """
    asked = _deciding(settings)
    run, settled = JudgedRun.of(judgments, responses), _once(verdicts)
    _refuse_other_questions(run, settled)
    cases = [
        ValidationCase(row.instance_id, row.benchmark or UNKNOWN, run.judgments[row.response_id].verdict, row.verdict)
        for row in settled.values()
        if row.response_id in run.judgments
    ]
    if not cases:
        raise UserError("no verdict is about a response of this run. Are these the files you meant?")
    report = validate_judge(cases, rng=rng, resamples=resamples)
    return Validation(
        judge=run.judge,
        settings=asked,
        run=run_identity(run.judgments.values()),
        judged=len(run.judgments),
        labelled=len(cases),
        not_in_run=len(settled) - len(cases),
        overall=report.overall,
        datasets=report.datasets,
        corrected=_corrected(run, settled, strata, rng),
        errors=judge_errors(cases),
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
) -> Validation:
    """Compare the judge of a run's folder with people; raise where its judgments are stale, unless ``allow_stale``."""
    require_file(run / JUDGMENTS)
    provenance = check_run(run, allow_stale=allow_stale)
    responses = read_records(run / RESPONSES, Response)
    validation = validate_judgments(run, verdicts, responses, rng=rng, strata=strata, resamples=resamples)
    return replace(validation, stale=provenance.stale)


def validate_judgments(
    run: Path,
    verdicts: Iterable[SettledVerdict],
    responses: Iterable[Response] = (),
    *,
    rng: np.random.Generator,
    strata: Mapping[str, str] | None = None,
    resamples: int = 2_000,
) -> Validation:
    """Compare the judgments in a folder with people, where the responses are elsewhere."""
    return validate(
        read_judgments(run / JUDGMENTS),
        verdicts,
        responses,
        settings=read_manifest(sibling_path(run / JUDGMENTS, "manifest.json")).settings,
        rng=rng,
        strata=strata,
        resamples=resamples,
    )


def _refuse_other_questions(run: JudgedRun, settled: Mapping[str, SettledVerdict]) -> None:
    """Raise where a verdict is on another question than its response answers: then ids alone are alike."""
    for row in settled.values():
        question = run.questions.get(row.response_id, row.instance_id)
        if question != row.instance_id:
            raise RecordError(
                f"the verdict is on question {row.instance_id!r}, and the response of this id answers {question!r} in"
                " the run. Give the verdicts on this run.",
                record=f"response {row.response_id}",
            )


def _once(verdicts: Iterable[SettledVerdict]) -> dict[str, SettledVerdict]:
    """Verdicts by response; two that differ are refused, the same one twice is one."""
    settled: dict[str, SettledVerdict] = {}
    for row in verdicts:
        if settled.setdefault(row.response_id, row) != row:
            raise RecordError("has two verdicts. Settle them first.", record=f"response {row.response_id}")
    return settled


def _deciding(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without the guidelines of questions that give no label here; as JSON has them.

    Another text for those leaves a validation what it was.
    """
    guidelines = settings.get("guidelines")
    if not isinstance(guidelines, Mapping) or not set(QUESTIONS.values()) <= set(guidelines):
        raise SettingError("the settings of a judge name the guideline of every criterion. Give its whole identity.")
    deciding = [question for question in (*QUESTIONS.values(), Question.JOINT) if question in guidelines]
    return {**settings, "guidelines": {str(question): guidelines[question] for question in deciding}}


def _question_codes(run: JudgedRun, settled: Mapping[str, SettledVerdict]) -> Indices:
    def question(response_id: str) -> tuple[str, str]:
        if response_id in settled:
            return "question", settled[response_id].instance_id
        known = run.questions.get(response_id)
        return ("response", response_id) if known is None else ("question", known)

    return codes([question(response_id) for response_id in run.judgments])[0]


def _corrected(
    run: JudgedRun,
    settled: Mapping[str, SettledVerdict],
    strata: Mapping[str, str] | None,
    rng: np.random.Generator,
) -> dict[JudgedLabel, CorrectedRate]:
    question = _question_codes(run, settled)
    judged = [judgment.verdict for judgment in run.judgments.values()]
    human = [settled[one].verdict if one in settled else Verdict() for one in run.judgments]
    weight = None if strata is None else _weights(run, settled, strata)
    return {
        label: corrected_rate(hit_codes(label, judged), hit_codes(label, human), question, rng=rng, weight=weight)
        for label in JudgedLabel
    }


def _weights(run: JudgedRun, settled: Mapping[str, SettledVerdict], strata: Mapping[str, str]) -> Floats:
    if missing := [one for one in run.judgments if one not in strata]:
        raise SettingError(f"response {missing[0]} has no stratum. Name one for every judged response, or none at all.")
    stratum, names = codes([strata[one] for one in run.judgments])
    labelled = np.array([one in settled for one in run.judgments])
    if empty := set(names) - {strata[one] for one in run.judgments if one in settled}:
        raise SettingError(
            f"no response of the stratum {min(empty)!r} is labelled. Label some, or leave the strata out."
        )
    return sampling_weights(stratum, labelled)


def refuse_other_judge(validation: Validation, judge: str, settings: Mapping[str, Any]) -> None:
    """Raise unless the validation is of this judge, asked in this way."""
    if validation.judge != judge:
        raise SettingError(
            f"the validation is of {validation.judge}, the run was judged by {judge}. Validate that judge."
        )
    asked = _deciding(settings)
    if changed := sorted(_differing(validation.settings, asked)):
        raise SettingError(
            f"the validation is of {judge} asked in another way: {', '.join(changed)} differ. Validate it anew."
        )


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name in one.keys() | other.keys():
        mine, theirs = one.get(name), other.get(name)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            yield from _differing(mine, theirs, f"{prefix}{name} ")
        elif mine != theirs:
            yield f"{prefix}{name}"


class RunRates(NamedTuple):
    """The rates of a run, corrected."""

    rates: Mapping[JudgedLabel, CorrectedRate]
    carried_over: bool
    """Whether the validation was made on other responses: then the judge is supposed to err here as it did there."""


def correct(
    validation: Validation,
    judgments: Iterable[Judgment],
    responses: Iterable[Response] = (),
    *,
    settings: Mapping[str, Any],
    rng: np.random.Generator,
) -> RunRates:
    """The rates of a run by the same judge; refuses one by another."""
    run = JudgedRun.of(judgments, responses)
    refuse_other_judge(validation, run.judge, settings)
    if run_identity(run.judgments.values()) == validation.run:
        _refuse_other_labels(validation, run)
        return RunRates(validation.corrected, carried_over=False)
    if validation.stratified:
        raise SettingError(
            "the validation rests on responses that were drawn by what the judge said of them, and corrects the run"
            " they were drawn from. For another run, label some of its own."
        )
    question = _question_codes(run, {})
    judged = [judgment.verdict for judgment in run.judgments.values()]
    rates = {
        label: carried_over_rate(hit_codes(label, judged), question, validation.errors[label], rng=rng)
        for label in JudgedLabel
    }
    return RunRates(rates, carried_over=True)


def _refuse_other_labels(validation: Validation, run: JudgedRun) -> None:
    """Raise where the responses were judged anew since the validation: its rates are those of the old judgments."""
    verdicts = [judgment.verdict for judgment in run.judgments.values()]
    for label, rate in validation.corrected.items():
        hits = hit_codes(label, verdicts)
        counts = tuple(int((hits == code).sum()) for code in (1, 0))
        hits_then = round((rate.judge or 0) * rate.judged)
        if counts != (hits_then, rate.judged - hits_then):
            raise SettingError(
                f"the validation was made from other judgments of these responses ({label} differs)."
                " Run `eclose judge validate` or `eclose label` again."
            )


def compare(
    first: Iterable[Judgment],
    second: Iterable[Judgment],
    verdicts: Iterable[SettledVerdict],
    *,
    rng: np.random.Generator,
    resamples: int = 2_000,
) -> JudgeComparison:
    """Two judges, or two efforts of one, on the responses that both of them and people labelled."""
    one, other = JudgedRun.of(first).judgments, JudgedRun.of(second).judgments
    cases: Sequence[TwoJudgesCase] = [
        TwoJudgesCase(row.instance_id, row.benchmark or UNKNOWN, one[key].verdict, other[key].verdict, row.verdict)
        for key, row in _once(verdicts).items()
        if key in one and key in other
    ]
    if not cases:
        raise UserError("no verdict is about a response that both judges saw. Are these the files you meant?")
    return compare_judges(cases, rng=rng, resamples=resamples)


def read_judgments(path: Path | str) -> list[Judgment]:
    """Judgments from their file."""
    return list(read_records(path, Judgment))


def read_verdicts(path: Path | str) -> list[SettledVerdict]:
    """People's verdicts from their file."""
    return list(read_records(path, SettledVerdict))


_ADAPTER = TypeAdapter(Validation)


def write(path: Path | str, validation: Validation) -> None:
    """Write the validation; the file appears whole or not at all."""
    with AtomicFile(path) as file:
        file.write(_ADAPTER.dump_json(validation, indent=1) + b"\n")


def read(path: Path | str) -> Validation:
    """A validation from its file."""
    require_file(Path(path))
    try:
        return _ADAPTER.validate_json(Path(path).read_bytes(), strict=True, extra="forbid")
    except ValidationError as invalid:
        raise UserError(
            f"{path}: this is not a validation of ours, or of another version ({invalid.error_count()} errors). "
            "Make it anew with `eclose judge validate`."
        ) from invalid
