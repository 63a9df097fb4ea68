"""The card of families: front matter that a hub reads, numbers that were counted, and licences that are known."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
import yaml
from markdown_it import MarkdownIt

from eclose.errors import RecordError
from eclose.files.jsonl import write_records
from eclose_train.families.publish import (
    LICENCES,
    DatasetCardState,
    escape_markdown,
    find_dataset_card_state,
    name_size_category,
    render_dataset_card,
    write_run_card,
)
from eclose_world.make.confusable_shapes import CONFUSABLE_BENCHMARK_PROFILES
from eclose_world.make.families import make_world_families
from eclose_world.make.shapes import BENCHMARK_PROFILES, SHORT_BENCHMARK_PROFILES

COUNTS = {"train": {"HotpotQA": 9, "MuSiQue": 1_800}, "validation": {"HotpotQA": 1, "MuSiQue": 200}}
FILES = {"train": "train.jsonl", "validation": "development.jsonl"}


def front(text):
    return yaml.safe_load(text.split("---\n")[1])


def tables(text):
    """Every table as rows of plain texts, as a reader of Markdown sees them."""
    tables_found, rows = [], None
    for token in MarkdownIt("commonmark").enable("table").parse(text.split("---\n", 2)[2]):
        if token.type == "table_open":
            tables_found.append([])
        elif token.type == "tr_open":
            rows = []
            tables_found[-1].append(rows)
        elif token.type == "inline" and rows is not None:
            rows.append("".join(child.content for child in token.children))
        elif token.type == "table_close":
            rows = None
    return tables_found


def test_front_matter_is_what_a_hub_reads():
    assert front(render_dataset_card(COUNTS, FILES)) == {
        "pretty_name": "Counterfactual families",
        "license": ["cc-by-4.0", "cc-by-sa-4.0"],
        "task_categories": ["question-answering", "text-generation"],
        "tags": ["eclose", "multi-hop", "counterfactual", "reasoning"],
        "size_categories": ["1K<n<10K"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [
                    {"split": "train", "path": "train.jsonl"},
                    {"split": "validation", "path": "development.jsonl"},
                ],
            }
        ],
    }


@pytest.mark.parametrize(
    ("families", "named"), [(0, "n<1K"), (999, "n<1K"), (1_000, "1K<n<10K"), (10**6, "1M<n<10M"), (10**7, "n>10M")]
)
def test_sizes(families, named):
    assert name_size_category(families) == named


def test_families_are_counted_by_dataset_and_split_with_sums():
    counts, _ = tables(render_dataset_card(COUNTS, FILES))
    assert counts == [
        ["dataset", "train", "validation", "all"],
        ["HotpotQA", "9", "1", "10"],
        ["MuSiQue", "1,800", "200", "2,000"],
        ["all", "1,809", "201", "2,010"],
    ]


def test_unknown_source_has_no_licence():
    text = render_dataset_card({"train": {"HotpotQA": 9, "ours": 1}}, {})
    assert front(text)["license"] == ["cc-by-sa-4.0", "unknown"]
    assert tables(text)[1] == [["source", "licence"], ["HotpotQA", "cc-by-sa-4.0"], ["ours", "unknown"]]
    assert "configs" not in front(text)
    assert front(render_dataset_card({}, {}))["license"] == ["unknown"]


def test_licences_are_of_the_benchmarks_and_of_the_profiles_of_the_world():
    profiles = (
        *BENCHMARK_PROFILES.values(),
        *SHORT_BENCHMARK_PROFILES.values(),
        *CONFUSABLE_BENCHMARK_PROFILES.values(),
    )
    world = {f"world-{profile.name}" for profile in profiles}
    assert set(LICENCES) == {"HotpotQA", "MuSiQue", "2WikiMultiHopQA"} | world
    assert {LICENCES[name] for name in world} == {"apache-2.0"}


NASTY = "a|b](http://x.y) `c` *d*\n# e <img src=x> _f_ {{ g }} \u202e @h"


def test_names_from_outside_are_only_text():
    text = render_dataset_card({"train": {NASTY: 1}}, {"train": NASTY})
    escaped = NASTY.replace("\n", "\\n").replace("\u202e", "\\u202e")
    assert tables(text)[0][1] == [escaped, "1", "1"]
    assert tables(text)[1][1] == [escaped, "unknown"]
    assert front(text)["configs"][0]["data_files"] == [{"split": "train", "path": NASTY}]
    tokens = MarkdownIt("commonmark").enable("table").parse(text.split("---\n", 2)[2])
    kinds = {child.type for token in tokens if token.type == "inline" for child in token.children}
    # Our own text has a code span; none of what came from outside is markup.
    assert kinds <= {"text", "text_special", "softbreak", "code_inline"}
    assert text.count("\n## ") == render_dataset_card(COUNTS, FILES).count("\n## ")


def test_selection_by_verifiers_is_named_as_a_limit():
    assert "favours what verifiers accept" in " ".join(render_dataset_card(COUNTS, FILES).split())


def test_plain_words_stay_as_they_are():
    assert escape_markdown("Qwen/Qwen3-8B: 1.5 of 2 (a, b)") == "Qwen/Qwen3-8B: 1.5 of 2 (a, b)"


def test_sections_stand_apart():
    """A heading or a table that follows a paragraph without a blank line would be read as part of it."""
    lines = render_dataset_card(COUNTS, FILES).split("---\n", 2)[2].splitlines()
    for before, line in pairwise(lines):
        if line.startswith("## ") or (line.startswith("|") and not before.startswith("|")):
            assert before == "", line


@pytest.fixture
def run(tmp_path):
    families = list(islice(make_world_families("short-easy", 7), 3))
    write_records(tmp_path / "train.jsonl", families[:2])
    write_records(tmp_path / "development.jsonl", families[2:])
    return tmp_path


def test_card_of_a_run_counts_its_splits(run):
    write_run_card(run)
    counts = {"train": {"world-short-easy": 2}, "validation": {"world-short-easy": 1}}
    assert (run / "README.md").read_text() == render_dataset_card(counts, FILES)
    assert find_dataset_card_state(run) is DatasetCardState.OURS
    with (run / "README.md").open("a") as file:
        file.write("mine")
    assert find_dataset_card_state(run) is DatasetCardState.EDITED


def test_split_without_families_is_no_file_to_load(run):
    (run / "development.jsonl").write_text("")
    write_run_card(run)
    text = (run / "README.md").read_text()
    assert front(text)["configs"][0]["data_files"] == [{"split": "train", "path": "train.jsonl"}]
    assert tables(text)[0] == [["dataset", "train", "validation", "all"], ["world-short-easy", "2", "0", "2"]]


def test_line_that_cannot_be_read_is_not_passed_over(run):
    with (run / "train.jsonl").open("a") as file:
        file.write("{\n")
    with pytest.raises(RecordError, match="line 3"):
        write_run_card(run)
