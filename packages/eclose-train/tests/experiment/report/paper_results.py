"""The paper's study as results of runs, response by response; pairings that the paper does not print are arbitrary."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import accumulate

from eclose_train.experiment.report.inputs import ExperimentResults, TrainingTime
from eclose_train.families.comparisons import Edge
from eclose_train.training.switch_test import FamilySwitchScores
from tests.paper.derivations import ablations, experiment, switching
from tests.paper.printed import BACKBONES, DATASETS, METHODS, QUESTIONS, cell, said
from tests.paper.reconstruct import settled


@cache
def main_rows():
    """The main comparison, with the links of the full objective as the ablation table prints them."""
    rows = experiment.rows()
    linked = {}
    for seed in experiment.SEEDS:
        full = [
            row
            for row in rows
            if row.source.model == ablations.BACKBONE
            and row.source.method == ablations.FULL
            and row.source.seed == int(seed)
        ]
        a, c, gsr = (
            cell("appendix_ablation_seeds", f"Full | {seed}", name).count(QUESTIONS) for name in ("a", "c", "gsr")
        )
        broken = [row for row in full if not row.verdict.globally_sufficient]
        # Aligned alone, then closed alone, then neither.
        for index, row in enumerate(broken):
            aligned, closed = index < a - gsr, a - gsr <= index < a + c - 2 * gsr
            linked[row.response_id] = replace(row, verdict=replace(row.verdict, aligned=aligned, closed=closed))
    return [linked.get(row.response_id, row) for row in rows]


@cache
def matches():
    """Answer matches of all responses by id."""
    rows = [*experiment.rows(experiment.MATCH), *variant_rows(experiment.MATCH)]
    return {row.response_id: row.verdict.correct for row in rows}


@cache
def variant_rows(accuracy=experiment.SEMANTIC):
    """The ablated variants; which dataset a response belongs to is arbitrary."""
    ends = [0, *accumulate(DATASETS.values())]
    return [
        row
        for variant in ablations.VARIANTS
        if variant != ablations.FULL
        for seed in experiment.SEEDS
        for dataset, start, end in zip(DATASETS, ends, ends[1:], strict=False)
        for row in settled(
            ablations.pooled_run(variant, seed, accuracy)[start:end],
            benchmark=dataset,
            model=ablations.BACKBONE,
            method=variant,
            seed=seed,
        )
    ]


@cache
def switch_rows():
    """Families with the printed switch rates; a family that does not switch fails in the counterfactual direction."""
    rows = []
    for backbone in BACKBONES:
        for dataset in switching.SOURCES:
            sources = said(f"sources of {dataset}", "switching")
            for method in METHODS:
                seeds = experiment.seeds_of(method)
                hits = {
                    edge: round(switching.setting(str(edge), backbone, dataset, method) * sources * len(seeds) / 100)
                    for edge in Edge
                }
                for at, seed in enumerate(seeds):
                    for number in range(sources):
                        margins = {}
                        for edge in Edge:
                            margins |= {
                                f"{edge}.o": 1.0,
                                f"{edge}.c": 1.0 if at * sources + number < hits[edge] else -1.0,
                            }
                        source = (None, None) if method == "Backbone" else (method, int(seed))
                        rows.append(
                            FamilySwitchScores(
                                f"{dataset}/{number}",
                                dataset,
                                "p",
                                {},
                                margins,
                                model=backbone,
                                method=source[0],
                                seed=source[1],
                            )
                        )
    return rows


def training_times():
    """Three runs with the printed mean and standard deviation of every method and backbone."""
    times = []
    for method in (*METHODS[1:], *ablations.VARIANTS[:-1]):
        for backbone in BACKBONES if method in METHODS else (ablations.BACKBONE,):
            mean, sd = (float(cell("training_cost", method, f"{backbone}{end}").value) for end in ("", " SD"))
            times += [
                TrainingTime(
                    backbone=backbone, method=method, seed=42 + at, seconds=3600 * (mean + (at - 1) * sd), processes=4
                )
                for at in range(3)
            ]
    return times


@cache
def paper_results():
    """Everything of the paper's study that the printed figures fix."""
    return ExperimentResults(
        verdicts=main_rows(),
        label_source="Labels by the evaluator of the paper.",
        matches=matches(),
        ablations=variant_rows(),
        switches=switch_rows(),
        times=training_times(),
    )
