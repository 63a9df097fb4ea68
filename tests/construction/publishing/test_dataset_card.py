"""The card of families: front matter that a hub reads, tables that hold, and nothing told that is not known."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import pytest
import yaml
from markdown_it import MarkdownIt

from eclose.construction.publishing.dataset_card import (
    FIELDS,
    escape_markdown,
    name_size_category,
    render_dataset_card,
    write_dataset_card,
)
from eclose.construction.publishing.dataset_facts import (
    LICENCES,
    SYNTHETIC_DATASETS,
    AuditSummary,
    DatasetCardFacts,
    find_dataset_licence,
)
from eclose.core.family import Family
from eclose.world.make.confusable_shapes import CONFUSABLE_BENCHMARK_PROFILES
from eclose.world.make.shapes import BENCHMARK_PROFILES, SHORT_BENCHMARK_PROFILES

FACTS = DatasetCardFacts(
    counts={"HotpotQA": {"train": 9, "validation": 1}, "MuSiQue": {"train": 1_800, "validation": 200}},
    files={"train": "train.jsonl", "validation": "development.jsonl"},
    maker="models",
    funnel={
        "HotpotQA": {"Sources": 30, "Screened": 20, "Packed": 10},
        "MuSiQue": {"Sources": 5_000, "Screened": 2_500, "Packed": 2_000},
    },
    rejected={"screen": {"unique": 3, "warranted": 2_507}, "target": {"soundness": 1}},
    constructor="openai/gpt-5.6-sol",
    verifier="anthropic/claude-5",
    reverifier="openai/gpt-5.6-sol",
    attempts=1,
    guidelines={"screen_seed": "sha256:ab"},
    token_limit=8_192,
    settings={"edits": 2, "limit": None},
    inputs={"instances.jsonl": "sha256:cd"},
    licences={name: find_dataset_licence(name) for name in ("HotpotQA", "MuSiQue")},
    version="9.9.9",
)


def front(facts):
    return yaml.safe_load(render_dataset_card(facts).split("---\n")[1])


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


def table(facts, *head):
    (rows,) = (rows for rows in tables(render_dataset_card(facts)) if rows[0][: len(head)] == list(head))
    return rows[1:]


def prose(facts):
    return " ".join(render_dataset_card(facts).split())


def test_the_front_matter_is_what_a_hub_reads():
    assert front(FACTS) == {
        "pretty_name": "Counterfactual families",
        "license": ["cc-by-4.0", "cc-by-sa-4.0"],
        "language": ["en"],
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


def test_an_unknown_source_has_no_licence_and_no_language():
    facts = replace(
        FACTS,
        counts={**FACTS.counts, "ours": {"train": 1}},
        licences={**FACTS.licences, "ours": find_dataset_licence("ours")},
    )
    assert front(facts)["license"] == ["cc-by-4.0", "cc-by-sa-4.0", "unknown"]
    assert "language" not in front(facts)
    assert ["ours", "unknown: look it up where the sources come from"] in table(facts, "source", "licence")


def test_only_profiles_of_the_world_are_ours():
    assert find_dataset_licence("world-2wiki").id == "apache-2.0"
    assert find_dataset_licence("world-news").id == "unknown"
    assert set(LICENCES) == {"HotpotQA", "MuSiQue", "2WikiMultiHopQA"}
    profiles = (
        *BENCHMARK_PROFILES.values(),
        *SHORT_BENCHMARK_PROFILES.values(),
        *CONFUSABLE_BENCHMARK_PROFILES.values(),
    )
    assert {f"world-{profile.name}" for profile in profiles} == SYNTHETIC_DATASETS


def test_share_alike_is_said_where_it_binds():
    sentence = "must carry the same licence"
    assert sentence in render_dataset_card(FACTS)
    assert sentence not in render_dataset_card(replace(FACTS, counts={"MuSiQue": {"train": 1}}))


def test_counts_and_funnel_with_their_sums():
    assert table(FACTS, "dataset", "train") == [
        ["HotpotQA", "9", "1", "10"],
        ["MuSiQue", "1,800", "200", "2,000"],
        ["all", "1,809", "201", "2,010"],
    ]
    assert table(FACTS, "dataset", "Sources")[-1] == ["all", "5,030", "2,520", "2,010"]


def test_what_was_not_counted_is_a_dash_and_has_no_sum():
    funnel = {"HotpotQA": {"Sources": 30, "Packed": 10}, "MuSiQue": {"Sources": 50, "Screened": 0, "Packed": 2_000}}
    rows = table(replace(FACTS, funnel=funnel), "dataset", "Sources")
    assert rows == [["HotpotQA", "30", "10", "–"], ["MuSiQue", "50", "2,000", "0"], ["all", "80", "2,010", "–"]]


def test_files_that_do_not_hold_what_the_funnel_ends_with():
    assert "they were changed or truncated" not in prose(FACTS)
    cut = replace(FACTS, counts={"HotpotQA": {"train": 9}})
    assert "The last column says 2,010, and the files hold 9: they were changed or truncated" in prose(cut)


def test_refusals_by_part_the_most_frequent_first():
    rows = [["screen", "warranted", "2,507"], ["screen", "unique", "3"], ["target", "soundness", "1"]]
    assert table(FACTS, "part", "reason") == rows


def test_who_wrote_and_who_checked():
    assert table(FACTS, "", "model") == [
        ["wrote responses and edits", "openai/gpt-5.6-sol"],
        ["screened and verified", "anthropic/claude-5"],
        ["verified the finished families", "openai/gpt-5.6-sol"],
    ]
    assert "the constructor's own family (openai/gpt-5.6-sol)" in render_dataset_card(FACTS)
    alone = replace(FACTS, reverifier=None)
    assert table(alone, "", "model")[-1] == ["verified the finished families", "–"]
    assert "own family" not in render_dataset_card(alone)
    assert "Finished families were not checked a second time." in render_dataset_card(alone)


def test_trying_again_is_a_limit():
    assert "Every part was attempted once." in render_dataset_card(FACTS)
    assert "attempted up to 3 times" in render_dataset_card(replace(FACTS, attempts=3))
    assert "number of attempts at each part is not recorded" in render_dataset_card(replace(FACTS, attempts=None))


def test_how_tokens_were_counted():
    assert "longer than 8,192 tokens; estimated from characters" in prose(FACTS)
    assert "counted with the tokenizer of Qwen/Qwen3-8B." in prose(replace(FACTS, tokenizer="Qwen/Qwen3-8B"))
    assert "tokens" not in prose(replace(FACTS, token_limit=None)).partition("## Fields")[0]


def test_an_audit_is_told_of_only_where_there_was_one():
    assert "- Not audited" in render_dataset_card(FACTS)
    text = prose(replace(FACTS, audit=AuditSummary("audit-report.json", 300, 0)))
    assert "People audited a sample of 300 families; for the results see audit-report.json in the folder" in text
    assert "Not audited" not in text
    assert "of which 7 are not settled;" in prose(replace(FACTS, audit=AuditSummary("audit-report.json", 300, 7)))


def test_what_nobody_recorded_is_said_to_be_unknown():
    facts = DatasetCardFacts(counts={"ours": {"train": 2}})
    text = render_dataset_card(facts)
    for sentence in (
        "It is not recorded how these families were made.",
        "It is not recorded which models wrote and checked them.",
        "Rejections are not recorded.\n",
        "it is unknown what was checked",
        "- Not audited",
    ):
        assert sentence in text
    assert front(facts)["license"] == ["unknown"]
    assert "configs" not in front(facts)


def test_every_field_has_words():
    assert set(FIELDS) == {field.name for field in fields(Family)}


NASTY = "a|b](http://x.y) `c` *d*\n# e <img src=x> _f_ {{ g }} \u202e @h"


def test_names_from_outside_are_only_text():
    facts = replace(
        FACTS,
        counts={NASTY: {"train": 1}},
        constructor=NASTY,
        rejected={NASTY: {NASTY: 1}},
        inputs={NASTY: NASTY},
        settings={NASTY: NASTY},
        guidelines={NASTY: NASTY},
        licences={NASTY: find_dataset_licence(NASTY)},
    )
    escaped = NASTY.replace("\n", "\\n").replace("\u202e", "\\u202e")
    assert table(facts, "dataset", "train") == [[escaped, "1", "1"]]
    assert table(facts, "part", "reason") == [[escaped, escaped, "1"]]
    tokens = MarkdownIt("commonmark").enable("table").parse(render_dataset_card(facts).split("---\n", 2)[2])
    kinds = {child.type for token in tokens if token.type == "inline" for child in token.children}
    # Our own text has code spans; none of what came from outside is markup.
    assert kinds <= {"text", "text_special", "softbreak", "code_inline"}
    assert render_dataset_card(facts).count("\n## ") == render_dataset_card(FACTS).count("\n## ")
    assert front(facts)["pretty_name"] == "Counterfactual families"


def test_plain_words_stay_as_they_are():
    assert escape_markdown("Qwen/Qwen3-8B: 1.5 of 2 (a, b)") == "Qwen/Qwen3-8B: 1.5 of 2 (a, b)"


def test_sections_stand_apart():
    """A heading or a table that follows a paragraph without a blank line would be read as part of it."""
    for facts in (FACTS, replace(FACTS, maker="world"), replace(FACTS, maker=None), replace(FACTS, tokenizer="t")):
        lines = render_dataset_card(facts).split("---\n", 2)[2].splitlines()
        for before, line in pairwise(lines):
            if line.startswith("## ") or (line.startswith("|") and not before.startswith("|")):
                assert before == "", line
        assert "\n\n\n" not in render_dataset_card(facts)


def test_training_is_told_with_the_files_that_are_there():
    assert "eclose train train.jsonl --development development.jsonl --out" in render_dataset_card(FACTS)
    whole = replace(FACTS, files={"train": "data/train-*.parquet"})
    assert 'load_dataset("path/to/this/folder")' in render_dataset_card(whole)
    assert "eclose train path/to/this/folder --out" in render_dataset_card(whole)
    assert "train.jsonl" not in render_dataset_card(whole)


def test_it_is_written_under_the_name_a_hub_shows(tmp_path):
    write_dataset_card(tmp_path, FACTS)
    assert (tmp_path / "README.md").read_text() == render_dataset_card(FACTS)
