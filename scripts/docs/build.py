"""Write the generated pages of the documentation, or with --check fail and name those that are out of date."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import api_pages
import architecture_page
import benchmark_page
import cli_pages
import contributing_page
import decision_list
import evidence_page
import example_report
import llms_page
import reproduction_page
import schema_pages
import settings_page
import world_page
from pages import ROOT, find_stale, write_pages

GENERATORS = (
    api_pages,
    architecture_page,
    benchmark_page,
    cli_pages,
    contributing_page,
    decision_list,
    evidence_page,
    reproduction_page,
    schema_pages,
    settings_page,
    world_page,
)
FOLDERS = (api_pages.FOLDER, cli_pages.FOLDER, schema_pages.FOLDER)


def main() -> int:
    """Write or check all pages; return the exit code."""
    pages = {path: text for generator in GENERATORS for path, text in generator.make_pages().items()}
    report = example_report.make_report()
    if "--check" not in sys.argv[1:]:
        write_pages(pages, FOLDERS)
        # The list of pages quotes the others, so it comes last.
        write_pages(llms_page.make_pages())
        if example_report.is_stale(report):
            example_report.TARGET.write_text(report, "utf-8")
        return 0
    pages |= llms_page.make_pages()
    stale = list(find_stale(pages, FOLDERS))
    if example_report.is_stale(report):
        stale.append(example_report.TARGET)
    for path in stale:
        print(f"{path.relative_to(ROOT)} is out of date: run `make docs`.", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
