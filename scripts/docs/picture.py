"""Draw docs/figures/report.png, the first screen of docs/example/report.html. Needs playwright and Chromium."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from pages import DOCS
from PIL import Image
from playwright.sync_api import ViewportSize, sync_playwright

SIZE = ViewportSize(width=1280, height=1005)


def main() -> int:
    """Draw the picture from the page named on the command line, or from the committed example."""
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "example" / "report.html"
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        tab = browser.new_page(viewport=SIZE)
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector("html[data-ready]")
        data = tab.screenshot()
        browser.close()
    # A palette makes the picture a third as large. Few colours are frequent: an octree keeps the rare ones apart.
    picture = Image.open(io.BytesIO(data)).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE)
    picture.save(DOCS / "figures" / "report.png", optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
