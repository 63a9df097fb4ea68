"""The switch test: scores against plain forwards, margins, rates and contrasts by hand and from the paper."""

import csv
import json
import subprocess
import sys
from dataclasses import replace
from itertools import islice, product
from math import inf, isclose, nan
from pathlib import Path

import numpy as np
import pytest

from eclose.errors import RecordError, UserError
from eclose.files.jsonl import ReadRecord, decode_core_value, encode_json_line
from eclose.stats.intervals import wilson_interval
from eclose.values.family import EvidenceEdit, ViewKind, select_fixed_edit
from eclose_train.families.comparisons import ALL_COMPARISONS, Direction, Edge, preference_switches
from eclose_train.likelihood.family_scores import FamilyScores, comparison_side_name
from eclose_train.training.switch_test import (
    TOO_LONG_REASON,
    FamilySwitchScores,
    compare_switch_rates,
    has_pooled_methods,
    margin_name,
    pool_switch_rates,
    score_family_switches,
    summarize_switch_rates,
)
from eclose_world.make.families import make_world_families

pytestmark = pytest.mark.torch

S, T, C = Edge
O, R = Direction  # noqa: E741 - the paper's letter
SIDES = [
    comparison_side_name(c.edge, c.direction, preferred=positions)
    for c in ALL_COMPARISONS
    for positions in (True, False)
]
NAMES = [margin_name(c.edge, c.direction) for c in ALL_COMPARISONS]


@pytest.fixture(scope="module")
def families():
    """Two with two evidence edits, the one that is tested first or second in the file; and two more."""

    def placed(number):
        edited = (family for family in make_world_families("2wiki", 5) if len(family.evidence_edits) == 2)
        return next(item for item in edited if select_fixed_edit(item) is item.evidence_edits[number])

    return [placed(0), placed(1), *islice(make_world_families("hotpot", 5), 2)]


def values(**margins):
    """Twelve scores with these margins, such as ``S_o=0.5``; one half where nothing is said."""
    result = dict.fromkeys(SIDES, -1.0)
    for name in NAMES:
        result[f"{name}+"] += margins.get(name.replace(".", "_"), 0.5)
    return result


def row(family, system="backbone", id_=None, benchmark="b", **margins):
    record = FamilySwitchScores.of(family, select_fixed_edit(family), values(**margins), system)
    return replace(record, family_id=id_ or record.family_id, benchmark=benchmark)


# ---- margins ----


def test_margins_are_differences_and_ties_fail(families):
    record = row(families[0], S_o=0.25, S_c=0.0, T_o=-0.25)
    assert record.margins == {"S.o": 0.25, "S.c": 0.0, "T.o": -0.25, "T.c": 0.5, "C.o": 0.5, "C.c": 0.5}
    assert [record.holds(S, O), record.holds(S, R), record.holds(T, O)] == [True, False, False]
    assert [record.switched(edge) for edge in Edge] == [False, False, True]
    assert record.unjudged == {}


@pytest.mark.parametrize("margins", list(product((-0.5, 0.0, 0.5), repeat=2)))
def test_switching_is_the_cores(families, margins):
    record = row(families[0], S_o=margins[0], S_c=margins[1])
    assert record.switched(S) is preference_switches(dict(zip(Direction, margins, strict=True)))


def test_exchanging_the_sides_flips_every_sign(families):
    drawn = dict(zip(SIDES, np.random.default_rng(3).normal(size=12).tolist(), strict=True))
    exchanged = {name[:-1] + ("-" if name[-1] == "+" else "+"): value for name, value in drawn.items()}
    ours, exchanged = (
        FamilySwitchScores.of(families[0], select_fixed_edit(families[0]), scores, "x").margins
        for scores in (drawn, exchanged)
    )
    assert ours == {name: -value for name, value in exchanged.items()}


@pytest.mark.parametrize("strange", [nan, inf, -inf])
def test_a_score_that_is_no_number_is_unjudged_not_failed(families, strange):
    scores = values(T_o=-1.0) | {"S.o-": strange, "T.c+": strange}
    record = FamilySwitchScores.of(families[0], select_fixed_edit(families[0]), scores, "x")
    assert record.unjudged == {"S.o": f"S.o- is {strange}", "T.c": f"T.c+ is {strange}"}
    assert (record.scores["S.o-"], record.margins["S.o"]) == (None, None)
    assert [record.holds(S, O), record.holds(S, R), record.switched(S)] == [None, True, None]
    # T fails under the original input, whatever the other margin is.
    assert [record.holds(T, O), record.holds(T, R), record.switched(T)] == [False, None, False]
    assert record.switched(C) is True


def test_a_row_survives_its_file(families):
    record = FamilySwitchScores.of(families[0], select_fixed_edit(families[0]), values() | {"C.c+": nan}, "runs/a")
    line = encode_json_line(record)
    assert decode_core_value(FamilySwitchScores, json.loads(line)) == record
    assert b"NaN" not in line


# ---- rates ----


def test_rates_by_hand(families):
    rows = [
        row(families[0], benchmark="b", S_o=1.0, S_c=1.0),
        row(families[1], benchmark="b", S_o=-1.0, S_c=3.0),
        row(families[2], benchmark="a", S_o=0.5, S_c=-0.5),
        replace(row(families[3], benchmark=None), margins=dict.fromkeys(NAMES)),
    ]
    tables = summarize_switch_rates(rows)
    assert [(table.benchmark, table.families) for table in tables] == [("a", 1), ("b", 2), ("unknown", 1), (None, 4)]
    support = tables[1].edges[S]
    assert (support.original.hits, support.counterfactual.hits, support.switched.hits, support.switched.n) == (
        1,
        2,
        1,
        2,
    )
    assert support.margins == {O: 0.0, R: 2.0}
    assert support.switched.wilson == wilson_interval(1, 2)
    everything = tables[3].edges[S].switched
    # One of three judged families switches; the fourth is beside them, not among them.
    assert (everything.hits, everything.n, everything.unjudged) == (1, 3, 1)
    unknown = tables[2].edges[T]
    assert (unknown.switched.value, unknown.switched.wilson, unknown.margins) == (None, None, {O: None, R: None})


def test_models_come_in_order_of_appearance(families):
    rows = [row(families[0], system) for system in ("z", "a")]
    assert [table.system for table in summarize_switch_rates(rows)] == ["z", "z", "a", "a"]
    assert summarize_switch_rates([]) == []


PAPER = Path(__file__).parents[3] / "eclose" / "tests" / "fixtures" / "paper"
SOURCES = {"2WikiMultiHopQA": 128, "MuSiQue": 56, "HotpotQA": 102}


def printed():
    """Switch rates of the untuned backbones, one run each, by backbone and dataset."""
    with (PAPER / "switch_rates_by_setting.csv").open() as file:
        return [line for line in csv.DictReader(file) if line["method"] == "Backbone"]


def paper_rows(family, backbone):
    """Rows with as many switches as were printed. Which families they are does not matter to a rate."""
    for line in printed():
        if line["backbone"] != backbone:
            continue
        count = SOURCES[line["dataset"]]
        hits = {edge: round(float(line[f"{edge.value.lower()}_switch"]) / 100 * count) for edge in Edge}
        for number in range(count):
            failed = {f"{edge.value}_c": -0.5 for edge in Edge if number >= hits[edge]}
            yield row(family, id_=str(number), benchmark=line["dataset"], **failed)


def test_the_papers_rates_of_every_dataset_and_on_average(families):
    backbones = sorted({line["backbone"] for line in printed()})
    means = []
    for backbone in backbones:
        rows = list(paper_rows(families[0], backbone))
        tables = {table.benchmark: table for table in summarize_switch_rates(rows)}
        for line in printed():
            if line["backbone"] == backbone:
                for edge in Edge:
                    rate = tables[line["dataset"]].edges[edge].switched.value
                    assert f"{100 * rate:.2f}" == f"{float(line[f'{edge.value.lower()}_switch']):.2f}"
        result = compare_switch_rates(rows, rng=np.random.default_rng(0), resamples=100)["backbone"]
        means.append([100 * result[edge].rate.value for edge in Edge])
    # Table of directional results, SW of the backbone: nine settings of equal weight.
    assert [f"{value:.2f}" for value in np.mean(means, axis=0)] == ["98.24", "49.54", "74.64"]


# ---- contrasts ----


def compared(family, first, second, benchmarks=None):
    """Two models on as many families, with these outcomes on S."""
    rows = [
        row(
            family,
            system,
            id_=str(number),
            benchmark=(benchmarks or "b" * len(first))[number],
            S_c=0.5 if hit else -0.5,
        )
        for system, hits in (("one", first), ("two", second))
        for number, hit in enumerate(hits)
    ]
    return compare_switch_rates(rows, rng=np.random.default_rng(1), resamples=2_000)


def test_a_gain_is_paired_by_family(families):
    result = compared(families[0], [1] * 20 + [0] * 20, [1] * 30 + [0] * 10)
    assert result["one"][S].gain is None
    gain = result["two"][S].gain
    assert gain.value == pytest.approx(0.25)
    # Ten of forty families differ, all one way: the standard error is sqrt(.25 * .75 / 40) = 0.068.
    assert 0.10 < gain.interval.low < 0.17
    assert 0.33 < gain.interval.high < 0.42
    assert gain.interval.low > 0
    assert result["two"][T].gain.interval == (0, 0)


def test_benchmarks_have_equal_weight(families):
    # 1 of 1 in b, 0 of 3 in c: the mean is a half, not a quarter.
    assert compared(families[0], [1, 0, 0, 0], [0, 0, 0, 0], "bccc")["one"][S].rate.value == 0.5


def test_the_same_model_twice_gains_nothing(families):
    result = compared(families[0], [1, 0, 1, 0], [1, 0, 1, 0])
    assert result["two"][S].gain.interval == (0, 0)


def test_exchanging_two_models_turns_the_gain_round(families):
    first, second = [1, 0, 1, 0, 0, 1], [1, 1, 1, 0, 1, 0]
    ours, exchanged = compared(families[0], first, second), compared(families[0], second, first)
    (low, high), (other_low, other_high) = ours["two"][S].gain.interval, exchanged["two"][S].gain.interval
    assert ours["two"][S].gain.value == pytest.approx(-exchanged["two"][S].gain.value)
    assert (low, high) == pytest.approx((-other_high, -other_low))


def test_models_must_have_met_the_same_families(families):
    rows = [row(families[0], "one"), row(families[1], "one"), row(families[0], "two")]
    with pytest.raises(UserError, match="1 of 4 pairs of family and model"):
        compare_switch_rates(rows, rng=np.random.default_rng(0), resamples=100)


# ---- pooled over backbones and seeds ----


def trained(family, labels):
    """A row for every (method, backbone, seed, benchmark, family) with its outcome on S; None is unjudged."""
    rows = []
    for (method, backbone, seed, benchmark, number), hit in labels.items():
        scores = {"S_c": nan if hit is None else 0.5 if hit else -0.5}
        record = row(family, f"{method} {backbone} {seed}", id_=f"{benchmark}{number}", benchmark=benchmark, **scores)
        rows.append(replace(record, model=backbone, method=method, seed=seed))
    return rows


def random_labels(rng, *, missing=0.0):
    """Outcomes of the untuned models and two methods on two backbones with three seeds, in two datasets."""
    systems = [(None, backbone, None) for backbone in ("m", "n")]
    systems += list(product(("sft", "e_closure"), ("m", "n"), (42, 43, 44)))
    families = [("a", number) for number in range(5)] + [("b", number) for number in range(3)]
    return {
        (*system, *family): None if rng.random() < missing else bool(rng.random() < 0.3 + 0.1 * (family[1] % 3))
        for system in systems
        for family in families
    }


def rate_by_loop(labels, method, families, seeds):
    """Rate of a method by plain loops: seeds drawn within backbones, then backbones and datasets of equal weight."""
    settings = []
    for backbone, benchmark in product(("m", "n"), "ab"):
        rates = []
        for seed in seeds[backbone] if method else (None,):
            hits = [labels[method, backbone, seed, benchmark, number] for number in families[benchmark]]
            judged = [hit for hit in hits if hit is not None]
            rates.append(sum(judged) / len(judged))
        settings.append(sum(rates) / len(rates))
    return sum(settings) / len(settings)


def test_pooled_rates_by_a_loop(families):
    labels = random_labels(np.random.default_rng(3), missing=0.1)
    pooled = pool_switch_rates(trained(families[0], labels), rng=np.random.default_rng(0), resamples=100)
    assert (pooled.backbones, pooled.seeds) == (("m", "n"), (42, 43, 44))
    assert list(pooled.contrasts) == ["backbone", "sft", "e_closure"]
    drawn = {"a": range(5), "b": range(3)}, dict.fromkeys("mn", (42, 43, 44))
    rates = {name: rate_by_loop(labels, method, *drawn) for name, method in (("backbone", None), ("sft", "sft"))}
    for method, value in rates.items():
        assert pooled.contrasts[method][S].rate.value == pytest.approx(value)
    assert pooled.contrasts["sft"][S].gain.value == pytest.approx(rates["sft"] - rates["backbone"])
    assert pooled.contrasts["backbone"][S].gain is None


def test_pooled_intervals_by_a_loop(families):
    """Against draws of our own: families for all, seeds within backbones, both shared by the methods."""
    labels = random_labels(np.random.default_rng(4))
    pooled = pool_switch_rates(trained(families[0], labels), rng=np.random.default_rng(0), resamples=4_000)
    rng = np.random.default_rng(1)
    rates, gains = [], []
    for _ in range(1_500):
        drawn = {name: rng.integers(count, size=count).tolist() for name, count in (("a", 5), ("b", 3))}
        seeds = {backbone: rng.choice((42, 43, 44), size=3).tolist() for backbone in "mn"}
        first, second = (rate_by_loop(labels, method, drawn, seeds) for method in ("e_closure", None))
        rates.append(first)
        gains.append(first - second)
    for estimate, values_ in (
        (pooled.contrasts["e_closure"][S].rate, rates),
        (pooled.contrasts["e_closure"][S].gain, gains),
    ):
        # Quantiles of 1,500 draws with a deviation near 0.1 are known to about 0.01.
        assert list(estimate.interval) == pytest.approx(np.quantile(values_, (0.025, 0.975)).tolist(), abs=0.03)


def test_three_seeds_of_the_same_families_are_not_three_times_the_families(families):
    hits = {("sft", "m", seed, "b", number): number % 2 == 0 for seed in (1, 2, 3) for number in range(48)}
    pooled = pool_switch_rates(trained(families[0], hits), rng=np.random.default_rng(0), resamples=2_000)
    interval = pooled.contrasts["sft"][S].rate.interval
    # 48 families, half of them switched: the deviation is sqrt(0.25 / 48) = 0.072; with 144 it would be 0.042.
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * 0.072, rel=0.1)


def test_the_order_of_models_changes_no_interval_but_the_sign_of_gains(families):
    labels = random_labels(np.random.default_rng(5))
    rows = trained(families[0], labels)
    pooled, turned = (
        pool_switch_rates(order, rng=np.random.default_rng(0), resamples=200) for order in (rows, rows[::-1])
    )
    assert list(turned.contrasts) == ["e_closure", "sft", "backbone"]
    assert turned.contrasts["sft"][S].rate == pooled.contrasts["sft"][S].rate
    assert turned.contrasts["backbone"][S].gain.value == -pooled.contrasts["e_closure"][S].gain.value


def test_what_cannot_be_pooled_is_said(families):
    labels = random_labels(np.random.default_rng(6))
    assert has_pooled_methods(trained(families[0], labels))
    assert not has_pooled_methods([row(families[0], "one"), replace(row(families[0], "two"), method="sft")])
    labels.pop(("sft", "m", 43, "a", 0))
    with pytest.raises(UserError, match="1 of 144 cells have none or several"):
        pool_switch_rates(trained(families[0], labels), rng=np.random.default_rng(0), resamples=100)
    unknown = [replace(row(families[0], "other"), model="m", method="adapter")]
    with pytest.raises(UserError, match="seed are not known of other"):
        pool_switch_rates(unknown, rng=np.random.default_rng(0), resamples=100)


# ---- scores ----


@pytest.fixture(scope="module")
def scored():
    pytest.importorskip("torch")
    from eclose.prompts.response_prompt import ResponsePrompt
    from eclose_train.likelihood.exactness_check import choose_scoring_strategy
    from eclose_train.likelihood.render import TokenPathRenderer
    from tests.tiny_models import model, tokenizer

    tiny = model()
    choice = choose_scoring_strategy(tiny)
    return tiny, TokenPathRenderer(tokenizer(), ResponsePrompt(demonstrations=0)), choice


def run(scored, families, **settings):
    model, renderer, choice = scored
    renderer = settings.pop("renderer", renderer)
    records = [family if isinstance(family, ReadRecord) else ReadRecord(family.id, value=family) for family in families]
    return list(score_family_switches(records, model, renderer, choice, **settings))


def plain_mean(model, tokenizer, before, *parts):
    """Mean log-probability of the scored texts: one plain forward over one sequence.

    Parts are texts after the prompt, each with whether it is scored.
    """
    import torch

    ids, positions = list(tokenizer(before, add_special_tokens=False)["input_ids"]), []
    for text, counts in parts:
        tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        positions += range(len(ids), len(ids) + len(tokens)) if counts else ()
        ids += tokens
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0]
    # A token is predicted by the row before it.
    logprobs = logits[[position - 1 for position in positions]].double().log_softmax(-1)
    return float(np.mean([float(row[ids[position]]) for row, position in zip(logprobs, positions, strict=True)]))


def plain_scores(model, renderer, family):
    """The table of appendix D.3, written out."""
    gold, edit, reworded = family.gold, select_fixed_edit(family), family.question_edit.view
    first, other = edit.first_affected_step, edit.view
    tokenizer = renderer.tokenizer

    def step(evidence, view):
        prefix = "".join(f"{n}. {text}\n" for n, text in enumerate(gold.trace.texts[:first], start=1))
        parts = [(f"{prefix}{first + 1}.", False), (f" {view.trace.texts[first]}\n", True)]
        return plain_mean(model, tokenizer, renderer.prompt_text(gold.question, evidence), *parts)

    def trace(question, view):
        parts = [
            part
            for n, text in enumerate(view.trace.texts, start=1)
            for part in ((f"{n}.", False), (f" {text}\n", True))
        ]
        return plain_mean(model, tokenizer, renderer.prompt_text(question, gold.evidence), *parts)

    def answer(given, view):
        parts = [(f"{given.trace.numbered}Final answer:", False), (f" {view.answer}", True)]
        return plain_mean(model, tokenizer, renderer.prompt_text(gold.question, gold.evidence), *parts)

    return {
        "S.o+": step(gold.evidence, gold),
        "S.o-": step(gold.evidence, other),
        "S.c+": step(other.evidence, other),
        "S.c-": step(other.evidence, gold),
        "T.o+": trace(gold.question, gold),
        "T.o-": trace(gold.question, reworded),
        "T.c+": trace(reworded.question, reworded),
        "T.c-": trace(reworded.question, gold),
        "C.o+": answer(gold, gold),
        "C.o-": answer(gold, other),
        "C.c+": answer(other, other),
        "C.c-": answer(other, gold),
    }


def test_scores_are_those_of_plain_forwards(scored, families):
    model, renderer, choice = scored
    assert choice.strategy == "tree"
    chosen = families[:3]
    for record, family in zip(run(scored, chosen), chosen, strict=True):
        expected = plain_scores(model, renderer, family)
        assert list(record.value.scores) == list(expected)
        for name, value in expected.items():
            assert record.value.scores[name] == pytest.approx(value, abs=2e-5), name
        assert record.value.passage_id == select_fixed_edit(family).passage_id
        assert (record.value.family_id, record.value.benchmark) == (family.id, family.source.benchmark)


def test_gold_and_edit_exchanged_exchange_the_directions_of_support(scored, families):
    (family,) = [replace(family, evidence_edits=(select_fixed_edit(family),)) for family in families[:1]]
    edit = family.evidence_edits[0]
    mirrored = replace(
        family,
        gold=replace(edit.view, kind=ViewKind.GOLD),
        evidence_edits=(
            EvidenceEdit(replace(family.gold, kind=ViewKind.EVIDENCE_CF), edit.passage_id, edit.first_affected_step),
        ),
    )
    ours, exchanged = (record.value.margins for record in run(scored, [family, mirrored]))
    assert isclose(ours["S.o"], exchanged["S.c"], abs_tol=1e-5)
    assert isclose(ours["S.c"], exchanged["S.o"], abs_tol=1e-5)
    assert not isclose(ours["S.o"], ours["S.c"], abs_tol=1e-3)


def test_how_families_share_forwards_changes_no_score(scored, families, monkeypatch):
    alone = run(scored, families, tokens_per_forward=1)
    monkeypatch.setattr("eclose_train.training.switch_test._WINDOW", 3)
    for record, other in zip(alone, run(scored, families), strict=True):
        assert record.where == other.where
        assert list(record.value.scores.values()) == pytest.approx(list(other.value.scores.values()), abs=2e-5)


def test_every_record_comes_out_once_and_in_order(scored, families):
    _, renderer, _ = scored
    lengths = {
        family.id: max(
            len(score.path.ids) for score in FamilyScores(family, select_fixed_edit(family), renderer).comparisons()
        )
        for family in families
    }
    broken = ReadRecord("line 3", error=RecordError("is no family."), error_kind="wrong record")
    refused = ReadRecord("line 5", rejected="duplicate")
    *_, second, longest = sorted(lengths.values())
    assert second < longest
    inputs = [families[0], families[1], broken, families[2], refused, families[3]]
    result = run(scored, inputs, renderer=replace(renderer, max_length=second))
    assert [record.where for record in result] == [getattr(entry, "where", None) or entry.id for entry in inputs]
    assert (result[2], result[4]) == (broken, refused)
    for record in (result[0], result[1], result[3], result[5]):
        assert record.rejected == (TOO_LONG_REASON if lengths[record.where] == longest else None)
        assert (record.value is None) == (lengths[record.where] == longest)


def test_a_model_that_is_ill_is_not_a_model_that_fails(scored, families):
    import torch

    from tests.tiny_models import model

    ill = model()
    with torch.no_grad():
        ill.lm_head.weight.fill_(nan)
    _, renderer, choice = scored
    ill.set_attn_implementation(scored[0].config._attn_implementation)
    rows = [record.value for record in run((ill, renderer, choice), families[:2])]
    rate = summarize_switch_rates(rows)[-1].edges[S].switched
    assert (rate.value, rate.n, rate.unjudged) == (None, 0, 2)
    assert rows[0].unjudged["S.o"] == "S.o+ is nan, S.o- is nan"


def test_the_model_is_left_as_it_was(scored, families):
    model, *_ = scored
    model.train()
    run(scored, families[:1])
    assert model.training
    model.eval()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_strategies_agree(scored, families):
    from eclose_train.likelihood.exactness_check import ScoringChoice
    from eclose_train.likelihood.score import AttentionBackend, ScoringStrategy

    model, renderer, _ = scored
    plain = run((model, renderer, ScoringChoice(ScoringStrategy.NAIVE, AttentionBackend.SDPA)), families[:1])
    shared = run(scored, families[:1])
    assert list(shared[0].value.scores.values()) == pytest.approx(list(plain[0].value.scores.values()), abs=2e-5)


def test_reading_results_needs_no_torch():
    script = "import sys, eclose_train.training.switch_test, eclose.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_rows_written_before_sources_were_kept_can_still_be_read(families, tmp_path):
    from dataclasses import asdict

    from eclose.files.jsonl import read_records
    from eclose.values.response import ResponseSource

    fields = asdict(
        FamilySwitchScores.of(
            families[0], select_fixed_edit(families[0]), values(), "runs/a", ResponseSource("qwen", "sft", 43)
        )
    )
    assert (fields["model"], fields["method"], fields["seed"]) == ("qwen", "sft", 43)
    old = {name: value for name, value in fields.items() if name not in ("model", "method", "seed")}
    (tmp_path / "old.jsonl").write_text(json.dumps(old) + "\n")
    (old_row,) = read_records(tmp_path / "old.jsonl", FamilySwitchScores)
    assert (old_row.system, old_row.model, old_row.method, old_row.seed) == ("runs/a", None, None, None)
