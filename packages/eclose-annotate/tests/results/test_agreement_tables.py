"""The report as people read it."""

from __future__ import annotations

from eclose_annotate.annotations import Annotation, AnnotationSet
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.results.agreement_report import build_agreement_report
from eclose_annotate.results.agreement_tables import build_agreement_tables
from tests.results.records import annotation, grouped, grouped_questions, screening


def made(rows=(), questions=()):
    return build_agreement_tables(
        build_agreement_report(AnnotationSet(grouped(*rows), grouped_questions(questions)), resamples=100)
    )


def cells(table, first):
    return dict(zip(table.heads, next(row for row in table.rows if row[0] == first), strict=True))


def test_a_table_has_the_rows_of_the_paper_and_says_what_is_undefined():
    agreement, adjudication = made([annotation("r1", "A1"), annotation("r1", "A2"),
                                    annotation("r2", "A1", labels="0111"),
                                    annotation("r2", "A2", labels="0011")])  # fmt: skip
    assert agreement.title == "Agreement before adjudication: 2 of 2 responses, to 2 questions"
    assert len(agreement.rows) == 10
    assert cells(agreement, "Alignment A")["alpha [95 %]"].startswith("1.000")
    assert cells(agreement, "Substantive status")["alpha [95 %]"] == "undefined, unanimous"
    assert cells(agreement, "Local-failure reason")["alpha [95 %]"] == "undefined, nothing to compare"
    assert cells(agreement, "Local-failure reason")["specific"] == "-"
    assert adjudication.rows[0] == ("all", "1", "50.0")
    assert adjudication.rows[2][0] == "inconsistent only"


def test_ac1_is_shown_where_nearly_all_labels_are_alike():
    rows = [
        annotation(f"r{n}", who, labels="0111" if n == 0 and who == "A1" else "1111")
        for n in range(30)
        for who in ("A1", "A2")
    ]
    agreement = made(rows)[0]
    # One of 60 labels: chance is 2 · 59/3600; (29/30 - .0328)/(1 - .0328) = .966.
    assert cells(agreement, "Alignment A")["AC1"] == "0.966"
    assert any(note.startswith("AC1 where 95%") for note in agreement.notes)
    even = [annotation(f"r{n}", who, [], "0101" if n % 2 else "1010") for n in range(4) for who in ("A1", "A2")]
    assert cells(made(even)[0], "Alignment A").get("AC1", "-") == "-"


def test_few_questions_have_a_caution():
    caution = "Fewer than 20 questions: take the intervals as a rough hint, not as 95 %."
    for number, expected in ((19, True), (20, False)):
        rows = [annotation(f"r{n}", who) for n in range(number) for who in ("A1", "A2")]
        questions = [screening(f"q{n}", who) for n in range(number) for who in ("S1", "S2")]
        eligibility, *_, agreement, _ = made(rows, questions)
        assert (caution in agreement.notes) is expected
        assert (caution in eligibility.notes) is expected


def test_resamples_without_an_alpha_are_counted():
    # One difference in 12 responses: alpha is 0, and below 0 in resamples with several of them. Without the difference
    # all labels are alike, and alpha is undefined.
    rows = [
        annotation(f"r{n}", who, labels="0111" if n == 0 and who == "A1" else "1111")
        for n in range(12)
        for who in ("A1", "A2")
    ]
    agreement = made(rows)[0]
    assert cells(agreement, "Alignment A")["alpha [95 %]"].endswith(", 0.000]")
    (note,) = [note for note in agreement.notes if "resamples" in note]
    assert "Alignment A (" in note
    assert "of 100 resamples" in note
    assert "Closure C" not in note
    even = [annotation(f"r{n}", who, [], "0101" if n % 2 else "1010") for n in range(4) for who in ("A1", "A2")]
    # Also where people agree perfectly: the interval [1, 1] rests on the other resamples.
    assert any("resamples" in note for note in made(even)[0].notes)


def test_more_than_two_people_are_said_to_be_more():
    rows = [annotation("r", who, asked=3) for who in ("A1", "A2", "A3")]
    assert any("3 people" in note and "Krippendorff" in note for note in made(rows)[0].notes)
    assert not any("Krippendorff" in note for note in made([annotation("r", "A1"), annotation("r", "A2")])[0].notes)


def test_screening_comes_first_and_by_dataset():
    questions = [
        screening("q1", "S1"),
        screening("q1", "S2", "N1"),
        screening("q2", "S1", "N1"),
        screening("q2", "S2", "N1"),
    ]
    overall, datasets, adjudication, outcomes, _ = made([annotation("r1", "A1")], questions)
    assert outcomes.title == "Outcomes of screening: 2 questions"
    # q1 waits for adjudication; rates of reasons are of the ineligible questions.
    assert outcomes.rows[:3] == (("eligible", "0", "0.0"), ("ineligible", "1", "100.0"), ("  N1", "1", "100.0"))
    assert outcomes.rows[-1] == ("not settled", "1", "-")
    assert [row[:2] for row in overall.rows] == [("Binary eligibility", "2"), ("Primary ineligibility reason", "1")]
    assert overall.rows[0][2].startswith("50.0 [")
    assert overall.rows[1][3] == "undefined, unanimous"
    assert datasets.rows[0][0] == "B"
    assert datasets.rows[0][-1] == "1"
    assert ("  eligibility", "1", "50.0") in adjudication.rows


def test_what_changed_and_who_knew_the_reference_is_said_in_numbers():
    rows = [annotation("r", "A1"), annotation("r", "A2", labels="0111"),
            annotation("r", "A7", adjudicates=True, reference_seen_before=True)]  # fmt: skip
    _, adjudication, changed = made(rows)
    assert adjudication.notes[0].startswith("1 adjudicated, 0 waiting")
    assert adjudication.notes[1].startswith("1 were adjudicated by a person who knew the reference")
    assert ("A", "1", "1", "2") in changed.rows
    assert not any("A1" in cell or "A7" in cell for table in made(rows) for row in table.rows for cell in row)


def test_nothing_finished_has_no_table_of_adjudication():
    assert len(made([Annotation("r", "q", AnnotationTaskKind.RESPONSE, 2)])) == 1
