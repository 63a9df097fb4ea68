"""``eclose world``: make a benchmark whose truth is known, judge it exactly, and serve a model that answers it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from eclose.cli.shared.output import (
    QUARANTINED_EXIT_CODE,
    print_line,
    print_step_result,
    print_table,
    show_record_count,
)
from eclose.cli.shared.recipe import recipe_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eclose.files.step import PipelineStepResult
    from eclose.values.instance import Instance
    from eclose_world.server.faults import ServerFault

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make a multi-hop benchmark whose truth is known, judge responses to it exactly, serve a model for it.",
)


# The names are repeated here, so that --help loads no world. A test compares them with the profiles.
ProfileName: TypeAlias = Literal[
    "2wiki", "musique", "hotpot", "short-easy", "short-hard", "confusable-short", "confusable-long"
]
ProfileOption = Annotated[
    ProfileName, typer.Option("--profile", help="Benchmark that the questions look like, or short contexts.")
]
Seed = Annotated[int, typer.Option(help="Seed of the world; another seed gives another world.")]
Failures = Annotated[
    list[str] | None,
    typer.Option(
        "--failure",
        help="Way in which responses fail and its rate, such as answer_decoupling=0.1 or L1=0.05; repeatable.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace output that other settings wrote.")]


@app.command()
def make(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the files.", file_okay=False)],
    questions: Annotated[int, typer.Option(min=0, help="Number of questions, each with a response.")] = 0,
    families: Annotated[int, typer.Option(min=0, help="Number of counterfactual families.")] = 0,
    sources: Annotated[int, typer.Option(min=0, help="Number of sources from which families can be built.")] = 0,
    ineligible: Annotated[
        float, typer.Option(min=0, max=1, help="Share of sources with a planted defect (0 to 1).")
    ] = 0.3,
    profile: ProfileOption = "2wiki",
    seed: Seed = 42,
    failure: Failures = None,
    force: Force = False,
) -> None:
    """Make questions with responses, families, or sources for families, without a model."""
    from eclose.errors import SettingError
    from eclose_world import files

    if not questions and not families and not sources:
        raise SettingError("give --questions N, --families N or --sources N.")
    # Parsed before the first file is written, so that a misspelt failure costs no work.
    rates = _parse_failures(failure)
    settings: dict[str, Any] = {"profile": profile, "seed": seed, "force": force, "wrap": show_record_count}
    if questions:
        _print_results(files.write_world_questions(out, questions, failures=rates, **settings))
    if families:
        _print_results(files.write_world_families(out, families, **settings))
    if sources:
        _print_results(files.write_world_sources(out, sources, ineligible=ineligible, **settings))


def _print_results(results: Iterable[PipelineStepResult]) -> None:
    for result in results:
        print_step_result(result.step, result.counts, again=result.again)


@app.command()
def judge(
    responses: Annotated[Path, typer.Argument(help="File of responses to the world's questions, JSON Lines.")],
    instances: Annotated[
        Path | None, typer.Option(help="File of the questions.  [default: instances.jsonl beside them]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File of the verdicts.  [default: verdicts.jsonl beside them]")
    ] = None,
    judgments: Annotated[
        Path | None, typer.Option(help="File of the judgments: every step, and why a label is missing.")
    ] = None,
    force: Force = False,
) -> None:
    """Judge responses to the world exactly, from their words; unreadable ones are counted, not guessed."""
    from eclose_world.files import judge_file_by_oracle

    result = judge_file_by_oracle(
        responses,
        # Passed in, because world and benchmarks do not import each other (the layers in pyproject.toml).
        _read_instances,
        instances=instances,
        verdicts=out,
        judgments=judgments,
        force=force,
        wrap=show_record_count,
    )
    _print_results(result.steps)
    if result.reasons is None:
        print_line("  verdicts keep no reasons for missing labels; --judgments FILE writes them")
    if result.reasons:
        rows = [[criterion, reason, str(count)] for (criterion, reason), count in sorted(result.reasons.items())]
        print_table("Not judged", ["criterion", "reason", "n"], rows)
    raise typer.Exit(QUARANTINED_EXIT_CODE if any(step.counts.quarantined for step in result.steps) else 0)


def _read_instances(path: Path) -> Iterator[Instance]:
    from eclose.files.jsonl import unwrap_records
    from eclose.readers.import_settings import ImportSettings
    from eclose.readers.layouts import RecordLayout
    from eclose.readers.load import scan_instances

    return unwrap_records(scan_instances(path, settings=ImportSettings(format=RecordLayout.ECLOSE)))


@app.command()
def serve(
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port on this machine (0 = any free port).")] = 0,
    seed: Seed = 0,
    failure: Failures = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="Fault of the server and its rate, such as rate_limit=0.1 or drop=0.02; repeatable."),
    ] = None,
    flip_rate: Annotated[float, recipe_key(min=0, max=1)] = 0.0,
    judge_noise: Annotated[float, recipe_key(min=0, max=1)] = 0.0,
    judge_kind: Annotated[
        Literal["exact", "careful", "naive"],
        typer.Option(
            "--judge",
            help="Judge to serve: exact, or one that obeys instructions in the texts it reads (careful, naive).",
        ),
    ] = "exact",
    constructor_noise: Annotated[float, recipe_key(min=0, max=1)] = 0.0,
    verifier_noise: Annotated[float, recipe_key(min=0, max=1)] = 0.0,
    detector_noise: Annotated[float, recipe_key(min=0, max=1)] = 0.0,
    latency: Annotated[float, typer.Option(min=0, help="Seconds before each reply.")] = 0.0,
    jitter: Annotated[float, recipe_key(min=0)] = 0.0,
    max_concurrency: Annotated[int | None, recipe_key(min=1)] = None,
    prompt_cache: Annotated[int | None, recipe_key(min=1)] = None,
) -> None:
    """Serve a model on this machine that answers from the oracle, with a bill and, on request, with faults."""
    from eclose_world.roles.gullible_judges import GullibleJudgeKind
    from eclose_world.roles.request_handlers import ModelFailureRates, build_world_handlers
    from eclose_world.server.app import run_model_server
    from eclose_world.server.faults import ServerBehaviour

    # Faults are of the server (429, a dropped connection); failures are of the responses it writes.
    faults = {_parse_fault(name): rate for name, rate in _parse_rates(fault).items()}
    behaviour = ServerBehaviour(
        seed=seed,
        flip_rate=flip_rate,
        faults=faults,
        latency=latency,
        jitter=jitter,
        max_concurrency=max_concurrency,
        prompt_cache=prompt_cache,
    )
    # Only the exact judge reads with the oracle alone; the others can be talked into a verdict by the texts they read.
    trust = None if judge_kind == "exact" else GullibleJudgeKind(judge_kind)
    registry = build_world_handlers(
        ModelFailureRates(_parse_failures(failure)),
        seed,
        judge_noise=judge_noise,
        judge_trust=trust,
        constructor_noise=constructor_noise,
        verifier_noise=verifier_noise,
        detector_noise=detector_noise,
    )
    run_model_server(registry, behaviour, port=port)


def _parse_rates(options: list[str] | None) -> dict[str, float]:
    """Return ``name=rate`` options as a mapping; raise where one is not a rate from 0 to 1 or is repeated."""
    from eclose.errors import SettingError

    rates: dict[str, float] = {}
    for option in options or ():
        name, _, text = option.partition("=")
        try:
            rate = float(text)
        except ValueError as error:
            raise SettingError(f"{option!r}: write a name and a rate, such as answer_decoupling=0.1.") from error
        # NaN compares false with every bound, so it is refused here as well.
        if not 0 <= rate <= 1:
            raise SettingError(f"{option!r}: a rate is a finite number from 0 to 1.")
        if name in rates:
            raise SettingError(f"{option!r}: {name} was given before, with the rate {rates[name]}. Give it once.")
        rates[name] = rate
    return rates


def _parse_failures(options: list[str] | None) -> dict[str, float]:
    from eclose_world.roles.request_handlers import ModelFailureRates

    return dict(ModelFailureRates(_parse_rates(options)).rates)


def _parse_fault(name: str) -> ServerFault:
    from eclose.errors import SettingError
    from eclose_world.server.faults import ServerFault

    try:
        return ServerFault(name)
    except ValueError as error:
        raise SettingError(f"there is no fault {name!r}. Choose from: {', '.join(ServerFault)}.") from error
