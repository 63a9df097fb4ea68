"""The page of a run: curves of every figure of the log, from files alone, at any moment."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

torch = pytest.importorskip("torch")

from tests.training.small import short_families, small_trainer

from eclose.errors import UserError
from eclose.training.log import TrainingMetricsWriter
from eclose.training.run_page import read_metrics, render_run_page, write_run_page

pytestmark = pytest.mark.torch


def log_lines(updates=4):
    for step in range(1, updates + 1):
        yield {
            "loss": 2.0 / step,
            "gen_loss": 1.0 / step,
            "margin_loss": 1.0 / step,
            **{f"margins/{edge}_{side}": 0.1 * step for edge in "STC" for side in "oc"},
            **{f"switch/{edge}": step / updates for edge in "STC"},
            "step": step,
        }
    yield {"eval_loss": 1.25, "eval_switch/S": 0.5, "step": updates}


def written(folder, lines, **files):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


class Page(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.text = [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def curves_of(html):
    """Points of every curve by the title of its chart, without those of legends."""
    charts = re.findall(r"<figcaption>(.*?)</figcaption>(.*?)</svg>", html, re.DOTALL)
    return {title: re.findall(r'points="(.*?)"', body) for title, body in charts}


def test_every_figure_of_the_log_has_a_curve(tmp_path):
    html = render_run_page(written(tmp_path, log_lines()))
    curves = curves_of(html)
    assert list(curves) == [
        *("Loss", "Generation loss", "Margin loss"),
        *(f"Margins of {edge}, nats per token" for edge in "STC"),
        *("Switch rates, training, %", "Switch rates, held out, %"),
    ]
    assert [len(points.split()) for points in curves["Loss"]] == [4, 1]
    heights = [float(point.split(",")[1]) for point in curves["Loss"][0].split()]
    assert heights == sorted(heights), "a falling loss falls on the page: y grows downwards"
    rates = [float(point.split(",")[1]) for point in curves["Switch rates, training, %"][0].split()]
    assert rates == pytest.approx([10 + 166 * (1 - share) for share in (0.25, 0.5, 0.75, 1)], abs=0.1)


def test_replies_have_curves_and_a_table(tmp_path):
    generated = {"accuracy": 0.5, "accuracy_gold": 0.75, "no_answer": 0.25, "n": 12}
    judged = {**generated, "TRR": 0.4, "TRR_n": 10, "TRR_undecided": 2}
    lines = [
        {"eval_loss": 1.0, "step": step, **{f"eval_generated/{name}": value for name, value in figures.items()}}
        for step, figures in enumerate((generated, judged), start=1)
    ]
    html = render_run_page(written(tmp_path, lines))
    curves = curves_of(html)
    assert len(curves["Correct replies by input, %"]) == 2
    assert [len(points.split()) for points in curves["Trace reliability and local-global gap, %"]] == [1]
    assert re.search(r"<td>1</td><td>50.0</td><td>75.0</td><td>–</td><td>–</td><td>25.0</td><td>–</td>", html)
    assert re.search(r"<td>40.0</td><td>–</td><td>12</td><td>10</td><td>2</td><td>–</td><td>–</td>", html)


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path):
    recipe = {"model": "<script>alert(1)</script>", "method": "sft", "seed": 3, "inputs": {"families": None}}
    page = Page(write_run_page(written(tmp_path, log_lines(), recipe=recipe)).read_text("utf-8"))
    assert not [tag for tag, _ in page.tags if tag in ("script", "img", "iframe")]
    assert [attrs["href"] for _, attrs in page.tags if "href" in attrs] == ["data:,"]
    assert not [attrs for _, attrs in page.tags if "src" in attrs or "style" in attrs]
    assert "<script>alert(1)</script>" in "".join(page.text)


def test_a_value_that_is_missing_interrupts_its_curve(tmp_path):
    lines = [{"loss": value, "step": step} for step, value in enumerate((1.0, 2.0, None, 3.0), start=1)]
    curves = curves_of(render_run_page(written(tmp_path, lines)))
    assert [len(points.split()) for points in curves["Loss"]] == [2, 1]


def test_long_logs_are_averaged_and_say_so(tmp_path):
    lines = [{"loss": float(step % 2), "step": step} for step in range(1, 1_201)]
    html = render_run_page(written(tmp_path, lines))
    heights = {point.split(",")[1] for point in curves_of(html)["Loss"][0].split()}
    assert len(heights) == 1, "pairs of 0 and 1 have the mean 0.5"
    assert "A point is the mean of up to 2 lines of the log." in html


def test_selection_and_sessions_are_part_of_the_page(tmp_path):
    rate = {"value": 0.25}
    rows = [{"checkpoint": f"checkpoint-{step}", "score": 0.25, "accuracy": {"gold": rate}} for step in (3, 6)]
    selection = {"selected": {"checkpoint": "checkpoint-6"}, "checkpoints": rows}
    sessions = [{"seconds": 1800, "device": "cpu"}, {"seconds": 1800, "device": "cpu"}]
    html = render_run_page(written(tmp_path, log_lines(), selection=selection, sessions=sessions))
    assert "1.00 hours in 2 sessions, cpu" in html
    assert re.search(r"checkpoint-6</td><td>25.0</td><td>25.0</td><td>selected", html)


def test_a_folder_without_a_log_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        write_run_page(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("no JSON\n{}\n")
    with pytest.raises(UserError, match=r"line 1: .*log of a training run"):
        write_run_page(tmp_path)


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    written(tmp_path, log_lines())
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"loss": 1.')
    assert read_metrics(tmp_path) == list(log_lines())
    render_run_page(tmp_path)


def test_the_log_is_on_disk_after_every_update(tmp_path):
    """What a process killed at this moment would leave."""
    from transformers import TrainerCallback

    present = []

    class Reader(TrainerCallback):
        def on_step_end(self, *_, **__):
            present.append([line["step"] for line in read_metrics(tmp_path)])

    writer = TrainingMetricsWriter(tmp_path)
    trainer = small_trainer(tmp_path, short_families(4), callbacks=[writer, Reader()], method="sft")
    trainer.train()
    assert present == [[], [1]]
    assert read_metrics(tmp_path) == json.loads(json.dumps(trainer.state.log_history))


def test_a_loss_that_is_not_finite_is_null(tmp_path):
    from types import SimpleNamespace

    state = SimpleNamespace(is_world_process_zero=True, log_history=[{"loss": float("nan"), "step": 1}])
    TrainingMetricsWriter(tmp_path).on_train_begin(None, state, None)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"loss": null, "step": 1}\n'


@pytest.mark.slow
def test_the_page_needs_no_torch(tmp_path):
    written(tmp_path, log_lines())
    code = "import sys; from eclose.training import run_page; run_page.write_run_page(sys.argv[1])"
    code += "; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
