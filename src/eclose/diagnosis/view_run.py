"""Show every response of a run in the browser, however many there are: ``eclose.view`` and ``eclose view``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose import __version__
from eclose.core.identity import content_hash
from eclose.diagnosis.report.explorer.sample import RunSample, sample_report_cases
from eclose.diagnosis.report.first_screen import find_worst_example
from eclose.diagnosis.report.html import ExplorerPayload, ReportPage, compress_json, render_page
from eclose.diagnosis.report.scores.explorer import layout_score_plot
from eclose.diagnosis.report.view.build import build_view_index
from eclose.diagnosis.report.view.query import ViewIndex, read_index_key
from eclose.diagnosis.results import default_report_folder, diagnose
from eclose.diagnosis.run_counts import scan_large_run
from eclose.errors import UserError
from eclose.store.runs.folder import list_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from eclose.diagnosis.report.view.server import RunView
    from eclose.diagnosis.results import Results
    from eclose.judged_cases import JudgedCase

VIEW_INDEX_FILE = "view.sqlite"
"""Name of the index in the folder of the report."""
_PROGRESS_STEP = 100_000
"""Responses between two notices while an index is built."""


def view(
    runs: Path | str | Sequence[Path | str],
    *,
    index: Path | str | None = None,
    port: int = 0,
    allow_stale: bool = False,
    notify: Callable[[str], None] | None = None,
) -> RunView:
    """Serve the report of judged runs with every response, on this machine alone.

    The first call builds an index of the responses beside the report; later calls reuse it until a file of the run
    changes. Nothing of the run is changed.

    Args:
        runs: Folder of a judged run, or several that are shown together.
        index: File of the index; ``report/view.sqlite`` in the first run by default.
        port: Port on this machine; 0 takes any free one.
        allow_stale: Use judgments although questions or responses changed after they were judged.
        notify: Function that is called with each notice and with the progress of the index.

    Returns:
        The running server, with its address in ``url``. Use it in a ``with`` block, or call ``close``.

    Raises:
        UserError: A folder holds no judged run, or the port is in use.

    Examples:
        >>> with eclose.view("demo") as page:
        ...     page.url.startswith("http://127.0.0.1:")
        True
    """
    # Before the index is built: without the extra this fails at once.
    from eclose.diagnosis.report.view.server import import_server, serve_view  # noqa: PLC0415 - an extra

    import_server()
    path = make_view_index(runs, index=index, allow_stale=allow_stale, notify=notify)
    return serve_view(ViewIndex(path), port)


def make_view_index(
    runs: Path | str | Sequence[Path | str],
    *,
    index: Path | str | None = None,
    allow_stale: bool = False,
    notify: Callable[[str], None] | None = None,
) -> Path:
    """Build the index of judged runs unless there is one of the same files; return its path."""
    folders = list_paths(runs)
    path = default_report_folder(folders[0]) / VIEW_INDEX_FILE if index is None else Path(index)
    key = _identify_files(folders, allow_stale=allow_stale)
    if read_index_key(path) != key:
        notify = notify or (lambda _sentence: None)
        results = diagnose(folders, allow_stale=allow_stale, notify=notify)
        cases: Iterable[JudgedCase] = results.cases
        if len(results.cases) < len(results):
            # The results of a large run hold a sample; the index needs every response. Only a single run is large.
            cases = scan_large_run(folders[0], allow_stale=allow_stale)
        write_view_index(path, results, key, notify, cases=cases)
    return path


def write_view_index(
    path: Path,
    results: Results,
    key: str,
    notify: Callable[[str], None],
    *,
    cases: Iterable[JudgedCase] | None = None,
) -> None:
    """Write the index of diagnosed responses, with the page that lists them.

    Args:
        path: File to write.
        results: Rates and context of all responses, and the responses that the first screen is chosen from.
        key: Identity of the files of the run.
        notify: Function that is called with the progress.
        cases: All responses, read once; those of the results by default.

    Raises:
        UserError: There are not as many responses as the rates were computed from.
    """
    sample = sample_report_cases(results.cases)
    worst = find_worst_example(sample.cases)
    scores = layout_score_plot(results.context.scores, results.cases)

    def render(data: dict[str, Any]) -> str:
        judged = results.diagnosis.overall.responses
        if data["total"] != judged:
            raise UserError(
                f"{path}: {data['total']:,} of {judged:,} responses were read. Were files changed meanwhile?"
            )
        payload = ExplorerPayload(compress_json(data), (), ())
        page = ReportPage(payload, worst, scores, RunSample((), data["total"]), served=True)
        return render_page(results.diagnosis, page, results.context)

    def report_progress(written: int) -> None:
        if written % _PROGRESS_STEP < 128 <= written and written >= _PROGRESS_STEP:
            notify(f"{path}: {written:,} responses indexed")

    build_view_index(
        path,
        results.cases if cases is None else cases,
        key=key,
        render=render,
        scores=results.context.scores,
        worst_id=None if worst is None else sample.cases[worst.position].response.id,
        notify=report_progress,
    )


def _identify_files(folders: Sequence[Path], *, allow_stale: bool) -> str:
    """Return a hash that changes when a file of a run does, or the program."""
    files = [
        [str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns]
        for folder in folders
        # The ledger is written by other commands and holds nothing that the page shows.
        for path in sorted(folder.glob("*"))
        if path.is_file() and ".sqlite" not in path.name
    ]
    return content_hash([__version__, allow_stale, files])
