"""Simulation of the paper's annotation: responses of the world, annotators who err in hard decisions, real pages.

Two screeners look at every question, and six annotators label the responses to eligible questions, two each, over HTTP
through all passes; an adjudicator of each kind, who is always right, settles where they differ. Two annotators leave
when they have done half of their work, each in the middle of a response, and two others take over. Then labels are
exported and diagnosed, and agreement is worked out again from the database's rows alone.

    python studies/campaigns/annotate_paper.py --questions 866      2,598 responses and 1,300 questions, as in the paper
    python studies/campaigns/annotate_paper.py                      a tenth of it
    python studies/campaigns/annotate_paper.py --questions 866 --without-pages
                                                            agreement alone, of the same decisions, in a minute
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.values.judgment import Ineligibility
from eclose_annotate import events as audit_log
from eclose_annotate.annotations import Annotation, ScreeningAnnotation, group_annotations
from eclose_annotate.forms import AnnotationTaskKind, judgment_from_form, screening_from_form
from eclose_annotate.material_store import read_stored_material
from eclose_annotate.people import people
from eclose_annotate.project import open_annotation_project
from eclose_annotate.read import read_annotations
from eclose_annotate.results.agreement_report import build_agreement_report, count_screening_outcomes
from eclose_annotate.results.export_files import export_annotations
from eclose_annotate.setup import AnnotationCrew
from eclose_annotate.staffing import reassign_tasks
from studies.campaigns.annotators import agreement_recount
from studies.campaigns.annotators.browser import Browser
from studies.campaigns.annotators.error_model import SimulatedAnnotator
from studies.campaigns.annotators.labeller import Labeller, TruthIndex
from studies.campaigns.annotators.material import World, make_world
from studies.campaigns.annotators.paper_rates import (
    ADJUDICATED,
    MIX,
    REASONS,
    SCREENING_ADJUDICATED,
    TABLE,
    fit_annotator,
    fit_screener,
    make_ineligible_questions,
)
from studies.campaigns.annotators.server import Server, load_average, make_project, percentile
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.metrics.agreement import AnnotatorAgreementRow
    from eclose_annotate.results.agreement_report import AgreementReport
    from studies.campaigns.annotators.browser import RequestTiming

CREW = AnnotationCrew(
    annotators=[f"A{number}" for number in range(1, 7)],
    adjudicators=["A7"],
    screeners=["S1", "S2"],
    screening_adjudicators=["S3"],
)
LEAVERS, SUCCESSORS = ("A2", "A5"), ("A8", "A9")
FULL = 866
CLOSE = 0.05
"""Largest distance of alpha and of chance agreement from the paper's, at full size."""


@dataclass(frozen=True)
class Study:
    """Material of a simulated study, with the truth about it."""

    world: World
    """Includes the ineligible questions, with three responses each that screening keeps from the annotators."""
    ineligible: Mapping[str, Ineligibility]
    """By the text of the question."""
    annotators: Mapping[str, SimulatedAnnotator]


def make_study(questions: int) -> Study:
    base = make_world(questions, MIX)
    ineligible_questions = make_ineligible_questions(round(questions * 434 / 866), base.instances)
    ineligible = {instance.question: code for instance, code in ineligible_questions}
    annotator, screener = (
        fit_annotator(base.truths),
        fit_screener([instance.question for instance in base.instances], list(ineligible)),
    )
    annotators = {name: replace(annotator, name=name) for name in (*CREW.annotators, *SUCCESSORS)}
    annotators |= {name: replace(screener, name=name) for name in CREW.screeners}
    annotators |= {name: SimulatedAnnotator(name) for name in ("A7", "S3")}
    instances = [instance for instance, _ in ineligible_questions]
    # Responses to an ineligible question are those of an eligible one: annotators see them only if screeners err alike.
    copies = [
        (
            replace(response, id=f"{instance.id}/{number}", instance_id=instance.id),
            replace(truth, response_id=f"{instance.id}/{number}", question=instance.question),
        )
        for instance, start in zip(instances, range(0, 3 * len(instances), 3), strict=True)
        for number, (response, truth) in enumerate(list(zip(base.responses, base.truths, strict=True))[start:][:3])
    ]
    world = World(
        [*base.instances, *instances],
        [*base.responses, *(response for response, _ in copies)],
        [*base.truths, *(truth for _, truth in copies)],
    )
    return Study(world, ineligible, annotators)


def label_shift(
    origin: str, links: Mapping[str, str], study: Study, names: Sequence[str], limits: Mapping[str, int] | None = None
) -> list[RequestTiming]:
    """Let people finish their queues at once, some only until they have submitted a number of passes."""
    truths = TruthIndex(study.world.truths, study.ineligible)

    def label_all(name: str) -> list[RequestTiming]:
        browser = Browser(origin)
        browser.join(links[name])
        limit = (limits or {}).get(name)
        # Leavers save drafts as well, which their successors must not see.
        labeller = Labeller(browser, study.annotators[name], truths, drafts=int(limit is not None))
        labeller.stop_when(lambda: limit is not None and labeller.submitted >= limit)
        labeller.work()
        browser.close()
        return browser.timings

    with ThreadPoolExecutor(len(names)) as pool:
        return [timing for timings in pool.map(label_all, names) for timing in timings]


def replace_leavers(folder: Path) -> dict[str, str]:
    """Lock the leavers out and hand their tasks over; return the invitations of the successors."""
    project = open_annotation_project(folder)
    with project.writing() as connection:
        for name in LEAVERS:
            person = people.find_person(connection, name)
            assert person is not None
            people.deactivate_person(connection, person.id)
            audit_log.append_audit_event(connection, "lead", "deactivate", detail={"name": name})
    results = [
        reassign_tasks(project, name, new=[successor], actor="lead", reason="left")
        for name, successor in zip(LEAVERS, SUCCESSORS, strict=True)
    ]
    project.close()
    begun = sum(result.started for result in results)
    moved = {name: count for result in results for name, count in result.tasks.items()}
    print(f"{' and '.join(LEAVERS)} left with {begun} tasks begun; handed over: {moved}", flush=True)
    invitees = [invitee for result in results for invitee in result.invitees]
    return {invitee.person.name: f"/invitation/{invitee.token}" for invitee in invitees}


def run_study(folder: Path, study: Study) -> list[RequestTiming]:
    """Run the whole study over HTTP and print what it cost."""
    began = time.perf_counter()
    links = make_project(folder, study.world, CREW)
    print(f"project made in {time.perf_counter() - began:.1f} s; {load_average()}", flush=True)
    with Server(folder) as server:
        before, began = server.cpu, time.perf_counter()
        timings = label_shift(server.origin, links, study, CREW.screeners)
        timings += label_shift(server.origin, links, study, CREW.screening_adjudicators)
        # Two annotators for each response, in four passes; two passes more leave a response half done.
        half = 4 * round(2 * len(study.world.truths) / len(CREW.annotators) / 3) + 2
        timings += label_shift(server.origin, links, study, CREW.annotators, dict.fromkeys(LEAVERS, half))
        links |= replace_leavers(folder)
        timings += label_shift(server.origin, links, study, SUCCESSORS)
        timings += label_shift(server.origin, links, study, CREW.adjudicators)
        seconds, spent = time.perf_counter() - began, server.cpu - before
        memory = server.memory
    kinds = Counter(timing.kind for timing in timings)
    print(
        f"{len(timings):,} requests in {seconds / 60:.1f} min ({len(timings) / seconds:.0f}/s),"
        f" {1e3 * spent / len(timings):.1f} ms of the server's CPU each, {memory:.0f} MiB:"
        f" {', '.join(f'{kind} {n:,}' for kind, n in kinds.most_common())}"
    )
    p95 = {
        kind: 1e3 * percentile([timing.seconds for timing in timings if timing.kind == kind], 0.95) for kind in kinds
    }
    print("p95 in ms: " + ", ".join(f"{kind} {value:.0f}" for kind, value in p95.items()) + f"; {load_average()}")
    return timings


# --- results ---------------------------------------------------------------------------------------------------------


def rows_of(report: AgreementReport) -> list[AnnotatorAgreementRow]:
    assert report.responses is not None
    assert report.screening is not None
    overall = report.screening.overall
    screening = [replace(overall.eligibility, judgment="Eligibility")]
    return [*report.responses.rows, *screening, replace(overall.reason, judgment="Ineligibility reason")]


def _alpha(row: AnnotatorAgreementRow) -> str:
    if row.alpha.value is None:
        return "undefined"
    interval = "" if row.alpha.interval is None else " [{:.3f}, {:.3f}]".format(*row.alpha.interval)
    return f"{row.alpha.value:.3f}{interval}"


def _distance(value: float | None, other: float | None) -> float:
    """Return the distance of two figures: 0 where both are undefined, infinity where one is."""
    if value is None or other is None:
        return 0.0 if value is other else float("inf")
    return abs(value - other)


def _chance(row: str, majority: float | None, raw: float, alpha: float | None) -> float:
    """Return the chance agreement: of two labels from their shares, of codes from raw agreement and alpha."""
    if row not in REASONS:
        assert majority is not None
        return majority**2 + (1 - majority) ** 2
    # Rounded to three digits, alpha near 1 would say nothing; that of codes is far from it.
    return 1 - (1 - raw) / (1 - (alpha or 0.0))


def compare(
    rows: Sequence[AnnotatorAgreementRow], counts: Mapping[str, agreement_recount.Count] | None, *, full: bool
) -> list[str]:
    """Print the table beside the paper's; return the problems. ``counts`` are the same figures, counted again."""
    problems = []
    print(f"{'judgment':24}{'n':>8}{'chance':>8}{'raw':>7}  {'alpha [95 %]':24} paper: n chance  raw   alpha")
    for row in rows:
        paper = TABLE[row.judgment]
        assert row.raw.value is not None
        chance = _chance(row.judgment, row.majority, row.raw.value, row.alpha.value)
        paper_chance = _chance(row.judgment, paper.majority, paper.raw, paper.alpha)
        print(
            f"{row.judgment:24}{row.n:8,}{chance:8.3f}{row.raw.value:7.3f}  {_alpha(row):24}"
            f"{paper.n:9,}  {paper_chance:.3f} {paper.raw:.3f} {paper.alpha:.3f}"
        )
        again = None if counts is None else counts[row.judgment]
        if again is not None and (
            row.n != again.n
            or _distance(row.raw.value, again.raw) > 1e-9
            or _distance(row.alpha.value, again.alpha) > 1e-9
        ):
            problems.append(f"{row.judgment}: counted again it is {again}")
        if full and _distance(row.alpha.value, paper.alpha) > CLOSE:
            problems.append(f"{row.judgment}: alpha is {row.alpha.value}, the paper's {paper.alpha}")
        if full and _distance(chance, paper_chance) > CLOSE:
            problems.append(f"{row.judgment}: chance agreement is {chance:.3f}, the paper's {paper_chance:.3f}")
    return problems


def check_responses(study: Study, responses: Mapping[str, agreement_recount.SubjectForms]) -> list[str]:
    """Compare settled labels with the truth: they may be wrong only where two annotators erred alike."""
    adjudicated = {key for key, forms in responses.items() if forms.last is not None}
    false = {
        truth.response_id
        for truth in study.world.truths
        if truth.response_id in responses and agreement_recount.wrong(responses[truth.response_id], truth)
    }
    print(
        f"{len(adjudicated):,} of {len(responses):,} responses adjudicated"
        f" ({100 * len(adjudicated) / len(responses):.1f} %; the paper {ADJUDICATED}, 31.7 %);"
        f" {len(false)} settled wrongly, where two erred alike"
    )
    return [f"{key}: adjudicated, and wrong" for key in false & adjudicated]


def check_questions(study: Study, questions: Mapping[str, agreement_recount.SubjectForms]) -> list[str]:
    words = {instance.id: instance.question for instance in study.world.instances}
    adjudicated, false = set(), set()
    for key, forms in questions.items():
        entry = (forms.last or forms.first[0])["S"][0]
        code = study.ineligible.get(words[key])
        if forms.last is not None:
            adjudicated.add(key)
        if entry.get("code") != (None if code is None else str(code)):
            false.add(key)
    print(
        f"{len(adjudicated):,} of {len(questions):,} questions adjudicated"
        f" ({100 * len(adjudicated) / len(questions):.1f} %; the paper {SCREENING_ADJUDICATED}, 14.2 %);"
        f" {len(false)} settled wrongly, where two erred alike"
    )
    return [f"{key}: adjudicated, and wrong" for key in false & adjudicated]


def check_gate(responses: Mapping[str, agreement_recount.SubjectForms], annotations: Any) -> list[str]:
    """Compare the annotated responses with the outcome of screening: all of eligible questions, and no others."""
    eligible = {question.question_id for question in annotations.questions if question.final.eligible}
    expected = {response.response_id for response in annotations.responses if response.question_id in eligible}
    outcomes = count_screening_outcomes(annotations)
    print(
        f"screening: {outcomes.eligible:,} of {outcomes.questions:,} questions eligible,"
        f" {', '.join(f'{code} {count}' for code, count in outcomes.reasons.items())}; {len(responses):,} of"
        f" {len(annotations.responses):,} responses annotated"
    )
    problems = [f"{key}: annotated, but its question is ineligible" for key in responses.keys() - expected]
    return problems + [f"{key}: not annotated, but its question is eligible" for key in expected - responses.keys()]


def check_export(folder: Path, out: Path, study: Study, annotations: Any, material: Any) -> list[str]:
    """Export the labels, diagnose them with the command, and compare the counts with the truth."""
    export = export_annotations(annotations, out, stage="annotate export", settings={}, material=material)
    counts = export.manifest.funnel["responses"]
    print(f"export: {counts}")
    print(f"{sum(row.submitted for row in annotations.set_aside)} passes and the drafts of leavers are kept apart")
    command = [sys.executable, "-m", "eclose.cli.main", "diagnose", str(out), "--out", str(folder / "report")]
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    if process.returncode != 0:
        return [f"diagnose: {process.stderr.strip()[-300:]}"]
    print("diagnosis of the exported labels:")
    print("\n".join(f"  {line}" for line in process.stdout.splitlines()[:14]))
    settled = {response.response_id for response in annotations.responses if response.final is not None}
    truths = [truth.verdict for truth in study.world.truths if truth.response_id in settled]
    gap = sum(bool(verdict.in_gap) for verdict in truths) / len(truths)
    correct = sum(bool(verdict.correct) for verdict in truths) / len(truths)
    print(f"in truth {100 * correct:.1f} % correct, {100 * gap:.1f} % LGG")
    if counts.accepted != len(annotations.eligible_responses) or not counts.conserved:
        return [f"{counts.accepted} of {len(annotations.eligible_responses)} responses are settled: {counts}"]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=86, help="eligible questions, with three responses each")
    parser.add_argument("--without-pages", action="store_true", help="take the decisions as they are, without a server")
    options = parser.parse_args()
    began = time.perf_counter()
    study = make_study(options.questions)
    print(
        f"{len(study.world.responses):,} responses to {len(study.world.instances):,} questions, {options.questions} of"
        " them eligible,"
        f" {sum(len(truth.steps) for truth in study.world.truths):,} steps, made in {time.perf_counter() - began:.0f} s"
    )
    if options.without_pages:
        return compare_decisions(study, full=options.questions >= FULL)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "study"
        timings = run_study(folder, study)
        problems = [f"a request was answered with {timing.status}" for timing in timings if timing.status >= 400]
        problems += evaluate(Path(scratch), folder, study, full=options.questions >= FULL)
    for problem in problems[:20]:
        print(f"PROBLEM: {problem}")
    return print_result(
        name=f"the paper's annotation in simulation, {len(study.world.responses):,} responses",
        value=round((time.perf_counter() - began) / 60, 1),
        unit=f"min for all of it, {len(timings):,} requests; {len(problems)} problems",
        goal="agreement near the paper's and counted alike twice, nothing wrong but what two erred alike in",
        holds=not problems,
    )


def compare_decisions(study: Study, *, full: bool) -> int:
    """Compare the agreement of the people's decisions with the paper's, without pages; each pair labels in turn."""
    pairs = cycle(combinations(CREW.annotators, 2))
    rows = []
    for truth in study.world.truths:
        if truth.question not in study.ineligible:
            for name in next(pairs):
                annotator = study.annotators[name]
                forms = {"A": annotator.steps(truth), **{part: annotator.whole(truth, part) for part in "BCD"}}
                judgment = judgment_from_form(truth.response_id, name, AnnotationTaskKind.RESPONSE, forms)
                kind = AnnotationTaskKind.RESPONSE
                rows.append(Annotation(truth.response_id, truth.question, kind, 2, annotator=name, judgment=judgment))
    screenings = [
        ScreeningAnnotation(
            instance.question, 2, annotator=name, screening=screening_from_form(instance.question, name, entry)
        )
        for instance in study.world.instances
        for name in CREW.screeners
        for entry in study.annotators[name].screening(instance.question, study.ineligible.get(instance.question))
    ]
    report = build_agreement_report(group_annotations(rows, screenings))
    problems = compare(rows_of(report), None, full=full)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return print_result(
        name=f"the paper's agreement in simulation, {len(rows) // 2:,} responses without pages",
        value=len(problems),
        unit="rows whose alpha or chance agreement is not the paper's",
        goal=f"0 further than {CLOSE} at full size",
        holds=not problems,
    )


def evaluate(scratch: Path, folder: Path, study: Study, *, full: bool) -> list[str]:
    project = open_annotation_project(folder)
    with project.reading() as connection:
        annotations, material = read_annotations(connection), read_stored_material(connection)
        responses, questions = (
            agreement_recount.read(connection, "response"),
            agreement_recount.read(connection, "screening"),
        )
        events = audit_log.last_audit_event(connection).seq
    project.close()
    print(f"{events:,} events")
    counts = agreement_recount.count(responses.values()) | agreement_recount.count_screening(questions.values())
    problems = compare(rows_of(build_agreement_report(annotations)), counts, full=full)
    problems += check_responses(study, responses) + check_questions(study, questions)
    problems += check_gate(responses, annotations)
    return problems + check_export(scratch, scratch / "labels", study, annotations, material)


if __name__ == "__main__":
    sys.exit(main())
