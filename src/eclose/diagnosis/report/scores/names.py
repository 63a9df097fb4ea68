"""Short names of detectors in tables, figures and on the page."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eclose.detection.scores import DetectorKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.detection.study_statistics import DetectorIdentity

_NAMES = {
    DetectorKind.STATEMENT_SUPPORT: "RAGAS-style",
    DetectorKind.CLAIM_SUPPORT: "VeriScore-style",
    DetectorKind.STEP_SUPPORT: "step support",
    DetectorKind.ALIGNMENT: "alignment",
    DetectorKind.CLOSURE: "closure",
    DetectorKind.VERIFIER: "verifier",
}
# Named models of the paper, by a part of their names; another model in their place has the plain name.
_PAPER_NAMES = {
    DetectorKind.STEP_SUPPORT: ("alignscore", "AlignScore"),
    DetectorKind.CLOSURE: ("t5_xxl_true_nli_mixture", "T5 closure"),
}


def name_detectors(detectors: Sequence[DetectorIdentity]) -> dict[DetectorIdentity, str]:
    """Return a short name for each detector; those of the same name are numbered.

    A detector has the name of a published model only where that model is behind it.
    """
    names = {detector: _name_detector(detector) for detector in detectors}
    repeated = Counter(names.values())
    number: Counter[str] = Counter()
    for detector, name in names.items():
        number[name] += 1
        if repeated[name] > 1:
            names[detector] = f"{name} {number[name]}"
    return names


def _name_detector(detector: DetectorIdentity) -> str:
    if detector.kind is DetectorKind.CONTROL:
        return detector.model
    part, name = _PAPER_NAMES.get(detector.kind, ("", _NAMES[detector.kind]))
    return name if part in detector.model.lower() else _NAMES[detector.kind]
