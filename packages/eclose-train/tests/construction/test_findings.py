"""What was said of a family: every judgement with its reason, held against what is wanted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eclose.values.family import FamilyFinding
from eclose_train.construction.findings import BAD, GOOD, JUDGEMENT_WORDS, PLAIN, ROLE_WORDS, build_finding_displays
from eclose_train.construction.questions import ACCEPTANCE_CONDITIONS, ROLE_REPLY_SCHEMAS, ConstructionRole
from tests.construction.family_making import FINDINGS, SOUND, finding, full_family
from tests.construction.test_check_replies import JUDGING

EDITS = ("Evidence-CF 1", "Evidence-CF 2")


def shown(*findings, edits=EDITS):
    return build_finding_displays(replace(full_family(), findings=findings), edits)


def leaves(value):
    match value:
        case dict():
            return sum(leaves(entry) for key, entry in value.items() if key not in {"reason", "id"})
        case list() if value and isinstance(value[0], dict):
            return sum(map(leaves, value))
        case _:
            return 1


@pytest.mark.parametrize("role", JUDGING)
def test_every_judgement_is_shown_with_its_reason_and_its_words(role):
    (display,) = shown(finding(role))
    assert display.judgements == leaves(finding(role).said)
    assert {part.reason for part in display.parts} == {"because"}
    judgements = [entry for part in display.parts for entry in part.judgements]
    assert all(entry.meaning for entry in judgements)
    # All that is wanted, and every step that is sound.
    assert sum(entry.tone == GOOD for entry in judgements) == len(ACCEPTANCE_CONDITIONS[role]) + SOUND.get(role, 0)
    assert not any(entry.tone == BAD for entry in judgements)


def test_words_are_for_judgements_that_are_asked_for():
    assert set(ROLE_WORDS) == {role for role in ConstructionRole if not role.constructs}
    for role, name in JUDGEMENT_WORDS:
        part = ROLE_REPLY_SCHEMAS[ConstructionRole(role)]
        for key in name.split("."):
            part = part["properties"][key]
            part = part.get("items", part) if "properties" in part.get("items", {}) else part


def test_what_speaks_against_it_is_marked_where_it_was_said():
    (display,) = shown(finding(ConstructionRole.SCREEN_EVIDENCE, original_after=True, reason="still so"))
    tones = {entry.name: (entry.answer, entry.tone) for entry in display.parts[0].judgements}
    assert tones["original_after"] == ("yes", BAD)
    assert tones["edited_before"] == ("no", GOOD)
    assert (display.objections, display.parts[0].reason) == (("original_after",), "still so")


def test_an_unsound_step_is_marked():
    steps = [{"id": number, "reason": f"why {number}", "sound": number != 2} for number in (1, 2)]
    (display,) = shown(finding(ConstructionRole.VERIFY_QUESTION, soundness={"steps": steps}))
    parts = {part.name: part for part in display.parts}
    assert [parts[f"soundness, step {number}"].judgements[0].tone for number in (1, 2)] == [GOOD, BAD]
    assert parts["soundness, step 2"].reason == "why 2"
    assert display.objections == ("soundness",)


def test_findings_go_with_the_edits_they_name():
    display = shown(*FINDINGS)
    assert [entry.subject for entry in display] == ["", "", EDITS[0], EDITS[0], EDITS[1], EDITS[1], "", "", ""]
    assert [entry.again for entry in display] == [False] * 8 + [True]
    # Families made elsewhere may name none.
    display = shown(*(replace(entry, edit=None) for entry in FINDINGS))
    assert [entry.subject for entry in display][2:6] == ["1 of 2", "1 of 2", "2 of 2", "2 of 2"]


def test_a_reply_of_another_shape_is_shown_all_the_same():
    reply = {
        "fine": True, "score": 0.5, "list": ["a", 1], "empty": {}, "nothing": None, "reason": ["one", "two"],
        "part": {"deep": {"deeper": {"x": "y"}}}, "mixed": [1, {"a": 2}], "entries": [{"a": True}, {"a": False}],
    }  # fmt: skip
    (display,) = shown(FamilyFinding("my_check", "somebody", reply, ("fine",)))
    assert (display.role, display.question, display.subject) == ("my_check", "my_check", "")
    first = {entry.name: (entry.answer, entry.tone) for entry in display.parts[0].judgements}
    assert first == {
        "fine": ("yes", BAD), "score": ("0.5", PLAIN), "list": ("a, 1", PLAIN), "empty": ("none", PLAIN),
        "nothing": ("none", PLAIN), "mixed": ('[1, {"a": 2}]', PLAIN),
    }  # fmt: skip
    assert display.parts[0].reason == "one, two"
    names = {part.name: [entry.answer for entry in part.judgements] for part in display.parts[1:]}
    assert names == {"part.deep.deeper": ["y"], "entries 1": ["yes"], "entries 2": ["no"]}


def test_what_is_nested_deeply_is_shown_as_it_is():
    reply = {"x": 1}
    for _ in range(150):
        reply = {"in": reply}
    (display,) = shown(FamilyFinding("odd", "somebody", reply))
    assert display.parts[-1].judgements[0].answer.count("in") > 130


def test_a_finding_without_anything_is_no_finding_of_parts():
    (display,) = shown(FamilyFinding("odd", "somebody", {}))
    assert display.parts == ()
