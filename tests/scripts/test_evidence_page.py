"""The evidence page: one current row a claim, each with its day, its commit and a script that exists."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from studies.campaigns.detection_claims import list_natural_claims, list_verifier_claims

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "docs"))

from evidence_page import RECORDS, find_problems, make_pages, read_all_claims, read_claims

RESULT = '{"name": "speed", "value": 2, "unit": "x", "goal": ">= 1", "holds": true}\n'
DATED = "# recorded: 2026-11-15 in commit 0123abcd\n"
COMMAND = "$ python studies/perf/admission.py --families 3\n"


def read(tmp_path, text):
    (tmp_path / "speed.txt").write_text(text, "utf-8")
    return list(read_claims(tmp_path / "speed.txt"))


def test_every_current_claim_of_the_records_has_day_commit_and_script():
    claims = read_all_claims()
    assert find_problems(claims) == []
    assert sum(not claim.superseded for claim in claims) > 20


def test_a_claim_takes_day_and_commit_from_its_line_or_from_the_line_above_the_command(tmp_path):
    newer = RESULT.replace("}", ', "date": "2026-11-19", "commit": "abcdef12"}')
    older, own = read(tmp_path, DATED + COMMAND + RESULT + newer)
    assert (older.date, older.commit) == ("2026-11-15", "0123abcd")
    assert (own.date, own.commit) == ("2026-11-19", "abcdef12")
    assert older.command == "python studies/perf/admission.py --families 3"
    assert older.problem is own.problem is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (COMMAND + RESULT, "no day or commit"),
        (DATED + "$ python perf/renamed_since.py\n" + RESULT, "no script of the repository"),
        (DATED + RESULT, "no script of the repository"),
        (DATED + COMMAND + RESULT + RESULT, "2 current claims"),
    ],
)
def test_a_claim_without_origin_or_beside_another_of_its_name_is_a_problem(tmp_path, text, problem):
    (message, *_) = find_problems(read(tmp_path, text))
    assert problem in message


def test_claims_below_a_line_of_history_are_superseded_and_need_no_script(tmp_path):
    current, earlier = read(tmp_path, DATED + COMMAND + RESULT + "# history: another rule\n" + RESULT)
    assert (current.superseded, earlier.superseded) == ("", "another rule")
    assert find_problems([current, earlier]) == []


def test_missed_goal_on_the_untouched_half_of_real_text_stands_on_the_page():
    (page,) = make_pages().values()
    rows = [line for line in page.partition("## History")[0].splitlines() if "real text that no choice" in line]
    assert len(rows) == 2
    assert all("**no**" in row for row in rows)
    assert "24.1 [0.0, 44.8]" in rows[0]
    assert "0.0 [0.0, 40.9]" in rows[1]


def test_detection_in_the_harder_world_misses_its_goal_by_the_rule_in_force():
    claims = list(list_verifier_claims((RECORDS / "detect_verifier.txt").read_text("utf-8").replace("\u00a0", " ")))
    assert [claim.holds for claim in claims] == [False, True, False, False]
    (choice,) = list_natural_claims((RECORDS / "detect_natural.txt").read_text("utf-8").replace("\u00a0", " "))
    assert choice.value == -2.0
    assert not choice.holds
