"""What goes to an adjudicator is counted as the paper counts it."""

from __future__ import annotations

from collections import defaultdict

import pytest

from eclose_annotate.adjudication import AdjudicationTrigger
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.results.agreement_report import (
    OverruledLabels,
    count_response_adjudication,
    count_screening_adjudication,
)
from tests.results.records import FILLER, L1, L2, SOUND, annotation, grouped, grouped_questions, screening

# Appendix A.3.3. Categories overlap; 819 responses have at least one, and 4 are flagged alone.
PAPER = {
    AdjudicationTrigger.SOUNDNESS: 595,
    AdjudicationTrigger.FAILURE: 142,
    AdjudicationTrigger.COMPLETENESS: 129,
    AdjudicationTrigger.ALIGNMENT: 76,
    AdjudicationTrigger.CLOSURE: 59,
    AdjudicationTrigger.SUBSTANTIVE: 13,
    AdjudicationTrigger.CORRECTNESS: 8,
}
STEPS = {
    AdjudicationTrigger.SUBSTANTIVE: (SOUND, FILLER),
    AdjudicationTrigger.SOUNDNESS: (SOUND, L1),
    AdjudicationTrigger.FAILURE: (L1, L2),
}
WHOLE = (
    AdjudicationTrigger.ALIGNMENT,
    AdjudicationTrigger.CLOSURE,
    AdjudicationTrigger.COMPLETENESS,
    AdjudicationTrigger.CORRECTNESS,
)


def overlapping(differ=819):
    """Which responses have which differences: one after the other, and round again."""
    differences, index = defaultdict(set), 0
    for trigger, count in PAPER.items():
        for _ in range(count):
            differences[index % differ].add(trigger)
            index += 1
    assert len(differences) == differ
    return differences


def pair(number, triggers):
    """Two annotators who differ in this, and both find a step unsound, so that nothing is flagged."""
    steps = [STEPS.get(trigger, (SOUND, SOUND)) for trigger in STEPS if trigger in triggers] + [(L1, L1)]
    second = "".join("0" if trigger in triggers else "1" for trigger in WHOLE)
    return [
        annotation(f"r{number}", who, [step[index] for step in steps], ("1111", second)[index])
        for index, who in enumerate(("A1", "A2"))
    ]


def flagged(number, labels="1110"):
    """Reliable and yet wrong; to both, unless labels say that the second differs."""
    return [annotation(f"r{number}", "A1", labels="1110"), annotation(f"r{number}", "A2", labels=labels)]


@pytest.mark.slow
def test_the_paper_s_819_and_4_are_823():
    differing = overlapping()
    rows = []
    for number in range(2_598):
        if number in differing:
            rows += pair(number, differing[number])
        elif number < 823:
            rows += flagged(number)
        else:
            rows += pair(number, ())
    adjudication = count_response_adjudication(grouped(*rows))
    assert (adjudication.asked, adjudication.complete, adjudication.to_adjudicate) == (2_598, 2_598, 823)
    assert (adjudication.disagreements, adjudication.flag_only) == (819, 4)
    assert adjudication.triggers == {**PAPER, AdjudicationTrigger.INCONSISTENT: 4}
    assert (adjudication.adjudicated, adjudication.waiting) == (0, 823)
    assert adjudication.complete - adjudication.to_adjudicate == 1_775
    assert f"{adjudication.to_adjudicate / adjudication.complete:.1%}" == "31.7%"


def test_a_flag_beside_a_difference_is_no_flag_alone():
    adjudication = count_response_adjudication(grouped(*flagged(1, "1100"), *flagged(2)))
    assert (adjudication.to_adjudicate, adjudication.disagreements, adjudication.flag_only) == (2, 1, 1)
    assert adjudication.triggers == {AdjudicationTrigger.COMPLETENESS: 1, AdjudicationTrigger.INCONSISTENT: 2}


def test_labels_that_were_not_upheld_are_counted_without_names():
    rows = grouped(
        annotation("r1", "A1", [SOUND, L1]), annotation("r1", "A2", [SOUND, SOUND], "0111"),
        annotation("r1", "A7", [SOUND, SOUND], "1011", adjudicates=True, reference_seen_before=True),
        annotation("r2", "A1", labels="1110"), annotation("r2", "A2", labels="1110"),
        annotation("r2", "A7", adjudicates=True),
        annotation("r3", "A1", labels="0111"), annotation("r3", "A2"),
    )  # fmt: skip
    adjudication = count_response_adjudication(rows)
    assert (
        adjudication.to_adjudicate,
        adjudication.adjudicated,
        adjudication.waiting,
        adjudication.reference_seen_before,
    ) == (3, 2, 1, 1)
    # r1 has two steps and r2 one, by two people each.
    assert adjudication.changed["soundness of a step"] == OverruledLabels(1, 1, 6)
    assert adjudication.changed["substantive status of a step"] == OverruledLabels(0, 0, 6)
    assert adjudication.changed["L"] == OverruledLabels(1, 1, 4)
    assert adjudication.changed["A"] == OverruledLabels(1, 1, 4)
    assert adjudication.changed["C"] == OverruledLabels(1, 2, 4)
    assert adjudication.changed["Acc"] == OverruledLabels(1, 2, 4)


def test_a_changed_step_is_counted_once_and_not_for_the_labels_that_depend_on_it():
    rows = grouped(
        annotation("r", "A1", [FILLER, L1, L1]), annotation("r", "A2", [L1, L2, SOUND]),
        annotation("r", "A7", [L1, L2, L2], adjudicates=True),
    )  # fmt: skip
    adjudication = count_response_adjudication(rows)
    assert adjudication.changed["substantive status of a step"] == OverruledLabels(1, 1, 6)
    # Five labels on steps that both call substantive, and four on steps that both call unsound.
    assert adjudication.changed["soundness of a step"] == OverruledLabels(1, 1, 5)
    assert adjudication.changed["reason of a step"] == OverruledLabels(1, 2, 4)


def test_short_forms_have_no_steps_to_change():
    rows = [
        annotation("r", who, labels=labels, kind=AnnotationTaskKind.SHORT)
        for who, labels in (("A1", "1111"), ("A2", "0111"))
    ]
    last = annotation("r", "A7", kind=AnnotationTaskKind.SHORT, adjudicates=True)
    assert list(count_response_adjudication(grouped(*rows, last)).changed) == ["L", "A", "C", "K", "Acc"]


def test_one_person_alone_and_the_unfinished_disagree_with_nobody():
    rows = grouped(
        annotation("r1", "A1", asked=1, labels="1110"),
        annotation("r2", "A1"),
        annotation("r3", "A1"),
        annotation("r3", "A2"),
    )
    adjudication = count_response_adjudication(rows)
    assert (adjudication.asked, adjudication.complete, adjudication.to_adjudicate) == (3, 1, 0)


def test_screening_is_counted_the_same_way():
    rows = [
        screening("q1", "S1"), screening("q1", "S2", "N1"), screening("q1", "S3", "N1", adjudicates=True),
        screening("q2", "S1", "N2"), screening("q2", "S2", "N1"), screening("q3", "S1"), screening("q3", "S2"),
    ]  # fmt: skip
    adjudication = count_screening_adjudication(grouped_questions(rows))
    assert (adjudication.asked, adjudication.to_adjudicate, adjudication.adjudicated, adjudication.waiting) == (
        3,
        2,
        1,
        1,
    )
    assert adjudication.triggers == {AdjudicationTrigger.ELIGIBILITY: 1, AdjudicationTrigger.REASON: 1}
