"""The page of the miniature study shows each claim on all backbones and on each alone."""

import json

from studies.campaigns.miniature_study.page import format_page

HELD = {"name": "TRR: E-Closure - SFT", "value": 0.1, "interval": [0.02, 0.18], "n": 40}
OPEN = {"name": "TRR: E-Closure - SFT", "value": 0.1, "interval": None, "n": 20}


def write_variant(folder, *cells):
    """Write what the page reads of a variant; a cell is method, backbone, seed, and hits of 4 responses or families."""
    rows = [
        {
            "method": method,
            "backbone": backbone,
            "seed": seed,
            "benchmark": "world-easy",
            "rates": {name: {"hits": hits, "n": 4} for name in ("Acc", "LSR", "TRR", "LGG", "S SW", "T SW", "C SW")},
        }
        for method, backbone, seed, hits in cells
    ]
    folder.mkdir(exist_ok=True)
    path = folder / "experiment.json"
    report = json.loads(path.read_text()) if path.is_file() else {"grid": {"backbones": ["Warm"], "seeds": [42]}}
    path.write_text(json.dumps(report | {"seeds": rows, "switches": {"rates": {}, "gains": {}, "seeds": rows}}))


def write_report(folder, outcome, *comparisons, missing=()):
    report = {
        "grid": {"backbones": ["Small", "Warm"], "seeds": [42, 43], "benchmarks": {"easy": 4, "hard": 6}},
        "missing": list(missing),
        "ablations": [],
        "variant_switches": [],
        "claims": [{"title": "It is better.", "outcome": outcome, "comparisons": list(comparisons)}],
        "overall": {
            "SFT": {
                name: {"value": 0.5, "interval": None, "unjudged": 3}
                for name in ("Acc", "LSR", "A", "C", "GSR", "TRR", "LGG")
            }
        },
        "seeds": [
            {
                "method": "SFT",
                "benchmark": "world-easy",
                "rates": {"TRR": {"hits": 2, "n": 5}, "LGG": {"hits": 1, "n": 4}},
            }
        ]
        * 2,
        "switches": {
            "rates": {"SFT": {"S SW": {"value": 0.5, "interval": [0.25, 0.75]}}},
            "gains": {
                "SFT": {"S": {"value": 0.1, "interval": [0.02, 0.2]}, "T": {"value": 0.1, "interval": [-0.1, 0.2]}},
                "RM": {"S": {"value": -0.1, "interval": [-0.2, -0.1]}, "T": {"value": 0.1, "interval": None}},
            },
        },
    }
    folder.mkdir()
    (folder / "experiment.json").write_text(json.dumps(report))


def test_each_claim_has_an_outcome_on_all_backbones_and_on_each(tmp_path):
    write_report(tmp_path / "report", "holds", HELD)
    write_report(tmp_path / "report-Small", "cannot tell")
    write_report(tmp_path / "report-Warm", "cannot tell", OPEN)
    page = format_page(tmp_path, tmp_path / "none.csv")
    assert "| claim | all backbones | Small alone | Warm alone |" in page
    # A claim without a comparison was not measured, which is not the same as open.
    assert "| It is better. | **holds** | not measured | cannot tell |" in page
    assert "| It is better. | **holds** | TRR: E-Closure - SFT | +10.0 [+2.0, +18.0] | 40 |" in page
    assert "| It is better. | **cannot tell** | TRR: E-Closure - SFT | +10.0 | 20 |" in page
    assert "10 questions. All cells are there." in page
    assert "| method | TRR easy | LGG easy |" in page
    assert "| SFT | 4 of 10 | 2 of 8 |" in page
    assert "| SFT | 50.0 [25.0, 75.0] |" in page


def test_missing_parts_and_wall_times_are_told(tmp_path):
    times = tmp_path / "times.csv"
    times.write_text("cell,stage,seconds\nWarm sft 42,train,3000\nWarm sft 42,judge,600\n")
    write_report(tmp_path / "report", "holds", HELD, missing=["Responses of RM.", "Ablations."])
    page = format_page(tmp_path, times)
    assert "Missing: Responses of RM. Ablations." in page
    assert "| Warm sft 42 | 3000 | 600 | 3,600 |" in page
    assert "Together 1.0 hours over all cells." in page


def test_ablations_and_their_switch_tests_are_shown(tmp_path):
    write_report(tmp_path / "report", "holds", HELD)
    path = tmp_path / "report" / "experiment.json"
    report = json.loads(path.read_text())
    assert "Ablations" not in format_page(tmp_path, tmp_path / "none.csv")
    report["ablations"] = [{"backbone": "Warm", "rates": {"w/o S": report["overall"]["SFT"]}}]
    report["variant_switches"] = [{"rates": {"w/o T": {"T SW": {"value": 0.25, "interval": None}}}, "gains": {}}]
    path.write_text(json.dumps(report))
    page = format_page(tmp_path, tmp_path / "none.csv")
    assert "## Ablations on Warm" in page
    assert f"| w/o S |{' 50.0 |' * 7}" in page
    assert "## Switch tests of the ablations" in page
    assert "| w/o T | 25.0 |" in page


def test_gains_in_switch_tests_are_shown_with_those_that_are_decided(tmp_path):
    write_report(tmp_path / "report", "holds", HELD)
    page = format_page(tmp_path, tmp_path / "none.csv")
    assert "| SFT | +10.0 [+2.0, +20.0] | +10.0 [-10.0, +20.0] |" in page
    assert "The interval lies above zero for S over SFT.\nThe interval lies below zero for S over RM.\n" in page


def test_variants_stand_below_the_same_cell_of_the_study(tmp_path):
    write_report(tmp_path / "report", "holds", HELD)
    assert "The number of updates and the weight of the margins were not." in format_page(
        tmp_path, tmp_path / "none.csv"
    )
    others = [("SFT", "Warm", 42, 1), ("E-Closure", "Small", 42, 1), ("E-Closure", "Warm", 43, 1)]
    write_variant(tmp_path / "report", ("E-Closure", "Warm", 42, 2), ("E-Closure", "Warm", 42, 1), *others)
    write_variant(tmp_path / "variant-longer", ("E-Closure", "Warm", 42, 4))
    page = format_page(tmp_path, tmp_path / "none.csv")
    assert "were not." not in page
    assert "E-Closure was also trained with two epochs instead of one,\n" in page
    assert "The weight of the margins was not varied." in page
    assert "The number of updates was not varied." not in page
    assert "E-Closure on Warm with seed 42" in page
    assert "| as in the study | 3 of 8 | 3 of 8 | 3 of 8 | 3 of 8 | 3 of 8 | 3 of 8 | 3 of 8 |" in page
    assert f"| two epochs instead of one |{' 4 of 4 |' * 7}" in page
    assert "margin weight 4" not in page
