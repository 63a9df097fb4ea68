"""Tasks for Label Studio name nothing they should not and run nothing; what was chosen there comes back."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree as Xml

import pytest
from tests.annotation.results.test_import_labels import RUN

from eclose.annotation.forms import PASSES_BY_TASK_KIND, AnnotationTaskKind
from eclose.annotation.material_store import AnnotationMaterial
from eclose.annotation.results.import_labels import read_label_files
from eclose.annotation.results.label_studio import (
    NOT_ASKED,
    build_label_studio_config,
    encode_label_studio_tasks,
    opaque_response_id,
)
from eclose.core.judgment import NO_ANSWER_REASON, NO_REFERENCE_REASON, Criterion
from eclose.errors import UserError

YES = dict.fromkeys(("locally_sound", "aligned", "closed", "correct", "complete"), "yes")


def made(material=RUN):
    return json.loads(b"".join(encode_label_studio_tasks(material, material.responses)))


def chosen(choices, person=3, **more):
    result = [{"from_name": name, "to_name": "trace", "type": "choices", "value": {"choices": [one]}}
              for name, one in choices.items()]  # fmt: skip
    return {"completed_by": person, "result": result, "was_cancelled": False, **more}


def back(tmp_path, *annotations, material=RUN, run=RUN):
    exported = [{**task, "id": 1, "annotations": list(annotations)} for task in made(material)]
    path = tmp_path / "export.json"
    path.write_text(json.dumps(exported))
    return read_label_files([path], run=run)


def without(**changes):
    response = replace(RUN.responses["r1"], **{name: None for name in changes if name == "answer"})
    instance = replace(RUN.instances["q1"], **{name: None for name in changes if name == "reference_answer"})
    return AnnotationMaterial({"q1": instance}, {"r1": response})


def test_a_task_shows_everything_and_names_neither_response_nor_model():
    (task,) = made()
    data = task["data"]
    assert (data["question"], data["trace"], data["answer"], data["reference"]) == ("Who?", "a", "Ann", "Ann")
    assert data["item"] == opaque_response_id("r1")
    assert "r1" not in data.values()
    assert not {"response_id", "question_id", "model", "benchmark"} & data.keys()


def test_nothing_in_the_file_ends_a_script():
    instance = replace(RUN.instances["q1"], question="</script><img src=x onerror=alert(1)>&\u2028")
    material = AnnotationMaterial({"q1": instance}, RUN.responses)
    text = b"".join(encode_label_studio_tasks(material, material.responses)).decode("ascii")
    assert not set("<>&") & set(text)
    assert json.loads(text)[0]["data"]["question"] == instance.question


def test_the_order_of_tasks_tells_nothing():
    responses = {f"r{n}": replace(RUN.responses["r1"], id=f"r{n}") for n in range(9)}
    items = [task["data"]["item"] for task in made(AnnotationMaterial(RUN.instances, responses))]
    assert items == sorted(items)


def test_the_template_asks_what_the_short_form_asks_and_shows_plain_text():
    view = Xml.fromstring(build_label_studio_config())
    asked = [one.get("name") for one in view.iter("Choices")]
    assert asked == [field.name for one in PASSES_BY_TASK_KIND[AnnotationTaskKind.SHORT] for field in one.fields]
    texts = {one.get("name"): one for one in view.iter("Text")}
    assert {one.get("valueType") for one in texts.values()} == {"text"}
    assert {one.get("value") for one in texts.values()} == {f"${name}" for name in texts}
    assert {one.get("value").removeprefix("$") for one in texts.values()} <= made()[0]["data"].keys()
    assert all(one.get("toName") in texts for one in view.iter("Choices"))
    assert not list(view.iter("HyperText"))


def test_what_was_chosen_comes_back(tmp_path):
    found = back(tmp_path, chosen(YES), chosen({**YES, "closed": "no"}, {"id": 9, "email": "a@b.c"}))
    (one,) = found.annotations.responses
    assert [each.annotator for each in one.annotations] == ["LS3", "LS9"]
    assert [judgment.closed for judgment in one.first_judgments] == [True, False]
    assert (one.response_id, one.question_id, one.kind, one.required) == ("r1", "q1", AnnotationTaskKind.SHORT, 2)


def test_a_person_labels_a_task_once(tmp_path):
    with pytest.raises(UserError, match=r"'r1' was labelled by LS3 before .*; keep one of the rows"):
        back(tmp_path, chosen(YES), chosen({**YES, "closed": "no"}))


def test_what_was_passed_over_is_counted(tmp_path):
    found = back(tmp_path, chosen({}, was_cancelled=True), chosen(YES, {"email": "a@b.c"}))
    assert found.skipped == 1
    assert found.annotations.responses[0].annotations[0].annotator == "LSa@b.c"


@pytest.mark.parametrize(
    "changes,choices,unjudged",
    [
        (
            {"answer": None},
            ("locally_sound", "aligned", "complete"),
            {Criterion.CLOSURE: NO_ANSWER_REASON, Criterion.CORRECTNESS: NO_ANSWER_REASON},
        ),
        (
            {"reference_answer": None},
            ("locally_sound", "aligned", "closed"),
            {Criterion.COMPLETENESS: NO_REFERENCE_REASON, Criterion.CORRECTNESS: NO_REFERENCE_REASON},
        ),
    ],
)
def test_what_cannot_be_asked_has_no_label_and_a_reason(tmp_path, changes, choices, unjudged):
    material = without(**changes)
    for others in ({}, dict.fromkeys(YES, NOT_ASKED)):
        found = back(tmp_path, chosen(others | dict.fromkeys(choices, "yes")), material=material, run=material)
        assert found.annotations.responses[0].first_judgments[0].unjudged == unjudged


@pytest.mark.parametrize(
    "annotation,problem",
    [
        (
            chosen({name: one for name, one in YES.items() if name != "closed"}),
            "annotation of LS3: closed: is not decided",
        ),
        (chosen({**YES, "closed": NOT_ASKED}), "closed: is not decided"),
        (chosen({**YES, "aligned": "maybe"}), "aligned: has no choice 'maybe'"),
        (chosen({**YES, "other": "yes"}), "other: is not asked here"),
        ({"result": [{"from_name": "aligned", "value": {"choices": ["yes", "no"]}}]}, "is not a single choice"),
        ({"result": [{"from_name": "trace", "value": {"text": "x"}}]}, "was it made with the template"),
        ({"result": ["x"]}, "is not a single choice"),
        ({"result": None, "completed_by": 1}, "locally_sound: is not decided"),
    ],
)
def test_what_is_not_our_form_is_told_with_its_record(tmp_path, annotation, problem):
    with pytest.raises(UserError, match=r"export\.json record 1: ") as refused:
        back(tmp_path, annotation)
    assert problem in str(refused.value)


def test_items_need_the_run_they_are_of(tmp_path):
    with pytest.raises(UserError, match="name the folder of its export with --run"):
        back(tmp_path, chosen(YES), run=None)
