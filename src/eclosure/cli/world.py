"""``eclosure world``: a benchmark whose truth is known, its exact judge, and a model that answers from it."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eclosure.cli.output import counted, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclosure.store.records import ReadRecord
    from eclosure.world.make import Item

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="A multi-hop benchmark whose truth is known: make it, judge responses to it, serve a model for it.",
)


class ProfileName(StrEnum):
    """Which benchmark it is to look like."""

    TWO_WIKI = "2wiki"
    MUSIQUE = "musique"
    HOTPOT = "hotpot"


ProfileOption = Annotated[ProfileName, typer.Option("--profile", help="Which benchmark it is to look like.")]
Seed = Annotated[int, typer.Option(help="Another seed gives another world.")]
Failures = Annotated[
    list[str] | None,
    typer.Option("--failure", help="How often responses fail and how, such as answer_decoupling=0.1 or L1=0.05."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what other work has written.")]


@app.command()
def make(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.", file_okay=False)],
    questions: Annotated[int, typer.Option(min=0, help="How many questions to make.")] = 0,
    families: Annotated[int, typer.Option(min=0, help="How many counterfactual families to make.")] = 0,
    profile: ProfileOption = ProfileName.TWO_WIKI,
    seed: Seed = 42,
    failure: Failures = None,
    force: Force = False,
) -> None:
    """Make questions with responses to them, or families of edits, without end and without a model."""
    from eclosure.errors import SettingError

    if not questions and not families:
        raise SettingError("ask for --questions N or --families N.")
    settings: dict[str, Any] = {"profile": profile.value, "seed": seed}
    if questions:
        rates = _rates(failure)
        work = {"instances": _instances, "responses": _responses, "planted": _planted}
        for name, records in work.items():
            asked = settings | {"questions": questions} | ({"failures": rates} if name != "instances" else {})
            _write(f"world {name}", asked, out / f"{name}.jsonl", records(profile.value, seed, questions, rates), force)
    if families:
        asked = settings | {"families": families}
        _write("world families", asked, out / "families.jsonl", _families(profile.value, seed, families), force)


@app.command()
def judge(
    responses: Annotated[Path, typer.Argument(help="Responses, one JSON object a line.", show_default=False)],
    instances: Annotated[
        Path | None, typer.Option(help="The questions; instances.jsonl beside them by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where verdicts go; verdicts.jsonl beside them by default.")
    ] = None,
    force: Force = False,
) -> None:
    """Judge responses exactly, from their words; what cannot be read is counted, not guessed."""
    questions = instances or responses.with_name("instances.jsonl")
    target = out or responses.with_name("verdicts.jsonl")
    _write("world judge", {}, target, _verdicts(responses, questions), force, inputs=(responses, questions))


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes any free port.")] = 0,
    seed: Seed = 0,
    failure: Failures = None,
    fault: Annotated[
        list[str] | None, typer.Option(help="Faults and their rates, such as rate_limit=0.1 or drop=0.02.")
    ] = None,
    flip_rate: Annotated[float, typer.Option(min=0, max=1, help="How often a judgement is turned round.")] = 0.0,
    latency: Annotated[float, typer.Option(min=0, help="Seconds before each reply.")] = 0.0,
    jitter: Annotated[float, typer.Option(min=0, help="Seconds added at random.")] = 0.0,
    max_concurrency: Annotated[int | None, typer.Option(min=1, help="More at once get a 429.")] = None,
) -> None:
    """Serve a model on loopback that answers from the oracle, with a bill and with faults on request."""
    from eclosure.world.faults import Behaviour, Fault
    from eclosure.world.handlers import FailureRates, world_registry
    from eclosure.world.server import run

    faults = {_fault(Fault, name): rate for name, rate in _pairs(fault).items()}
    behaviour = Behaviour(
        seed=seed,
        flip_rate=flip_rate,
        faults=faults,
        latency=latency,
        jitter=jitter,
        max_concurrency=max_concurrency,
    )
    run(world_registry(FailureRates(_rates(failure)), seed), behaviour, port=port)


def _pairs(options: list[str] | None) -> dict[str, float]:
    """``name=rate`` options as a mapping."""
    from eclosure.errors import SettingError

    found: dict[str, float] = {}
    for option in options or ():
        name, _, rate = option.partition("=")
        try:
            found[name] = float(rate)
        except ValueError as error:
            raise SettingError(f"{option!r}: write a name and a rate, such as answer_decoupling=0.1.") from error
    return found


def _rates(options: list[str] | None) -> dict[str, float]:
    from eclosure.world.handlers import FailureRates

    return dict(FailureRates(_pairs(options)).rates)


def _fault(kinds: Any, name: str) -> Any:
    from eclosure.errors import SettingError

    try:
        return kinds(name)
    except ValueError as error:
        raise SettingError(f"there is no fault {name!r}. Choose from: {', '.join(kinds)}.") from error


def _write(
    name: str,
    settings: dict[str, Any],
    out: Path,
    records: Iterator[ReadRecord[Any]],
    force: bool,
    inputs: tuple[Path, ...] = (),
) -> None:
    from eclosure.store.stage import Stage

    stage = Stage(name, settings, inputs, out)
    manifest = stage.finished(force=force)
    counts = manifest.counts if manifest else stage.write(counted(records, f"writing {out.name}"))
    typer.echo(f"{out}: {counts}" + (" (done before)" if manifest else ""))


def _items(profile: str, seed: int, count: int) -> Iterator[tuple[int, Item]]:
    from eclosure.world.make import make_items

    yield from enumerate(islice(make_items(profile, seed), count), start=1)


def _instances(profile: str, seed: int, count: int, _rates: dict[str, float]) -> Iterator[ReadRecord[Any]]:
    from eclosure.store.records import ReadRecord

    for number, item in _items(profile, seed, count):
        yield ReadRecord(f"item {number}", value=item.instance)


def _responses(profile: str, seed: int, count: int, rates: dict[str, float]) -> Iterator[ReadRecord[Any]]:
    from eclosure.store.records import ReadRecord
    from eclosure.world.handlers import FailureRates, break_item

    for number, item in _items(profile, seed, count):
        yield ReadRecord(f"item {number}", value=break_item(item, FailureRates(rates)).response)


def _planted(profile: str, seed: int, count: int, rates: dict[str, float]) -> Iterator[ReadRecord[Any]]:
    from eclosure.core.verdict import SettledVerdict
    from eclosure.store.records import ReadRecord
    from eclosure.world.handlers import FailureRates, break_item

    for number, item in _items(profile, seed, count):
        made = break_item(item, FailureRates(rates))
        row = SettledVerdict(
            made.response.id, item.instance.id, made.verdict, item.instance.benchmark, made.response.source
        )
        yield ReadRecord(f"item {number}", value=row)


def _families(profile: str, seed: int, count: int) -> Iterator[ReadRecord[Any]]:
    from eclosure.core.family import Family
    from eclosure.store.records import ReadRecord
    from eclosure.world.families import make_family
    from eclosure.world.make import make_items

    made = 0
    for number, item in enumerate(make_items(profile, seed), start=1):
        if made == count:
            return
        family = make_family(item)
        if isinstance(family, Family):
            made += 1
            yield ReadRecord(f"item {number}", value=family)
        else:
            yield ReadRecord(f"item {number}", rejected=family)


def _verdicts(responses: Path, instances: Path) -> Iterator[ReadRecord[Any]]:
    """Verdicts in the order of the responses; the reasons for what is unjudged are printed at the end."""
    from collections import Counter

    from eclosure.core.instance import Instance
    from eclosure.core.response import Response
    from eclosure.core.verdict import SettledVerdict
    from eclosure.errors import UserError
    from eclosure.store.records import ReadRecord, read, scan
    from eclosure.world.oracle import judge as judge_response

    known = {instance.id: instance for instance in read(instances, Instance)}
    reasons: Counter[tuple[str, str]] = Counter()
    for record in scan(responses, Response):
        response = record.value
        if response is None:
            yield record
            continue
        if response.instance_id not in known:
            raise UserError(
                f"{responses} {record.where}: there is no instance {response.instance_id!r} in {instances}."
            )
        instance = known[response.instance_id]
        judgment = judge_response(instance, response)
        reasons.update((criterion.value, reason.split(" step ")[0]) for criterion, reason in judgment.unjudged.items())
        row = SettledVerdict(response.id, instance.id, judgment.verdict, instance.benchmark, response.source)
        yield ReadRecord(record.where, value=row)
    if reasons:
        rows = [[criterion, reason, str(count)] for (criterion, reason), count in sorted(reasons.items())]
        print_table("Not judged", ["criterion", "reason", "n"], rows)
