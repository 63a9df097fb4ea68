"""The page of the miniature study: the paper's claims one by one, the rates of all methods, and the wall times."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from eclose_train.experiment.cells import Stage
from eclose_train.experiment.report.grid import REFERENCE_METHOD
from eclose_train.experiment.results import REPORT_FOLDER
from studies.campaigns.miniature_study.variants import REPORT_PREFIX, VARIANTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HEAD = """# The paper's claims in miniature

The study of the paper, made small enough for two cores without a GPU: families and questions of the made-up world in
three profiles instead of three benchmarks, SmolLM2-135M and the same model after some supervised updates as backbones,
and the world's oracle as judge. The oracle reads its labels out of the words by rules, so they are exact where it
decides; where it cannot, a response is unjudged, never wrong. The plan is
`packages/eclose-train/recipes/experiment/miniature.yaml`, and

```bash
python studies/campaigns/miniature.py --out runs/miniature
```

makes and reports it; it may be stopped and started again. The record has [all
tables](records/miniature/report/experiment.md). A claim *holds* where the 95 % interval of every comparison lies on
its side, *does not hold* where one lies on the other side, and else *cannot be told here*. That there is a gap at all
is shown by one response in it, since the oracle's labels are exact. Intervals are drawn as in the paper: for
responses, backbones, then for each its own questions within each profile and its own seeds (D.2); for ablations,
questions of all profiles together and seeds (D.6); for switch tests, families that all backbones share, and seeds
within each backbone (D.7). A model this small, trained on a few dozen families, says nothing about the size of
effects in the paper.

Three rules were changed after these results were first seen, and the claims checked again on the same responses:
existence is decided by a case and not by an interval; a left-out edge must lower trace reliability, which is what the
paper claims, and not the metric of its own edge; and the agreement of the judge with simulated people is no claim any
more, since those people are made from the judge's labels.
"""

REASONS = """
## What limits them

- **Questions.** Intervals of differences are as wide as the differences. Seeds add little: they answer the same
  questions.
- **Untuned SmolLM2-135M writes no answer line**, so nothing is known of its closure and reliability. What is claimed of
  untuned backbones can be decided on SmolLM2-warm alone.
- **Local soundness.** Most responses of such small models fail in a step already. A response can be in the gap only if
  all its steps are sound, so LGG is small for every method.
- **Switch tests decide more** than responses: every family counts, and none is unjudged ([gains](#switch-tests)).
- **C is at its ceiling** in the switch tests of all tuned methods. Steps of the world end with the answer in the words
  of the question, so a model needs only to copy it. RM has no way to fail there.
- **Difficulty and counterfactual inputs** were varied: three profiles (table by difficulty), and supervised training
  without and with counterfactual inputs (SFT and CF-SFT). {variants}
- **People are simulated**: they err around the labels of the oracle as often as the paper's people erred, so their
  agreement with it is a test of the protocol and decides no claim.
"""

VARIED = """E-Closure was also trained with {titles},
  on one backbone and seed ([other settings](#other-settings)).{others}"""
NOT_VARIED = "The number of updates and the weight of the margins were not."

METHODS = """
## All methods

Per cent, with 95 % intervals. Acc: the answer is correct; LSR: all steps are sound; A: the trace pursues the question;
C: it establishes the answer; GSR: it holds as a whole; TRR: all of these; LGG: locally sound, and fails as a whole.
"""


def format_reasons(variants: Sequence[str]) -> str:
    """Return what limits the claims.

    Args:
        variants: Names of the variants that were trained.
    """
    titles = " and with ".join(VARIANTS[name].title for name in variants)
    others = "".join(
        f"\n  The {variant.setting} was not varied." for name, variant in VARIANTS.items() if name not in variants
    )
    return REASONS.strip("\n").format(variants=VARIED.format(titles=titles, others=others) if titles else NOT_VARIED)


def format_percent(rate: dict[str, Any], form: str = ".1f") -> str:
    """Return a rate or a difference of rates in per cent with its interval, or a dash.

    Args:
        rate: Value and interval as fractions.
        form: Format of the numbers; ``+.1f`` for differences.
    """
    if rate["value"] is None:
        return "–"
    value = f"{100 * rate['value']:{form}}"
    if rate["interval"] is None:
        return value
    low, high = (f"{100 * bound:{form}}" for bound in rate["interval"])
    return f"{value} [{low}, {high}]"


def format_outcomes(claims: list[dict[str, Any]], by_backbone: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return a table with the outcome of each claim on all backbones and on each alone."""
    alone = {backbone: {claim["title"]: claim for claim in own} for backbone, own in by_backbone.items()}
    lines = [
        "## Claims",
        "",
        f"| claim | all backbones | {' | '.join(f'{backbone} alone' for backbone in alone)} |",
        f"|---|{'---|' * (len(alone) + 1)}",
    ]
    for claim in claims:
        outcomes = [_name_outcome(own.get(claim["title"])) for own in alone.values()]
        lines.append(f"| {claim['title']} | **{_name_outcome(claim)}** | {' | '.join(outcomes)} |")
    return "\n".join(lines)


def _name_outcome(claim: dict[str, Any] | None) -> str:
    return claim["outcome"] if claim and claim["comparisons"] else "not measured"


def format_claims(title: str, claims: list[dict[str, Any]]) -> str:
    """Return a table with a row for each comparison that decides a claim."""
    lines = [f"## {title}", "", "| claim | outcome | decided by | points | n |", "|---|---|---|---|---|"]
    for claim in claims:
        for number, comparison in enumerate(claim["comparisons"]):
            title, outcome = (claim["title"], f"**{claim['outcome']}**") if number == 0 else ("", "")
            name = comparison["name"].replace("|", "\\|")
            lines.append(
                f"| {title} | {outcome} | {name} | {format_percent(comparison, '+.1f')} | {comparison['n']:,} |"
            )
    return "\n".join(lines)


def format_overall(overall: dict[str, Any]) -> str:
    """Return a table of all methods with their rates."""
    names = ["Acc", "LSR", "A", "C", "GSR", "TRR", "LGG"]
    lines = [f"| method | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for method, rates in overall.items():
        lines.append(f"| {method} | {' | '.join(format_percent(rates[name]) for name in names)} |")
    unjudged = max((rate["unjudged"] for rates in overall.values() for rate in rates.values()), default=0)
    return "\n".join([*lines, "", f"At most {unjudged:,} responses of a method are unjudged on a rate."])


def format_difficulties(runs: list[dict[str, Any]]) -> str:
    """Return a table of TRR and LGG of each method by profile, of all judged responses."""
    counts: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for run in runs:
        for metric in ("TRR", "LGG"):
            rate = run["rates"][metric]
            pair = counts[run["method"], run["benchmark"], metric]
            pair[0] += rate["hits"]
            pair[1] += rate["n"]
    columns = list(dict.fromkeys((benchmark, metric) for _, benchmark, metric in counts))
    names = [f"{metric} {benchmark.removeprefix('world-')}" for benchmark, metric in columns]
    lines = [
        "## By difficulty",
        "",
        "Reliable responses, and responses in the gap, of those judged: all backbones and seeds together.",
        "",
        f"| method | {' | '.join(names)} |",
        f"|---|{'---:|' * len(names)}",
    ]
    for method in dict.fromkeys(run["method"] for run in runs):
        cells = ["{} of {}".format(*counts[method, *column]) for column in columns]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def format_ablations(ablation: dict[str, Any]) -> str:
    """Return a table of the rates of all ablations on a backbone, with the full method last."""
    return (
        f"## Ablations on {ablation['backbone']}\n\n"
        "Each leaves out one edge, or the counterfactual direction of all. Questions of all profiles are pooled.\n\n"
        + format_overall(ablation["rates"])
    )


def format_switches(switches: dict[str, Any], title: str) -> str:
    """Return a table of the switch rates of each method."""
    rates = switches["rates"]
    columns = list(next(iter(rates.values()), {}))
    lines = [
        f"## {title}",
        "",
        "Share of families in which the preferred alternative scores higher: on the original input (O), on the",
        "counterfactual one (CF), on both (SW).",
        "",
        f"| method | {' | '.join(columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for method, by_column in rates.items():
        lines.append(f"| {method} | {' | '.join(format_percent(by_column[column]) for column in columns)} |")
    return "\n".join(lines)


def format_switch_gains(switches: dict[str, Any]) -> str:
    """Return a table of the switched families of E-Closure minus those of each other method, in points."""
    gains = switches["gains"]
    edges = list(next(iter(gains.values())))
    lines = [
        "Families that E-Closure switches, minus those of each other method, in points:",
        "",
        f"| over | {' | '.join(edges)} |",
        f"|---|{'---|' * len(edges)}",
    ]
    for method, by_edge in gains.items():
        lines.append(f"| {method} | {' | '.join(format_percent(by_edge[edge], '+.1f') for edge in edges)} |")
    return "\n".join([*lines, "", _list_decided_gains(gains)])


def _list_decided_gains(gains: Mapping[str, dict[str, Any]]) -> str:
    """Return the gains whose interval is above or below zero, in words."""
    sides: dict[str, list[str]] = {"above": [], "below": []}
    for method, by_edge in gains.items():
        for edge, gain in by_edge.items():
            if gain["interval"] is not None:
                low, high = gain["interval"]
                side = "above" if low > 0 else "below" if high < 0 else None
                if side is not None:
                    sides[side].append(f"{edge} over {method}")
    lines = [
        f"The interval lies {side} zero for {', '.join(names)}." if names else f"No interval lies {side} zero."
        for side, names in sides.items()
    ]
    return "\n".join([*lines, "Each interval is of one comparison alone."])


def format_variants(report: dict[str, Any], variants: Mapping[str, dict[str, Any]]) -> str:
    """Return a table of counts of E-Closure with other settings, below those of the same cell of the study.

    Args:
        report: Report of the study.
        variants: Report of each variant by its name.
    """
    metrics = {"seeds": ("Acc", "LSR", "TRR", "LGG"), "switches": ("S SW", "T SW", "C SW")}
    grid = next(iter(variants.values()))["grid"]
    (backbone,), (seed,) = grid["backbones"], grid["seeds"]
    lines = [
        "## Other settings",
        "",
        f"E-Closure on {backbone} with seed {seed}: responses of those judged, and families of those tested. One cell",
        "each, so a difference of a few responses says nothing.",
        "",
        f"| training | {' | '.join(name for names in metrics.values() for name in names)} |",
        f"|---|{'---:|' * sum(map(len, metrics.values()))}",
    ]
    for title, own in [("as in the study", report), *((VARIANTS[name].title, own) for name, own in variants.items())]:
        cells = []
        for key, names in metrics.items():
            rows = own[key] if key == "seeds" else own[key]["seeds"]
            rates = [
                row["rates"]
                for row in rows
                if (row["method"], row["backbone"], row["seed"]) == (REFERENCE_METHOD, backbone, seed)
            ]
            cells += [
                f"{sum(row[name]['hits'] for row in rates)} of {sum(row[name]['n'] for row in rates)}" for name in names
            ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def format_times(path: Path) -> str:
    """Return a table of the wall time of cells by stage."""
    seconds: dict[str, dict[str, float]] = defaultdict(dict)
    with path.open() as file:
        for row in csv.DictReader(file):
            seconds[row["cell"]][row["stage"]] = float(row["seconds"])
    stages = [stage for stage in Stage if any(stage in by_stage for by_stage in seconds.values())]
    lines = [
        "## Wall time",
        "",
        "Seconds of each cell in a process of one thread. Up to three such processes shared two cores, some beside",
        "other work, so the seconds of a cell on an idle machine are fewer.",
        "",
        f"| cell | {' | '.join(stages)} | all |",
        f"|---|{'---:|' * (len(stages) + 1)}",
    ]
    for cell, by_stage in seconds.items():
        values = [f"{by_stage[stage]:.0f}" if stage in by_stage else "–" for stage in stages]
        lines.append(f"| {cell} | {' | '.join(values)} | {sum(by_stage.values()):,.0f} |")
    total = sum(sum(by_stage.values()) for by_stage in seconds.values())
    return "\n".join([*lines, "", f"Together {total / 3600:.1f} hours over all cells."])


def format_page(folder: Path, times: Path) -> str:
    """Return the page in Markdown.

    Args:
        folder: Folder with the report of the study (``report``), of each backbone alone (``report-BACKBONE``), and of
            each variant (``variant-NAME``).
        times: Table of wall times by cell and stage.
    """
    report = _read_report(folder / REPORT_FOLDER)
    alone = {path.name.removeprefix(f"{REPORT_FOLDER}-"): path for path in sorted(folder.glob(f"{REPORT_FOLDER}-*"))}
    by_backbone = {backbone: _read_report(path) for backbone, path in alone.items()}
    grid, missing = report["grid"], report["missing"]
    size = (
        f"Recorded: {len(grid['backbones'])} backbones, seeds {', '.join(map(str, grid['seeds']))}, "
        f"{sum(grid['benchmarks'].values())} questions. "
    )
    size += f"Missing: {' '.join(missing)}" if missing else "All cells are there."
    claims = {backbone: own["claims"] for backbone, own in by_backbone.items()}
    variants = {name: folder / f"{REPORT_PREFIX}{name}" for name in VARIANTS}
    variant_reports = {name: _read_report(path) for name, path in variants.items() if path.is_dir()}
    parts = [HEAD, size, format_outcomes(report["claims"], claims), format_reasons(list(variant_reports))]
    parts.append(format_claims("What decides them on all backbones", report["claims"]))
    parts += [format_claims(f"What decides them on {backbone} alone", own) for backbone, own in claims.items()]
    parts += [METHODS.strip("\n"), format_overall(report["overall"])]
    parts += [f"{backbone} alone:\n\n{format_overall(own['overall'])}" for backbone, own in by_backbone.items()]
    parts += [format_ablations(ablation) for ablation in report["ablations"]]
    parts.append(format_difficulties(report["seeds"]))
    tests = [("Switch tests", report["switches"])]
    tests += [("Switch tests of the ablations", own) for own in report["variant_switches"]]
    for title, switches in tests:
        if switches:
            parts.append(format_switches(switches, title))
        if switches and switches["gains"]:
            parts.append(format_switch_gains(switches))
    if variant_reports:
        parts.append(format_variants(report, variant_reports))
    if times.is_file():
        parts.append(format_times(times))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _read_report(folder: Path) -> dict[str, Any]:
    path = folder / "experiment.json"
    # Records are packed: indented, four of them were 57,000 lines of the tree.
    text = path.read_bytes() if path.is_file() else gzip.decompress(path.with_suffix(".json.gz").read_bytes())
    report: dict[str, Any] = json.loads(text)
    return report
