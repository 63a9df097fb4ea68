"""The table of appendix A.1, with values worked out by hand."""

from __future__ import annotations

import pytest

from eclose.files.jsonl import unwrap_records
from eclose.readers.load import scan_instances
from eclose.readers.sampling import Quartiles, characterize_benchmarks, classify_answer_type
from eclose.values.instance import Instance, Passage


def make(id_, passages, support, words=1, **others):
    evidence = tuple(Passage(str(n), "", " ".join(["word"] * words)) for n in range(passages))
    marked = None if support is None else tuple(str(n) for n in range(support))
    return Instance(id_, "Q?", evidence, support_ids=marked, benchmark="B", **others)


def test_medians_and_quartiles_by_hand():
    # supporting 1, 2, 2, 4: sorted positions 0..3, quartiles at 0.75, 1.5, 2.25 -> 1.75, 2, 2.5
    # distractors 3, 2, 8, 6 -> 2, 3, 6, 8: quartiles 2.75, 4.5, 6.5
    # density 25, 50, 20, 40 -> 20, 25, 40, 50: quartiles 23.75, 32.5, 42.5
    # words per passage 1, 1, 2, 3 -> totals 4, 4, 20, 30: quartiles 4, 12, 22.5
    (row,) = characterize_benchmarks(
        [make("a", 4, 1), make("b", 4, 2), make("c", 10, 2, words=2), make("d", 10, 4, words=3)]
    )
    assert row.supporting == Quartiles(2, 1.75, 2.5)
    assert row.distractors == Quartiles(4.5, 2.75, 6.5)
    assert row.support_density == Quartiles(32.5, 23.75, 42.5)
    assert row.context_words == Quartiles(12, 4, 22.5)


def test_unknown_support_is_undefined_and_does_not_count_as_none():
    (row,) = characterize_benchmarks([make("a", 4, None), make("b", 4, None)])
    assert (row.n, row.n_support_known) == (2, 0)
    assert row.supporting is row.distractors is row.support_density is None
    (row,) = characterize_benchmarks([make("a", 4, None), make("b", 4, 2), make("c", 4, 0)])
    assert (row.n, row.n_support_known, row.supporting.median) == (3, 2, 1)


def test_composition():
    (row,) = characterize_benchmarks(
        [
            make("a", 1, 1, kind="bridge", hops=2, reference_answer="Yes."),
            make("b", 1, 1, kind="bridge", hops=4, reference_answer="No way"),
            make("c", 1, 1),
        ]
    )
    assert row.kinds == {"bridge": 2, "unknown": 1}
    assert row.hops == {"2": 1, "4": 1, "unknown": 1}
    assert row.answers == {"none": 1, "other": 1, "yes/no": 1}


@pytest.mark.parametrize(
    ("answer", "kind"), [("yes", "yes/no"), ("No", "yes/no"), ("Yes Minister", "other"), ("", "other"), (None, "none")]
)
def test_answer_types(answer, kind):
    assert classify_answer_type(answer) == kind


def test_one_row_per_benchmark_and_none_last():
    rows = characterize_benchmarks(
        [Instance(n, "Q?", (Passage("0", "", "x"),), benchmark=b) for n, b in zip("abc", (None, "Z", "A"), strict=True)]
    )
    assert [row.benchmark for row in rows] == ["A", "Z", None]


def test_real_hotpot_has_two_of_ten_as_in_the_paper(shared_data):
    (row,) = characterize_benchmarks(
        unwrap_records(scan_instances(shared_data / "qa" / "hotpotqa_validation_100_hf.jsonl.gz"))
    )
    assert row.supporting == Quartiles(2, 2, 2)
    assert row.distractors == Quartiles(8, 8, 8)
    assert row.support_density == Quartiles(20, 20, 20)
