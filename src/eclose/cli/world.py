"""``eclose world``: a benchmark whose truth is known, its exact judge, and a model that answers from it."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from eclose.cli.shared.output import QUARANTINED, counted, print_table, say, say_written

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eclose.core.instance import Instance
    from eclose.core.judgment import Judgment
    from eclose.store.records.counts import Counts
    from eclose.store.records.jsonl import ReadRecord
    from eclose.store.runs.step import RunStep

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="A multi-hop benchmark whose truth is known: make it, judge responses to it, serve a model for it.",
)


class ProfileName(StrEnum):
    """Which benchmark it is to look like, or how hard short contexts are to be."""

    TWO_WIKI = "2wiki"
    MUSIQUE = "musique"
    HOTPOT = "hotpot"
    SHORT_EASY = "short-easy"
    SHORT_HARD = "short-hard"


class JudgeName(StrEnum):
    """How the served model judges."""

    EXACT = "exact"
    CAREFUL = "careful"
    NAIVE = "naive"


ProfileOption = Annotated[
    ProfileName,
    typer.Option("--profile", help="Which benchmark it is to look like, or how hard short contexts are to be."),
]
Seed = Annotated[int, typer.Option(help="Another seed gives another world.")]
Failures = Annotated[
    list[str] | None,
    typer.Option("--failure", help="How often responses fail and how, such as answer_decoupling=0.1 or L1=0.05."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what other work has written.")]


@app.command()
def make(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.", file_okay=False)],
    questions: Annotated[int, typer.Option(min=0, help="How many questions to make.")] = 0,
    families: Annotated[int, typer.Option(min=0, help="How many counterfactual families to make.")] = 0,
    sources: Annotated[int, typer.Option(min=0, help="How many sources to make, for families to be built from.")] = 0,
    ineligible: Annotated[
        float, typer.Option(min=0, max=1, help="The share of sources that are spoilt and cannot be built on.")
    ] = 0.3,
    profile: ProfileOption = ProfileName.TWO_WIKI,
    seed: Seed = 42,
    failure: Failures = None,
    force: Force = False,
) -> None:
    """Make questions with responses to them, families of edits, or sources to build on, without a model."""
    from eclose.errors import SettingError
    from eclose.store.runs.step import RunStep

    if not questions and not families and not sources:
        raise SettingError("ask for --questions N, --families N or --sources N.")
    settings: dict[str, Any] = {"profile": profile.value, "seed": seed}
    rates = _rates(failure)
    if questions:
        asked = settings | {"questions": questions}
        broken = asked | {"failures": rates}
        stages = [
            RunStep("world instances", asked, (), out / "instances.jsonl"),
            RunStep("world responses", broken, (), out / "responses.jsonl"),
            RunStep("world planted", broken, (), out / "planted.jsonl"),
        ]
        _run(stages, _questions(profile.value, seed, questions, rates), force=force)
    if families:
        stage = RunStep("world families", settings | {"families": families}, (), out / "families.jsonl")
        _run([stage], _families(profile.value, seed, families), force=force)
    if sources:
        asked = settings | {"sources": sources, "ineligible": ineligible}
        stages = [
            RunStep("world sources", asked, (), out / "sources.jsonl"),
            RunStep("world planted sources", asked, (), out / "sources.planted.jsonl"),
        ]
        _run(stages, _sources(profile.value, seed, sources, ineligible), force=force)


@app.command()
def judge(
    responses: Annotated[Path, typer.Argument(help="Responses, one JSON object a line.", show_default=False)],
    instances: Annotated[
        Path | None, typer.Option(help="The questions; instances.jsonl beside them by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where verdicts go; verdicts.jsonl beside them by default.")
    ] = None,
    judgments: Annotated[
        Path | None, typer.Option(help="Also write what was found step by step, and why a label is missing.")
    ] = None,
    force: Force = False,
) -> None:
    """Judge responses exactly, from their words; what cannot be read is counted, not guessed."""
    from collections import Counter

    from eclose.core.judgment import Judgment
    from eclose.store.records.json_reader import require_file
    from eclose.store.records.jsonl import read_records
    from eclose.store.runs.step import RunStep

    require_file(responses)
    questions = instances or responses.with_name("instances.jsonl")
    inputs = (responses, questions)
    stages = [RunStep("world judge", {}, inputs, out or responses.with_name("verdicts.jsonl"))]
    if judgments is not None:
        stages.append(RunStep("world judgments", {}, inputs, judgments))
    reasons: Counter[tuple[str, str]] = Counter()
    written = _run(stages, _judged(responses, questions, reasons), force=force)
    if all(one.again for one in written):
        if judgments is None:
            say("  --judgments FILE writes down why labels are missing; verdicts do not keep it")
        else:
            reasons.update(reason for judgment in read_records(judgments, Judgment) for reason in _reasons(judgment))
    if reasons:
        rows = [[criterion, reason, str(count)] for (criterion, reason), count in sorted(reasons.items())]
        print_table("Not judged", ["criterion", "reason", "n"], rows)
    raise typer.Exit(QUARANTINED if any(one.counts.quarantined for one in written) else 0)


@app.command()
def serve(
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes any free port.")] = 0,
    seed: Seed = 0,
    failure: Failures = None,
    fault: Annotated[
        list[str] | None, typer.Option(help="Faults and their rates, such as rate_limit=0.1 or drop=0.02.")
    ] = None,
    flip_rate: Annotated[float, typer.Option(min=0, max=1, help="How often a judgement is turned round.")] = 0.0,
    judge_noise: Annotated[
        float, typer.Option(min=0, max=1, help="How often its judge errs on a response, for each criterion.")
    ] = 0.0,
    judge_kind: Annotated[
        JudgeName,
        typer.Option("--judge", help="exact; or one who obeys orders in the texts it is shown: naive, careful."),
    ] = JudgeName.EXACT,
    constructor_noise: Annotated[
        float, typer.Option(min=0, max=1, help="How often its constructor plants a defect, for each call.")
    ] = 0.0,
    verifier_noise: Annotated[
        float, typer.Option(min=0, max=1, help="How often its verifier errs on a candidate, for each call.")
    ] = 0.0,
    latency: Annotated[float, typer.Option(min=0, help="Seconds before each reply.")] = 0.0,
    jitter: Annotated[float, typer.Option(min=0, help="Seconds added at random.")] = 0.0,
    max_concurrency: Annotated[int | None, typer.Option(min=1, help="More at once get a 429.")] = None,
) -> None:
    """Serve a model on loopback that answers from the oracle, with a bill and with faults on request."""
    from eclose.world.roles.gullible_judges import JudgeTrust
    from eclose.world.roles.registry import FailureRates, build_world_registry
    from eclose.world.server.app import run_server
    from eclose.world.server.faults import Fault, ServerBehaviour

    faults = {_fault(Fault, name): rate for name, rate in _pairs(fault).items()}
    behaviour = ServerBehaviour(
        seed=seed,
        flip_rate=flip_rate,
        faults=faults,
        latency=latency,
        jitter=jitter,
        max_concurrency=max_concurrency,
    )
    trust = None if judge_kind is JudgeName.EXACT else JudgeTrust(judge_kind.value)
    registry = build_world_registry(
        FailureRates(_rates(failure)),
        seed,
        judge_noise=judge_noise,
        judge_trust=trust,
        constructor_noise=constructor_noise,
        verifier_noise=verifier_noise,
    )
    run_server(registry, behaviour, port=port)


def _pairs(options: list[str] | None) -> dict[str, float]:
    """``name=rate`` options as a mapping."""
    from eclose.errors import SettingError

    found: dict[str, float] = {}
    for option in options or ():
        name, _, text = option.partition("=")
        try:
            rate = float(text)
        except ValueError as error:
            raise SettingError(f"{option!r}: write a name and a rate, such as answer_decoupling=0.1.") from error
        # NaN is in no range, so it is refused here with the rest.
        if not 0 <= rate <= 1:
            raise SettingError(f"{option!r}: a rate is a finite number from 0 to 1.")
        if name in found:
            raise SettingError(f"{option!r}: {name} was given before, with the rate {found[name]}. Give it once.")
        found[name] = rate
    return found


def _rates(options: list[str] | None) -> dict[str, float]:
    from eclose.world.roles.registry import FailureRates

    return dict(FailureRates(_pairs(options)).rates)


def _fault(kinds: Any, name: str) -> Any:
    from eclose.errors import SettingError

    try:
        return kinds(name)
    except ValueError as error:
        raise SettingError(f"there is no fault {name!r}. Choose from: {', '.join(kinds)}.") from error


class _Written(NamedTuple):
    counts: Counts
    again: bool
    """Whether it was written by an earlier run."""


def _run(stages: Sequence[RunStep], rows: Iterable[Sequence[ReadRecord[Any]]], *, force: bool) -> list[_Written]:
    """Write what is still to do in one pass over the rows, and say what was written."""
    from eclose.store.runs.step import refuse_shared_files, write_steps

    refuse_shared_files(stages)
    finished = [stage.claim(force=force) for stage in stages]
    to_do = [place for place, manifest in enumerate(finished) if manifest is None]
    counts = {place: manifest.counts for place, manifest in enumerate(finished) if manifest is not None}
    if to_do:
        label = f"writing {', '.join(stages[place].out.name for place in to_do)}"
        written = write_steps(
            [stages[place] for place in to_do],
            ([row[place] for place in to_do] for row in counted(rows, label)),
        )
        counts |= dict(zip(to_do, written, strict=True))
    results = [_Written(counts[place], again=place not in to_do) for place in range(len(stages))]
    for stage, result in zip(stages, results, strict=True):
        say_written(stage, result.counts, again=result.again)
    return results


def _questions(profile: str, seed: int, count: int, rates: dict[str, float]) -> Iterator[list[ReadRecord[Any]]]:
    """Each item once: its instance, a response that may fail, and the labels the response was made to get."""
    from eclose.core.verdict import SettledVerdict
    from eclose.store.records.jsonl import ReadRecord
    from eclose.world.make.instances import make_items
    from eclose.world.roles.registry import FailureRates, break_item_response

    failures = FailureRates(rates)
    for number, item in enumerate(islice(make_items(profile, seed), count), start=1):
        made = break_item_response(item, failures)
        planted = SettledVerdict(
            made.response.id, item.instance.id, made.verdict, item.instance.benchmark, made.response.source
        )
        # Not every question admits every failure; where one does not, the manifest says what was wanted.
        spared = (f"{made.asked} asked for, not possible",) if made.asked and made.verdict.reliable else ()
        where = f"item {number}"
        yield [
            ReadRecord(where, value=item.instance),
            ReadRecord(where, value=made.response, repairs=spared),
            ReadRecord(where, value=planted),
        ]


def _families(profile: str, seed: int, count: int) -> Iterator[list[ReadRecord[Any]]]:
    from eclose.core.family import Family
    from eclose.store.records.jsonl import ReadRecord
    from eclose.world.make.families import make_family
    from eclose.world.make.instances import make_items

    made = 0
    for number, item in enumerate(make_items(profile, seed), start=1):
        if made == count:
            return
        family = make_family(item)
        if isinstance(family, Family):
            made += 1
            yield [ReadRecord(f"item {number}", value=family)]
        else:
            yield [ReadRecord(f"item {number}", rejected=family)]


def _sources(profile: str, seed: int, count: int, ineligible: float) -> Iterator[list[ReadRecord[Any]]]:
    """Each source, and beside it what is wrong with it: the source itself does not say."""
    from eclose.store.records.jsonl import ReadRecord
    from eclose.world.faulty.bad_sources import PlantedDefect, make_sources

    for number, (source, kind) in enumerate(make_sources(profile, seed, count, ineligible), start=1):
        where = f"source {number}"
        yield [ReadRecord(where, value=source), ReadRecord(where, value=PlantedDefect(source.id, kind))]


def _judged(
    responses: Path, instances: Path, reasons: Counter[tuple[str, str]]
) -> Iterator[tuple[ReadRecord[Any], ReadRecord[Any]]]:
    """Verdict and judgment of each response, in their order; counts the reasons for what is unjudged."""
    from eclose.core.response import Response
    from eclose.core.verdict import SettledVerdict
    from eclose.errors import RecordError
    from eclose.store.records.jsonl import ReadRecord, scan_records
    from eclose.world.oracle.judge import judge as judge_response

    find = _finder(instances)
    for record in scan_records(responses, Response):
        response = record.value
        if response is None:
            yield record, record
            continue
        instance = find(response.instance_id)
        if instance is None:
            problem = f"there is no instance {response.instance_id!r} in {instances}. Give its file with --instances."
            raise RecordError(problem, path=responses, record=record.where)
        judgment = judge_response(instance, response)
        reasons.update(_reasons(judgment))
        row = SettledVerdict(response.id, instance.id, judgment.verdict, instance.benchmark, response.source)
        yield ReadRecord(record.where, value=row), ReadRecord(record.where, value=judgment)


def _reasons(judgment: Judgment) -> Iterator[tuple[str, str]]:
    """Criterion and reason, without the number of the step: steps are to be counted together."""
    return ((criterion.value, reason.split(" step ")[0]) for criterion, reason in judgment.unjudged.items())


def _finder(path: Path) -> Callable[[str], Instance | None]:
    """Finds instances by id. While they are asked for in the order of their file, memory holds one at a time."""
    from eclose.benchmarks.layouts import RecordLayout
    from eclose.benchmarks.load import scan_instances
    from eclose.store.records.jsonl import unwrap_records

    def instances() -> Iterator[Instance]:
        return unwrap_records(scan_instances(path, layout=RecordLayout.ECLOSE))

    ahead = instances()
    last: Instance | None = None
    everything: dict[str, Instance] = {}

    def find(id_: str) -> Instance | None:
        nonlocal last
        if last is not None and last.id == id_:
            return last
        for last in ahead:
            if last.id == id_:
                return last
        # Not ahead, so another order than ours: from here on all of them are kept at hand.
        if not everything:
            everything.update((instance.id, instance) for instance in instances())
        return everything.get(id_)

    return find
