"""Derived facts of an instance."""

from eclose import Instance, Passage
from eclose.values.instance import dataset_of_benchmark

EVIDENCE = (Passage("0", "Title words", "one  two\nthree"), Passage("7", "", "four"))


def test_derived_facts():
    instance = Instance("i", "q?", EVIDENCE, "Paris", aliases=("City of Light",))
    assert instance.passage_ids == {"0", "7"}
    assert instance.accepted_answers == ("Paris", "City of Light")
    assert instance.context_words == 4


def test_without_a_reference_no_answer_is_accepted():
    assert Instance("i", "q?", EVIDENCE, aliases=("x",)).accepted_answers == ()


def test_dataset_of_a_family_without_a_benchmark_is_unknown():
    assert [dataset_of_benchmark(benchmark) for benchmark in ("musique", None, "")] == ["musique", "unknown", "unknown"]
