"""Check that a tag, the changelog, the citation and the built files name the same release.

    python scripts/check_release.py v0.1.0             after `make dist`
    python scripts/check_release.py v0.1.0 --no-dist   before the tag is set

Prints what does not agree, and exits with 1 where something does not.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOUSES = ("eclose", "eclose_annotate", "eclose_train", "eclose_world")
"""The distributions, as the names of their files begin."""


def find_disagreements(tag: str, root: Path, *, with_dist: bool = True) -> list[str]:
    """Return a sentence for each file that does not name the release of the tag."""
    if not re.fullmatch(r"v\d+\.\d+\.\d+((a|b|rc)\d+)?", tag):
        return [f"{tag} is no tag of a release: vX.Y.Z, or vX.Y.Zrc1 for a candidate"]
    version = tag.removeprefix("v")
    changelog, citation = ((root / name).read_text("utf-8") for name in ("CHANGELOG.md", "CITATION.cff"))
    heading = re.search(rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)$", changelog, re.MULTILINE)
    problems = [] if heading else [f"CHANGELOG.md has no dated section: ## {version} (YYYY-MM-DD)"]
    lines = {"version": version, "date-released": heading[1] if heading else "YYYY-MM-DD"}
    for name, value in lines.items():
        if not re.search(rf"^{name}: {re.escape(value)}$", citation, re.MULTILINE):
            problems.append(f"CITATION.cff lacks the line: {name}: {value}")
    if with_dist:
        present = {path.name for path in (root / "dist").glob("*")}
        stems = [f"{house}-{version}" for house in HOUSES]
        expected = {f"{stem}{ending}" for stem in stems for ending in ("-py3-none-any.whl", ".tar.gz")}
        if present != expected:
            problems.append(f"dist/ holds {sorted(present)}, not {sorted(expected)}")
    return problems


def main() -> int:
    """Print every disagreement and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag", help="tag of the release, such as v0.1.0")
    parser.add_argument("--no-dist", action="store_true", help="leave out the built files")
    options = parser.parse_args()
    problems = find_disagreements(options.tag, ROOT, with_dist=not options.no_dist)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
