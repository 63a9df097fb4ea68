"""Detectors of other packages, found through their entry points."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import eclose
from eclose import Instance, Passage, Response, Trace
from eclose.detectors.scores import DetectorScore
from eclose.files.jsonl import read_records, write_records

if TYPE_CHECKING:
    from pathlib import Path

QUESTION = Instance("q1", "Who directed Moonstruck?", (Passage("p1", "Moonstruck", "By Norman Jewison."),), "Jewison")
SOURCE = """
from pathlib import Path

from eclose.detectors.scores import DetectorKind, DetectorScore, Unscored


class Lengths:
    identity = {"lengths": 1}

    def __init__(self, surplus):
        self.surplus = surplus

    def score(self, tasks):
        scores = []
        for task in tasks:
            steps = len(task.response.trace.steps)
            scores.append(
                DetectorScore(
                    response_id=task.id,
                    detector=DetectorKind.VERIFIER,
                    model="lengths",
                    score=1 / steps if steps else None,
                    unscored=None if steps else Unscored.NO_TRACE,
                )
            )
        return scores * self.surplus


def find(source):
    return Lengths(1) if source == "lengths" else Lengths(2) if Path(source).suffix == ".lengths" else None
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that is no part of eclose, with a detector of its own."""
    site = tmp_path / "site"
    metadata = site / "strange_lengths-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: strange-lengths\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[eclose.detectors]\nlengths = strange_lengths:find\n")
    (site / "strange_lengths.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "strange_lengths", raising=False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    write_records(folder / "instances.jsonl", [QUESTION])
    traces = {"long": Trace.of("One.", "Two."), "short": Trace.of("One."), "none": Trace.of()}
    write_records(folder / "responses.jsonl", [Response(name, "q1", trace, "A") for name, trace in traces.items()])
    return folder


@pytest.mark.usefixtures("stranger")
def test_a_detector_of_another_package_is_found_by_name_and_scores_every_response(run: Path) -> None:
    result = eclose.detect(run, detector="verifier", verifier="lengths")
    scores = list(read_records(run / "scores-verifier.jsonl", DetectorScore))

    assert [(row.response_id, row.model, row.score) for row in scores] == [
        ("long", "lengths", 0.5),
        ("short", "lengths", 1.0),
        ("none", "lengths", None),
    ]
    assert result.manifest.calls["unscored"] == {"no trace": 1}
    assert result.manifest.settings == {"detector": "verifier", "lengths": 1}


@pytest.mark.usefixtures("stranger")
def test_scores_that_are_not_one_for_each_response_are_refused(run: Path) -> None:
    with pytest.raises(eclose.UserError, match="Lengths: returned scores that are not one for each response"):
        eclose.detect(run, detector="verifier", verifier=run / "saved.lengths")
    assert not (run / "scores-verifier.jsonl").exists()


def test_a_verifier_that_no_package_recognizes_names_the_extra(run: Path) -> None:
    with pytest.raises(eclose.UserError, match=r"saved: is no detector .* pip install 'eclose\[train\]'"):
        eclose.detect(run, detector="verifier", verifier=run / "saved")
