"""Export of responses as Label Studio tasks, and import of the labels made there.

Label Studio sends complete tasks and hides parts in the browser, so staged disclosure is not enforced. Tasks therefore
use the short form, and contain an opaque id instead of response id and model.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as Xml

from eclose.annotation.form_labels import judgment_from_form
from eclose.annotation.forms import NO, YES, AnnotationTaskKind, applicable_annotation_passes, find_form_problems
from eclose.core.identity import hash_sort_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eclose.annotation.material_store import AnnotationMaterial
    from eclose.core.instance import Instance
    from eclose.core.judgment import Judgment
    from eclose.core.response import Response
    from eclose.store.records.json_reader import JsonObject

TASKS, CONFIG = "label-studio-tasks.json", "label-studio-config.xml"
STAGING_WARNING = (
    "Label Studio does not enforce staged disclosure: the browser receives every task with answer and reference, and "
    "only hides them. Do not report labels made there as staged."
)
_NO_ANSWER, _NO_REFERENCE = "(no answer was submitted)", "(there is no reference)"
NOT_ASKED = "cannot be asked"
"""Choice for missing answers or references: all tasks share a template, and a choice opens the next part."""
_ALWAYS_ASKED = ("locally_sound", "aligned")
# Texts and fields of each part, and the decision after which it becomes visible.
_PARTS = (
    ((("question", "Question"), ("evidence", "Evidence"), ("trace", "Reasoning")), ("locally_sound", "aligned"), None),
    ((("answer", "Submitted answer"),), ("closed",), "aligned"),
    ((("reference", "Reference answer"),), ("correct", "complete"), "closed"),
)
_QUESTIONS = {
    "locally_sound": "Is every substantive step warranted by the evidence or by sound steps before it?",
    "aligned": "Does the reasoning pursue what the question asks?",
    "closed": "Does the reasoning, taken as true, establish the submitted answer?",
    "correct": "Does the submitted answer match the reference?",
    "complete": "Does the reasoning, taken as true, establish the reference?",
}


def opaque_response_id(response_id: str) -> str:
    """Return the id that stands for a response in Label Studio."""
    return hash_sort_key("label studio", response_id)[:16]


def encode_label_studio_tasks(material: AnnotationMaterial, response_ids: Iterable[str]) -> Iterator[bytes]:
    """Yield the JSON file of tasks in parts, ordered by their opaque ids."""
    responses = (material.responses[response_id] for response_id in response_ids)
    # By hash: in the order of the run, the responses of one model would follow each other.
    ordered = sorted(responses, key=lambda response: opaque_response_id(response.id))
    yield b"["
    for number, response in enumerate(ordered):
        task = {"data": _data(material.instances[response.instance_id], response)}
        # Escaped, so that the JSON is safe inside an HTML page or script.
        text = json.dumps(task).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        yield (",\n" if number else "\n").encode() + text.encode()
    yield b"\n]\n"


def _data(instance: Instance, response: Response) -> dict[str, Any]:
    passages = enumerate(instance.evidence, start=1)
    return {
        "item": opaque_response_id(response.id),
        "question": instance.question,
        "evidence": "\n\n".join(f"[{number}] {passage.title}\n{passage.text}" for number, passage in passages),
        "trace": "\n".join(response.trace.texts),
        "answer": _NO_ANSWER if response.answer is None else response.answer,
        "reference": _NO_REFERENCE if instance.reference_answer is None else instance.reference_answer,
        "answered": response.answer is not None,
        "referenced": instance.reference_answer is not None,
    }


def build_label_studio_config() -> bytes:
    """Return the labeling config as XML; it shows texts of tasks as plain text."""
    view = Xml.Element("View")
    for texts, fields, after in _PARTS:
        part = Xml.SubElement(view, "View")
        if after is not None:
            part.attrib.update({"visibleWhen": "choice-selected", "whenTagName": after})
        for name, head in texts:
            Xml.SubElement(part, "Header", value=head)
            # Without valueType Label Studio fetches a text that looks like a URL.
            Xml.SubElement(part, "Text", name=name, value=f"${name}", valueType="text")
        for field in fields:
            Xml.SubElement(part, "Header", value=_QUESTIONS[field], size="5")
            choices = Xml.SubElement(part, "Choices", name=field, toName=texts[-1][0], choice="single-radio")
            for choice in (YES, NO) if field in _ALWAYS_ASKED else (YES, NO, NOT_ASKED):
                Xml.SubElement(choices, "Choice", value=choice)
    Xml.indent(view)
    return Xml.tostring(view) + b"\n"


def is_label_studio_task(row: JsonObject) -> bool:
    """Return whether a record is a task of a Label Studio export."""
    return isinstance(row.get("data"), dict) and isinstance(row.get("annotations"), list)


def decode_label_studio_task(
    task: JsonObject, responses: Mapping[str, str]
) -> Iterator[tuple[str, Judgment] | str | None]:
    """Yield for every annotation of a task its person and judgment, a problem as text, or None where it was skipped.

    ``responses`` maps opaque ids to response ids.
    """
    data = task["data"]
    response_id = responses.get(str(data.get("item")))
    # Without the run an opaque id cannot be resolved.
    if response_id is None:
        yield f"item {data.get('item')!r} is not in the run; name the folder of its export with --run"
        return
    # Missing in exports of other tools: then all fields are expected.
    answered, referenced = data.get("answered") is not False, data.get("referenced") is not False
    for annotation in task["annotations"]:
        if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
            yield None
        else:
            yield _judgment(response_id, annotation, answered=answered, referenced=referenced)


def _judgment(
    response_id: str, annotation: JsonObject, *, answered: bool, referenced: bool
) -> tuple[str, Judgment] | str:
    choices = _read_choices(annotation.get("result"))
    if isinstance(choices, str):
        return choices
    entries, problems = {}, []
    for form in applicable_annotation_passes(AnnotationTaskKind.SHORT, answered=answered, referenced=referenced):
        entry = {field.name: choices.pop(field.name) for field in form.fields if field.name in choices}
        entries[form.name] = (entry,)
        problems += [str(problem).rstrip(".") for problem in find_form_problems(form, (entry,))]
    # What no form took from the choices belongs to fields that this response does not have.
    problems += [f"{name}: is not asked here" for name in choices]
    person = _person(annotation.get("completed_by"))
    if problems:
        return f"annotation of {person}: {'; '.join(problems)}"
    return person, judgment_from_form(response_id, person, AnnotationTaskKind.SHORT, entries)


def _read_choices(result: object) -> dict[str, str] | str:
    """Return the choices by field, or a problem."""
    chosen: dict[str, str] = {}
    for item in result if isinstance(result, list) else ():
        value = item.get("value") if isinstance(item, dict) else None
        choices = value.get("choices") if isinstance(value, dict) else None
        name = item.get("from_name") if isinstance(item, dict) else None
        if not isinstance(name, str) or not isinstance(choices, list) or len(choices) != 1 or name in chosen:
            return f"the result of {name!r} is not a single choice; was it made with the template {CONFIG}?"
        chosen[name] = str(choices[0])
    return {name: choice for name, choice in chosen.items() if choice != NOT_ASKED}


def _person(completed_by: object) -> str:
    """Return a name from the user's number if possible: e-mail addresses should not spread."""
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("id", completed_by.get("email"))
    return f"LS{completed_by}"
