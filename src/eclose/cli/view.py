"""``eclose view``: list, filter and search every response of a run in the browser."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.report import Runs
from eclose.cli.shared.output import AllowStale, print_line

if TYPE_CHECKING:
    from collections.abc import Iterator


def view(
    runs: Runs,
    *,
    index: Annotated[
        Path | None,
        typer.Option(
            help="File of the index, which is built once.  [default: report/view.sqlite in the first run]",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine (0 = any free port).")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    allow_stale: AllowStale = False,
) -> None:
    """Show the report of judged runs with every response in the browser, also where there are millions.

    The page is that of diagnose. Its list is filtered, searched and paged by a server on this machine, which changes
    nothing. Stop it with Ctrl+C.
    """
    from eclose.diagnosis.view_run import view as view_run

    with view_run(runs, index=index, port=port, allow_stale=allow_stale, notify=print_line) as page:
        print_line(f"Open {page.url} (Ctrl+C ends it)")
        with _opened(page.url) if browser else nullcontext(), suppress(KeyboardInterrupt):
            # Ctrl+C is the normal way to stop.
            page.wait()


@contextmanager
def _opened(url: str) -> Iterator[None]:
    """Open a page in the browser, by a file that only the user can read: other users see the browser's command."""
    from eclose.annotation.web.serve import open_in_browser

    with TemporaryDirectory() as folder:
        open_in_browser(url, Path(folder))
        yield
