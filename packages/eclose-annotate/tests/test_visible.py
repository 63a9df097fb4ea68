"""Each pass shows one thing more than the one before, and nothing of what comes later."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict

import pytest
from sqlalchemy import text

from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, ResponseSource, Trace
from eclose_annotate import visible
from eclose_annotate.choices import ScreeningMode
from eclose_annotate.material_store import add_questions, add_responses
from eclose_annotate.people.people import AnnotatorPool, PersonRole
from eclose_annotate.project import AnnotationProjectSettings, create_annotation_project
from eclose_annotate.tasks import assign_questions_to_screeners, assign_responses_to_annotators
from tests.projects import join

INSTANCE = Instance(
    "id-canary", "QUESTION?", (Passage("pid-canary", "TITLE", "EVIDENCE."),), "REFERENCE", ("ALIAS",),
    benchmark="benchmark-canary", support_ids=("pid-canary",), kind="kind-canary",
)  # fmt: skip
SOURCE = ResponseSource("model-canary", "method-canary")
RESPONSE = Response("response-canary", "id-canary", Trace.of("STEP ONE.", "STEP TWO."), "ANSWER", SOURCE)
VISIBLE = {
    "A": {"QUESTION?", "TITLE", "EVIDENCE.", "STEP ONE."},
    "B": {"QUESTION?", "TITLE", "EVIDENCE.", "STEP ONE."},
    "C": {"QUESTION?", "TITLE", "EVIDENCE.", "STEP ONE.", "ANSWER"},
    "D": {"QUESTION?", "TITLE", "EVIDENCE.", "STEP ONE.", "ANSWER", "REFERENCE", "ALIAS"},
    "S": {"QUESTION?", "TITLE", "EVIDENCE.", "REFERENCE", "ALIAS"},
}
WORDS = {word for words in VISIBLE.values() for word in words}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A function that returns what a pass shows."""
    settings = AnnotationProjectSettings("study", screening=ScreeningMode.ADVISORY)
    with closing(create_annotation_project(tmp_path_factory.mktemp("shown") / "study", settings)) as project:
        with project.writing() as connection:
            add_questions(connection, [INSTANCE])
            add_responses(connection, [RESPONSE])
            ann = join(connection, "ann", PersonRole.ANNOTATOR)
            sue = join(connection, "sue", PersonRole.SCREENER, AnnotatorPool.QUESTIONS)
            assign_responses_to_annotators(connection, [ann], settings, per_response=1)
            assign_questions_to_screeners(connection, [sue], settings)

        def read_pass(name, **settings):
            with project.reading() as connection:
                kind = "screening" if name == "S" else "response"
                task = connection.execute(text("SELECT id FROM annotate_tasks WHERE kind = :kind"), {"kind": kind})
                return visible.read_visible_material(connection, task.scalar_one(), name, **settings)

        yield read_pass


@pytest.mark.parametrize("name", VISIBLE)
def test_a_pass_holds_what_it_may_show_and_nothing_else(read, name):
    content = str(asdict(read(name)))
    assert {word for word in WORDS if word in content} == VISIBLE[name]
    assert "canary" not in content


@pytest.mark.parametrize("name", "BCD")
def test_evidence_may_be_hidden_after_the_first_pass(read, name):
    assert (read(name, hide_evidence=True).evidence, len(read(name).evidence)) == ((), 1)


def test_a_trace_as_a_whole_has_no_numbers(read):
    assert read("B").trace == "STEP ONE.\nSTEP TWO."
