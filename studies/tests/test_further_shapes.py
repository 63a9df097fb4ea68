"""The sixty further shapes: none of those that are read whole is lost."""

from __future__ import annotations

import re
from pathlib import Path

from studies.campaigns.further_shapes import is_whole, read_cases

RECORD = Path(__file__).parents[2] / "docs" / "records" / "further_shapes.txt"


def test_shapes_that_the_record_has_as_whole_are_read_whole():
    wrong = {case["id"] for case, prediction in read_cases() if not is_whole(case, prediction)}
    recorded = set(re.findall(r"^(further-\d+):", RECORD.read_text("utf-8").partition("# history")[0], re.MULTILINE))
    assert wrong <= recorded


def test_reading_with_a_wrong_step_answer_or_status_is_not_whole():
    case, prediction = next((case, prediction) for case, prediction in read_cases() if is_whole(case, prediction))
    assert not is_whole(case, {**prediction, "steps": [*prediction["steps"], "More."]})
    assert not is_whole(case, {**prediction, "answer": "none"})
    assert not is_whole(case, {**prediction, "status": "incomplete"})
