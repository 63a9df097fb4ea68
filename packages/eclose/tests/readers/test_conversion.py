"""Questions whose evidence grows by what tools returned."""

from __future__ import annotations

from eclose.readers.conversion import add_tool_outputs, build_case
from eclose.reading.recorded import read_columns
from eclose.values.instance import Instance, Passage


def test_new_tool_output_becomes_a_passage_and_changes_the_id_of_the_question():
    instance = Instance("q1", "Who?", (Passage("0", "", "Ada  built it."),))
    log = [{"observation": "It stands."}, {"observation": "Ada built it."}, "Ada."]
    complete, response = build_case(instance, read_columns("Ada", log), log, "Ada")
    assert [(passage.id, passage.title, passage.text) for passage in complete.evidence[1:]] == [
        ("observation-1", "Observation 1 of the agent", "It stands.")
    ]
    assert complete.id.startswith("q1-")
    assert (response.instance_id, response.trace.texts) == (complete.id, ("Ada.",))


def test_tool_output_that_repeats_a_passage_leaves_the_question_as_it_is():
    instance = Instance("q1", "Who?", (Passage("0", "", "Ada built it."),))
    assert add_tool_outputs(instance, read_columns("Ada", [{"observation": "Ada\nbuilt it."}])) is instance


def test_tool_output_that_comes_twice_is_one_passage():
    reading = read_columns("Ada", [{"observation": "a"}, {"observation": "a "}])
    assert add_tool_outputs(Instance("", "Who?", ()), reading).evidence == (
        Passage("observation-1", "Observation 1 of the agent", "a"),
    )
