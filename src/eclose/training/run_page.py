"""Page of a training run: curves of losses, margins and switch rates in one HTML file, from the files of the run.

It needs no network, no script and no torch, and can be drawn while the run is under way or after it was killed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.core.preference_comparisons import Edge
from eclose.diagnosis.report.families.view import POLICY
from eclose.diagnosis.report.html_template import csp_source_hash, load_page_template, read_page_text
from eclose.diagnosis.report.number_format import DASH, format_count, format_percent
from eclose.errors import RecordError, UserError
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.json_reader import require_regular_file
from eclose.store.records.strict_json import parse_json_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

METRICS_FILE = "metrics.jsonl"
RUN_PAGE_FILE = "run.html"
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 420, 200, 52, 24
"""Size of a chart and the margins of its axes, in units of its view box."""
_MOST_POINTS = 600
"""Points of a curve; longer logs are averaged over neighbouring lines."""
_DIRECTIONS = {"o": "original", "c": "counterfactual"}
_HELD_OUT = "eval_"
REPLY_METRICS_PREFIX = "generated/"
"""Prefix of figures of generated replies in the log, behind ``eval_``."""
REPLY_RATES = {"correct": "accuracy", "no answer": "no_answer", "TRR": "TRR", "LGG": "LGG"}
"""Rates of generated replies by their labels."""
_REPLY_COUNTS = {
    "replies": "n",
    "TRR n": "TRR_n",
    "TRR undecided": "TRR_undecided",
    "LGG n": "LGG_n",
    "LGG undecided": "LGG_undecided",
}
_INPUTS = {"original": "gold", "evidence edited": "evidence_cf", "question edited": "question_cf"}


@dataclass(frozen=True, slots=True)
class ChartCurve:
    """A figure of the log over the updates."""

    name: str
    colour: str
    """Class of its colour in the style sheet."""
    held_out: bool
    pieces: tuple[tuple[tuple[float, float], ...], ...]
    """Points in the view box; a value that is not finite ends a piece."""
    last: str
    """Latest value as text."""


@dataclass(frozen=True, slots=True)
class RunChart:
    """Curves on common axes."""

    title: str
    curves: tuple[ChartCurve, ...]
    rows: tuple[tuple[float, str], ...]
    """Height and label of each horizontal line."""
    columns: tuple[tuple[float, str], ...]
    """Distance and label of each update on the axis."""
    note: str = ""


def write_run_page(run: Path | str, out: Path | str | None = None) -> Path:
    """Draw the curves of a training run, finished or not, and return the file.

    Args:
        run: Folder of a training run.
        out: The page; ``run.html`` in the folder by default.

    Raises:
        UserError: The folder has no log of a training run.
    """
    page = Path(run) / RUN_PAGE_FILE if out is None else Path(out)
    html = render_run_page(Path(run))
    with AtomicFile(page) as file:
        file.write(html.encode())
    return page


def render_run_page(run: Path) -> str:
    """Return the page of a run as HTML."""
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only pages need

    lines = read_metrics(run)
    recipe, selection = _read_json(run / "recipe.json"), _read_json(run / "selection.json")
    style = read_page_text("page.css") + read_page_text("training.css")
    html: str = load_page_template("training.html").render(
        title=run.resolve().name,
        facts=list(_facts(lines, recipe, run)),
        charts=list(_charts(lines)),
        evaluations=list(_evaluations(lines)),
        replies=list(_replies(lines)),
        scores=list(_scores(selection)),
        size=(_WIDTH, _HEIGHT, _LEFT, _HEIGHT - _BOTTOM),
        policy=POLICY.format(style=csp_source_hash(style)),
        style=Markup(style),  # part of the package, not a value
    )
    return html


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's log; a last line that is cut off, as on a full disk, is left out."""
    path = run / METRICS_FILE
    require_regular_file(path)
    lines = []
    raw_lines = path.read_bytes().splitlines()
    for number, raw in enumerate(raw_lines, start=1):
        try:
            lines.append(parse_json_object(raw))
        except RecordError as error:
            if number == len(raw_lines):
                break
            raise UserError(f"{path}, line {number}: {error} Is this the log of a training run?") from error
    return lines


def _read_json(path: Path) -> dict[str, Any]:
    """Return the content of a file of the run; empty where it has not been written."""
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


def _facts(lines: Sequence[Mapping[str, Any]], recipe: Mapping[str, Any], run: Path) -> Iterator[tuple[str, str]]:
    last = max((line.get("step", 0) for line in lines), default=0)
    path = run / "sessions.json"
    sessions = json.loads(path.read_text("utf-8")) if path.is_file() else []
    state = "finished" if sessions and sessions[-1].get("ended") else "under way or interrupted"
    yield "state", f"{state}, {format_count(last, 'update')} in the log"
    names = (
        "model",
        "revision",
        "method",
        "baseline",
        "seed",
        "learning_rate",
        "families_per_update",
        "num_train_epochs",
    )
    for name in names:
        if recipe.get(name) is not None:
            yield name, str(recipe[name])
    for role, file in recipe.get("inputs", {}).items():
        if file:
            yield role, f"{file['file']}, {file['hash']}"
    if sessions:
        hours = sum(session["seconds"] for session in sessions) / 3600
        yield "time", f"{hours:.2f} hours in {format_count(len(sessions), 'session')}, {sessions[-1]['device']}"


def _charts(lines: Sequence[Mapping[str, Any]]) -> Iterator[RunChart]:
    """Yield a chart for every group of figures that the log has."""
    losses = {"Loss": "loss", "Generation loss": "gen_loss", "Margin loss": "margin_loss"}
    for title, name in losses.items():
        yield from _chart(lines, title, [("training", name, "a"), ("held out", _HELD_OUT + name, "a")])
    # Figures of baselines, as TRL names them.
    for title, name, scale in (
        ("Reward of preferred minus rejected", "rewards/margins", 1),
        ("Pairs ranked right, %", "rewards/accuracies", 100),
    ):
        curves = [("training", name, "a"), ("held out", _HELD_OUT + name, "a")]
        yield from _chart(lines, title, curves, scale=scale)
    # Comparisons by edge: S, T and C, or Re and Rq of the response margin.
    edges = {name[8:-2]: None for line in lines for name in line if name.startswith("margins/")}
    for edge in edges:
        sides = [(side, f"margins/{edge}_{letter}", letter) for letter, side in _DIRECTIONS.items()]
        curves = [(text, prefix + name, colour) for prefix in ("", _HELD_OUT) for text, name, colour in sides]
        yield from _chart(lines, f"Margins of {edge}, nats per token", curves, zero=True)
    for prefix, split in (("", "training"), (_HELD_OUT, "held out")):
        switches = [(edge.value, f"{prefix}switch/{edge.value}", edge.value) for edge in Edge]
        yield from _chart(lines, f"Switch rates, {split}, %", switches, scale=100, span=(0, 100))
    generated = _HELD_OUT + REPLY_METRICS_PREFIX
    kinds = [(text, f"{generated}accuracy_{kind}") for text, kind in _INPUTS.items()]
    accuracies = [(text, name, colour) for (text, name), colour in zip(kinds, "oTC", strict=True)]
    accuracies.append(("no answer", f"{generated}no_answer", "n"))
    yield from _chart(lines, "Correct replies by input, %", accuracies, scale=100, span=(0, 100))
    judged = [("TRR", f"{generated}TRR", "a"), ("LGG", f"{generated}LGG", "c")]
    yield from _chart(lines, "Trace reliability and local-global gap, %", judged, scale=100, span=(0, 100))
    yield from _chart(lines, "Learning rate", [("", "learning_rate", "a")], zero=True)
    yield from _chart(lines, "Gradient norm", [("", "grad_norm", "a")], zero=True)


def _chart(
    lines: Sequence[Mapping[str, Any]],
    title: str,
    curves: Iterable[tuple[str, str, str]],
    *,
    scale: float = 1,
    span: tuple[float, float] | None = None,
    zero: bool = False,
) -> Iterator[RunChart]:
    """Yield the chart of some figures; nothing where the log has none of them."""
    series = [(text, name, colour, _points(lines, name, scale)) for text, name, colour in curves]
    series = [row for row in series if row[3]]
    values = [value for *_, points in series for _, value in points if value is not None]
    if not values:
        return
    least, most = span or (min(values), max(values))
    ticks = _ticks(min(least, 0) if zero else least, most)
    last_update = max(update for *_, points in series for update, _ in points)

    def locate(update: float, value: float) -> tuple[float, float]:
        x = _LEFT + (_WIDTH - _LEFT) * update / max(last_update, 1)
        return round(x, 1), round(_height(value, ticks), 1)

    drawn = tuple(
        ChartCurve(text, colour, name.startswith(_HELD_OUT), _pieces(points, locate), _format(points[-1][1]))
        for text, name, colour, points in series
    )
    # The last tick may lie behind the last update; lines outside of the chart are not drawn.
    columns = tuple((locate(tick, 0)[0], f"{tick:,.0f}") for tick in _ticks(0, last_update) if 0 < tick <= last_update)
    rows = tuple((round(_height(tick, ticks), 1), f"{tick:g}") for tick in ticks)
    size = max(ceil(sum(name in line for line in lines) / _MOST_POINTS) for _, name, *_ in series)
    note = f"A point is the mean of up to {size:,} lines of the log." if size > 1 else ""
    yield RunChart(title, drawn, rows, columns, note)


def _points(lines: Sequence[Mapping[str, Any]], name: str, scale: float) -> list[tuple[float, float | None]]:
    """Return the updates of a figure with its values; long logs as means over neighbouring lines."""
    rows = [(line.get("step", 0), line[name]) for line in lines if name in line]
    size = max(ceil(len(rows) / _MOST_POINTS), 1)
    points: list[tuple[float, float | None]] = []
    for start in range(0, len(rows), size):
        group = rows[start : start + size]
        values = [value for _, value in group if value is not None]
        points.append((group[-1][0], scale * sum(values) / len(values) if values else None))
    return points


def _pieces(points: Iterable[tuple[float, float | None]], locate: Any) -> tuple[tuple[tuple[float, float], ...], ...]:
    """Return the points of a curve in the view box, split where there is no value."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for update, value in points:
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append(locate(update, value))
    return tuple(tuple(piece) for piece in pieces if piece)


def _height(value: float, ticks: Sequence[float]) -> float:
    """Return the vertical position of a value between the first and the last tick; y grows downwards."""
    room = _HEIGHT - _BOTTOM - 10
    return _HEIGHT - _BOTTOM - room * (value - ticks[0]) / (ticks[-1] - ticks[0])


def _ticks(least: float, most: float) -> list[float]:
    """Return four to eight round numbers that enclose a range; equal ends are spread apart."""
    if most <= least:
        least, most = least - abs(least) / 2 - 1e-9, most + abs(most) / 2 + 1e-9
    step = 10.0 ** floor(log10((most - least) / 4))
    # 1, 2 or 5 times a power of ten.
    step *= next(factor for factor in (1, 2, 5, 10) if (most - least) / (step * factor) <= 5)
    first, last = floor(least / step + 1e-9), ceil(most / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _format(value: float | None) -> str:
    return DASH if value is None else f"{value:.4g}"


def _evaluations(lines: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield a table row for every evaluation on held-out families, in percent for switch rates."""
    for line in lines:
        if "eval_loss" in line:
            losses = [_format(line.get(f"eval_{name}")) for name in ("loss", "gen_loss", "margin_loss")]
            switches = [format_percent(line.get(f"eval_switch/{edge.value}")) for edge in Edge]
            yield [f"{line.get('step', 0):,}", *losses, *switches]


def _replies(lines: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield the heads of a table, then a row for every evaluation with generated replies, in percent for rates."""
    generated = _HELD_OUT + REPLY_METRICS_PREFIX
    rows = [line for line in lines if f"{generated}n" in line]
    judged = any(f"{generated}TRR_n" in line for line in rows)
    rates = {"correct": "accuracy", **{text: f"accuracy_{kind}" for text, kind in _INPUTS.items()}}
    rates |= {"no answer": "no_answer"} | ({"TRR": "TRR", "LGG": "LGG"} if judged else {})
    counts = _REPLY_COUNTS if judged else {"replies": "n"}
    if rows:
        yield ["update", *(f"{text} %" for text in rates), *counts]
    for line in rows:
        cells = [format_percent(line.get(generated + name)) for name in rates.values()]
        numbers = [line.get(generated + name) for name in counts.values()]
        yield [f"{line.get('step', 0):,}", *cells, *(DASH if value is None else f"{value:,}" for value in numbers)]


def _scores(selection: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield a table row for every checkpoint that was compared, in percent."""
    best = (selection.get("selected") or {}).get("checkpoint")
    for row in selection.get("checkpoints", ()):
        accuracies = [format_percent(rate["value"]) for rate in row["accuracy"].values()]
        mark = "selected" if row["checkpoint"] == best else ""
        yield [row["checkpoint"], *accuracies, format_percent(row["score"]), mark]
