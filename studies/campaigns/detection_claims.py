"""Claims on detection, taken from the printed tables of `detect_verifier.py` and `detect_natural.py`.

Both campaigns end with these claims. Run alone, this script takes them from the committed records, so a rule that was
misapplied can be applied again without a second look at questions that may be scored once:

    python studies/campaigns/detection_claims.py docs/records/detect_verifier.txt
    python studies/campaigns/detection_claims.py docs/records/detect_natural.txt
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GOALS = {"confusable-short": (85, 75), "confusable-long": (80, 60)}
"""Least recall of the gap and of path deviations in percent, by profile, at calibrated thresholds."""
MOST_FALSE_POSITIVES = 6
"""Largest share in percent of reliable responses flagged at a calibrated threshold of 5 %."""
LEAST_REAL_AUROC, LEAST_REAL_RECALL = 0.85, 50
"""Goals on the half of the real traces that no choice was made on: AUROC, and R@95 in percent."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim: the arguments of a result line."""

    name: str
    value: float
    unit: str
    goal: str
    holds: bool


_CELL = re.compile(r"(\d[\d.]*)(?: \[([\d.]+), ([\d.]+)\])?")


def find_section(text: str, heading: str) -> str:
    """Return the lines below a heading of a record, up to the next one.

    Raises:
        ValueError: The record has no such heading.
    """
    match = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise ValueError(f"no section {heading!r}")
    return match[1]


def read_flagged(section: str, group: str) -> float:
    """Return the percentage of a group that is flagged at the calibrated threshold."""
    match = re.search(rf"flagged at the calibrated threshold:.*?\b{group} (\d[\d.]*)", section)
    if match is None:
        raise ValueError(f"no share of {group!r}")
    return float(match[1])


def read_verifier_row(section: str) -> list[str]:
    """Return the cells of the verifier, which is the first row of the table of detectors."""
    row = next(line for line in section.splitlines() if line.startswith("| linear@"))
    return [cell.strip() for cell in row.strip("| ").split("|")]


def list_verifier_claims(text: str) -> Iterator[Claim]:
    """Yield the claims of `detect_verifier.py`: the harder world at calibrated thresholds, and real text."""
    for profile, (least, least_path) in GOALS.items():
        section = find_section(text, f"{profile}, all features")
        gap, path, false = (read_flagged(section, group) for group in ("gap", "path_deviation", "reliable"))
        yield Claim(
            name=f"gap found in the harder world, {profile}, at a calibrated threshold of 5 %",
            value=gap,
            unit=f"%; {path} % of path deviations; {false} % of reliable responses flagged",
            goal=f">= {least} %, >= {least_path} %, <= {MOST_FALSE_POSITIVES} %",
            holds=gap >= least and path >= least_path and false <= MOST_FALSE_POSITIVES,
        )
    if "## real text (test)" not in text:
        return
    for features in ("all features", "without shortcuts"):
        section = find_section(text, f"real text (test), {features}")
        _, auroc, recall, *_ = read_verifier_row(section)
        yield Claim(
            name=f"gap found on real text that no choice was made on, linear verifier, {features}",
            value=read_value(auroc),
            unit=f"AUROC, {auroc}; R@95 {recall} %",
            goal=f">= {LEAST_REAL_AUROC}; >= {LEAST_REAL_RECALL} %",
            holds=read_value(auroc) >= LEAST_REAL_AUROC and read_value(recall) >= LEAST_REAL_RECALL,
        )


def list_natural_claims(text: str) -> Iterator[Claim]:
    """Yield the claim of `detect_natural.py`: choices by majority then verifier, against simpler ones."""
    rows = re.findall(r"^\| natural-\d+ \| \d+ \| (.+) \|$", text, re.MULTILINE)
    shares = [[float(cell.split()[0]) for cell in row.split(" | ")] for row in rows]
    over_majority = [round(chosen - majority, 1) for chosen, _, majority, _ in shares]
    over_random = [round(chosen - random, 1) for chosen, _, _, random in shares]
    yield Claim(
        name="reliable responses by majority then verifier, over majority and over a random choice",
        value=min(*over_majority, *over_random),
        unit=f"points, smallest of {len(rows)} runs and sizes; over majority {over_majority}, random {over_random}",
        goal=">= 0 over both",
        holds=min(*over_majority, *over_random) >= 0,
    )


def read_value(cell: str) -> float:
    """Return the number of a cell such as ``0.783 [0.718, 0.840]``."""
    match = _CELL.match(cell)
    if match is None:
        raise ValueError(f"{cell!r} is no value")
    return float(match[1])


def print_claims(claims: Iterator[Claim], **details: Any) -> int:
    """Print a result line with further fields for each claim and return 0 where all hold, otherwise 1."""
    return max([print_result(**asdict(claim), **details) for claim in claims], default=1)


CLAIMS = {"detect_verifier": list_verifier_claims, "detect_natural": list_natural_claims}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the claims of a record; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, nargs="?", default=Path("docs/records/detect_verifier.txt"))
    path = parser.parse_args(arguments).record
    text = path.read_text("utf-8").replace("\u00a0", " ")
    # The tables keep their day and commit, which stand in the record.
    return print_claims(CLAIMS[path.stem](text), date="", commit="")


if __name__ == "__main__":
    sys.exit(main())
