"""Responses as tasks of Label Studio, and what was labelled there.

Label Studio sends a task whole and hides parts of it in the browser: what a pass discloses is not enforced there. So
this is the short form, and tasks at least name neither response nor model: an id that says nothing stands for both.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as Xml

from eclose.annotation.form_labels import judgment_of
from eclose.annotation.forms import NO, YES, Kind, passes_of, problems
from eclose.core.identity import hash_rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eclose.annotation.results.project_annotations import Material
    from eclose.core.instance import Instance
    from eclose.core.judgment import Judgment
    from eclose.core.response import Response
    from eclose.store.records.json_reader import JsonObject

TASKS, CONFIG = "label-studio-tasks.json", "label-studio-config.xml"
WARNING = (
    "Label Studio does not enforce what a pass discloses: every task reaches the browser whole, answer and reference "
    "included, and is only hidden there. Do not call labels made there staged."
)
_NO_ANSWER, _NO_REFERENCE = "(no answer was submitted)", "(there is no reference)"
NOT_ASKED = "cannot be asked"
"""The choice where there is no answer, or no reference: all tasks have one template, and the next part must open."""
_ALWAYS_ASKED = ("locally_sound", "aligned")
# What each part asks, and after which decision it comes into sight.
_PARTS = (
    ((("question", "Question"), ("evidence", "Evidence"), ("trace", "Reasoning")), ("locally_sound", "aligned"), None),
    ((("answer", "Submitted answer"),), ("closed",), "aligned"),
    ((("reference", "Reference answer"),), ("correct", "complete"), "closed"),
)
_ASKED = {
    "locally_sound": "Is every substantive step warranted by the evidence or by sound steps before it?",
    "aligned": "Does the reasoning pursue what the question asks?",
    "closed": "Does the reasoning, taken as true, establish the submitted answer?",
    "correct": "Does the submitted answer match the reference?",
    "complete": "Does the reasoning, taken as true, establish the reference?",
}


def opaque(response_id: str) -> str:
    """What stands for a response there."""
    return hash_rank("label studio", response_id)[:16]


def tasks(material: Material, wanted: Iterable[str]) -> Iterator[bytes]:
    """The bytes of the file of tasks, in an order that tells nothing."""
    found = sorted((material.responses[one] for one in wanted), key=lambda one: opaque(one.id))
    yield b"["
    for number, response in enumerate(found):
        task = {"data": _data(material.instances[response.instance_id], response)}
        # Nothing in it ends a script or begins a tag, wherever it may be pasted.
        text = json.dumps(task).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        yield (",\n" if number else "\n").encode() + text.encode()
    yield b"\n]\n"


def _data(instance: Instance, response: Response) -> dict[str, Any]:
    passages = enumerate(instance.evidence, start=1)
    return {
        "item": opaque(response.id),
        "question": instance.question,
        "evidence": "\n\n".join(f"[{number}] {one.title}\n{one.text}" for number, one in passages),
        "trace": "\n".join(response.trace.texts),
        "answer": _NO_ANSWER if response.answer is None else response.answer,
        "reference": _NO_REFERENCE if instance.reference_answer is None else instance.reference_answer,
        "answered": response.answer is not None,
        "referenced": instance.reference_answer is not None,
    }


def config() -> bytes:
    """The labeling config. It holds no text of ours but what is asked; texts of tasks are shown as plain text."""
    view = Xml.Element("View")
    for shown, fields, after in _PARTS:
        part = Xml.SubElement(view, "View")
        if after is not None:
            part.attrib.update({"visibleWhen": "choice-selected", "whenTagName": after})
        for name, head in shown:
            Xml.SubElement(part, "Header", value=head)
            # Said to be text: a value that looks like an address would be fetched otherwise.
            Xml.SubElement(part, "Text", name=name, value=f"${name}", valueType="text")
        for field in fields:
            Xml.SubElement(part, "Header", value=_ASKED[field], size="5")
            choices = Xml.SubElement(part, "Choices", name=field, toName=shown[-1][0], choice="single-radio")
            for choice in (YES, NO) if field in _ALWAYS_ASKED else (YES, NO, NOT_ASKED):
                Xml.SubElement(choices, "Choice", value=choice)
    Xml.indent(view)
    return Xml.tostring(view) + b"\n"


def is_task(row: JsonObject) -> bool:
    """Whether a record is a task of Label Studio."""
    return isinstance(row.get("data"), dict) and isinstance(row.get("annotations"), list)


def labelled(task: JsonObject, responses: Mapping[str, str]) -> Iterator[tuple[str, Judgment] | str | None]:
    """Every annotation of a task by person and judgment, a problem in its place, or None for one that was skipped.

    ``responses`` gives the ids of responses by what stands for them.
    """
    data = task["data"]
    response_id = responses.get(str(data.get("item")))
    if response_id is None:
        yield f"item {data.get('item')!r} is no response of the run; name with --run the folder it was exported to"
        return
    answered, referenced = data.get("answered") is not False, data.get("referenced") is not False
    for one in task["annotations"]:
        if not isinstance(one, dict) or one.get("was_cancelled"):
            yield None
        else:
            yield _judgment(response_id, one, answered=answered, referenced=referenced)


def _judgment(response_id: str, one: JsonObject, *, answered: bool, referenced: bool) -> tuple[str, Judgment] | str:
    chosen = _chosen(one.get("result"))
    if isinstance(chosen, str):
        return chosen
    filled, wrong = {}, []
    for asked in passes_of(Kind.SHORT, answered=answered, referenced=referenced):
        entry = {field.name: chosen.pop(field.name) for field in asked.fields if field.name in chosen}
        filled[asked.name] = (entry,)
        wrong += [str(problem).rstrip(".") for problem in problems(asked, (entry,))]
    wrong += [f"{name}: is not asked here" for name in chosen]
    person = _person(one.get("completed_by"))
    if wrong:
        return f"annotation of {person}: {'; '.join(wrong)}"
    return person, judgment_of(response_id, person, Kind.SHORT, filled)


def _chosen(result: object) -> dict[str, str] | str:
    """Choices by field."""
    chosen: dict[str, str] = {}
    for one in result if isinstance(result, list) else ():
        value = one.get("value") if isinstance(one, dict) else None
        choices = value.get("choices") if isinstance(value, dict) else None
        name = one.get("from_name") if isinstance(one, dict) else None
        if not isinstance(name, str) or not isinstance(choices, list) or len(choices) != 1 or name in chosen:
            return f"a result of {name!r} is not one choice; is this our template?"
        chosen[name] = str(choices[0])
    return {name: choice for name, choice in chosen.items() if choice != NOT_ASKED}


def _person(completed_by: object) -> str:
    """By number where there is one: an address is nobody's business."""
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("id", completed_by.get("email"))
    return f"LS{completed_by}"
