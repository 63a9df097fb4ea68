from itertools import count
from math import nan

import krippendorff
import numpy as np
import pytest

from eclose.errors import RecordError
from eclose.metrics.agreement import (
    AnnotatedResponse,
    ScreenedQuestion,
    measure_annotator_agreement,
    measure_screening_agreement,
)
from eclose.values.judgment import Ineligibility, Judgment, LocalFailure, QuestionScreening, StepJudgment

NAMES = [
    "Substantive status",
    "Step soundness",
    "Local-failure reason",
    "Alignment A",
    "Closure C",
    "Answer correctness",
    "Completeness K",
    "Local soundness L",
    "Global sufficiency G",
    "LGG indicator",
]

SOUND = StepJudgment(substantive=True, sound=True)
FILLER = StepJudgment(substantive=False)


def unsound(failure):
    return StepJudgment(substantive=True, sound=False, failure=failure)


def judged(steps, aligned=None, closed=None, complete=None, correct=None, judge="A1"):
    labels = (None if label is None else bool(label) for label in (aligned, closed, complete, correct))
    return Judgment("r", judge, tuple(steps), *labels)


def annotated(question_id, first, second):
    return AnnotatedResponse(question_id, (first, second))


def report(pairs, seed=42, resamples=200):
    return {
        row.judgment: row
        for row in measure_annotator_agreement(pairs, rng=np.random.default_rng(seed), resamples=resamples)
    }


L1, L2 = LocalFailure.UNSUPPORTED_CONTENT, LocalFailure.INVALID_INFERENCE
SMALL = [
    annotated("q1", judged([SOUND, unsound(L1)], 1, 1, 1, 1), judged([SOUND, unsound(L2)], 1, 0, 1, 1)),
    annotated("q1", judged([FILLER, SOUND], 0, 1, None, 0), judged([SOUND, SOUND], 0, 1, 1, 0)),
    annotated("q2", judged([unsound(L1)], 1, 0, 0, 0), judged([unsound(L1)], 1, 0, 0, 1)),
]


@pytest.mark.parametrize(
    "name,n,majority,raw,alpha,specific",
    [
        # Five steps, (1,1) x 4 and (0,1). Label 0 once of ten: alpha = 1 - 9 · 2/(100 - 1 - 81) = 0.
        ("Substantive status", 5, 9 / 10, 4 / 5, 0, (8 / 9, 0)),
        # The filler step is out: (1,1), (0,0), (1,1), (0,0).
        ("Step soundness", 4, 1 / 2, 1, 1, (1, 1)),
        # (L1,L2), (L1,L1): three L1, one L2; alpha = 1 - 3 · 2/(16 - 9 - 1) = 0.
        ("Local-failure reason", 2, 3 / 4, 1 / 2, 0, None),
        # (1,1), (0,0), (1,1)
        ("Alignment A", 3, 4 / 6, 1, 1, (1, 1)),
        # (1,0), (1,1), (0,0): three of each label; alpha = 1 - 5 · 2/(36 - 9 - 9) = 8/18.
        ("Closure C", 3, 1 / 2, 2 / 3, 8 / 18, (2 / 3, 2 / 3)),
        # (1,1), (0,0), (0,1)
        ("Answer correctness", 3, 1 / 2, 2 / 3, 8 / 18, (2 / 3, 2 / 3)),
        # (1,1), (unknown,1), (0,0): the second response has no pair.
        ("Completeness K", 2, 1 / 2, 1, 1, (1, 1)),
        # (0,0), (1,1), (0,0): the filler step asks nothing of soundness.
        ("Local soundness L", 3, 4 / 6, 1, 1, (1, 1)),
        # (1,0), (0,0), (0,0): label 1 once of six; alpha = 1 - 5 · 2/(36 - 1 - 25) = 0. Majority 0: 2 · 2/5.
        ("Global sufficiency G", 3, 5 / 6, 2 / 3, 0, (4 / 5, 0)),
        # (0,0), (1,1), (0,0)
        ("LGG indicator", 3, 4 / 6, 1, 1, (1, 1)),
    ],
)
def test_a_small_report_by_hand(name, n, majority, raw, alpha, specific):
    row = report(SMALL)[name]
    assert row.n == n
    assert row.majority == pytest.approx(majority, abs=1e-15)
    assert row.raw.value == pytest.approx(raw, abs=1e-15)
    assert row.alpha.value == pytest.approx(alpha, abs=1e-15)
    assert row.specific == (None if specific is None else pytest.approx(specific, abs=1e-15))


def test_rows_come_in_the_order_of_the_papers_table():
    assert list(report(SMALL)) == NAMES


def test_unequal_step_counts_are_refused_by_name():
    pair = annotated("q", judged([SOUND]), judged([SOUND, SOUND], judge="A2"))
    with pytest.raises(RecordError, match=r"response r: 1 steps were judged by A1, 2 by A2\. Both must judge"):
        report([*SMALL, pair])


@pytest.mark.parametrize("other", [FILLER, StepJudgment(substantive=False, sound=False, failure=L1)])
def test_soundness_and_reason_are_compared_only_where_both_call_the_step_substantive(other):
    rows = report([annotated("q", judged([unsound(L1)]), judged([other]))])
    assert (rows["Substantive status"].n, rows["Step soundness"].n, rows["Local-failure reason"].n) == (1, 0, 0)


def test_a_reason_needs_both_to_call_the_step_unsound_and_both_to_name_one():
    steps = [unsound(L1), unsound(None), unsound(L2)], [SOUND, unsound(L1), unsound(L2)]
    rows = report([annotated("q", *map(judged, steps))])
    assert (rows["Step soundness"].n, rows["Local-failure reason"].n) == (3, 1)


def test_unknown_labels_are_left_out_and_derived_labels_use_what_decides_them():
    # A is false for both, so G is false whatever C is; L is unknown where a step's soundness is.
    first = judged([StepJudgment(True, None)], aligned=0)
    rows = report([annotated("q", first, judged([SOUND], aligned=0, closed=1))])
    assert {name: row.n for name, row in rows.items() if row.n} == {
        "Substantive status": 1,
        "Alignment A": 1,
        "Global sufficiency G": 1,
    }


def test_one_label_throughout_leaves_alpha_undefined_in_every_resample():
    row = report([annotated("q", judged([], 1), judged([], 1))], resamples=50)["Alignment A"]
    assert row.raw == (1.0, (1.0, 1.0), 0)
    assert row.alpha == (None, None, 50)
    assert row.specific == (1.0, None)


@pytest.mark.parametrize("pairs", [[], [annotated("q", judged([]), judged([]))]])
def test_nothing_judged_gives_rows_that_say_so(pairs):
    rows = report(pairs, resamples=5)
    assert list(rows) == NAMES
    assert rows["Step soundness"].n == 0
    assert rows["Step soundness"].majority is None
    assert rows["Step soundness"].raw == (None, None, 5)


def random_pairs(seed, responses=24):
    """Three responses to each of eight questions."""
    rng = np.random.default_rng(seed)
    kinds = [SOUND, SOUND, SOUND, FILLER, *map(unsound, LocalFailure)]

    def once(steps):
        return judged([kinds[kind] for kind in steps], *(rng.random(4) < 0.7))

    def noisy(steps):
        return [int(rng.integers(len(kinds))) if rng.random() < 0.2 else kind for kind in steps]

    pairs = []
    for response in range(responses):
        steps = rng.integers(len(kinds), size=rng.integers(0, 6)).tolist()
        pairs.append(annotated(f"q{response // 3}", once(steps), once(noisy(steps))))
    return pairs


def compared(pairs):
    """Two lists of labels for each judgment, built label by label; a case is there when both gave one."""
    labels = {name: [] for name in NAMES}
    for _, (first, second), _ in pairs:
        for a, b in zip(first.steps, second.steps, strict=True):
            labels["Substantive status"].append((a.substantive, b.substantive))
            if a.substantive and b.substantive:
                labels["Step soundness"].append((a.sound, b.sound))
                if not a.sound and not b.sound:
                    codes = list(LocalFailure)
                    labels["Local-failure reason"].append((codes.index(a.failure), codes.index(b.failure)))
        both = (first, second)
        sound = [all(step.sound for step in j.steps if step.substantive) for j in both]
        sufficient = [j.aligned and j.closed for j in both]
        labels["Alignment A"].append([j.aligned for j in both])
        labels["Closure C"].append([j.closed for j in both])
        labels["Answer correctness"].append([j.correct for j in both])
        labels["Completeness K"].append([j.complete for j in both])
        labels["Local soundness L"].append(sound)
        labels["Global sufficiency G"].append(sufficient)
        labels["LGG indicator"].append([l and not g for l, g in zip(sound, sufficient, strict=True)])  # noqa: E741
    return labels


def raw_and_alpha(labels):
    """NaN for what does not exist: agreement without cases, alpha without a second label."""
    raw = sum(a == b for a, b in labels) / len(labels) if labels else nan
    used = {label for pair in labels for label in pair}
    return raw, krippendorff.alpha(np.array(labels, float).T, level_of_measurement="nominal") if len(used) > 1 else nan


@pytest.mark.parametrize("seed", range(3))
def test_intervals_resample_questions_with_all_their_responses_and_steps(seed):
    pairs = random_pairs(seed)
    rows = report(pairs, seed=seed, resamples=60)
    replicates = {name: [] for name in NAMES}
    stream = np.random.default_rng(seed).spawn(1)[0]
    for drawn in stream.integers(8, size=(60, 8)):
        # A question drawn twice is two questions.
        fresh = count()
        resample = [
            pair._replace(question_id=f"{next(fresh)}")
            for question in drawn
            for pair in pairs
            if pair.question_id == f"q{question}"
        ]
        for name, labels in compared(resample).items():
            replicates[name].append(raw_and_alpha(labels))
    for name, labels in compared(pairs).items():
        row = rows[name]
        assert row.n == len(labels)
        assert (row.raw.value, row.alpha.value) == pytest.approx(raw_and_alpha(labels), abs=1e-9)
        ends = np.nanquantile(replicates[name], [0.025, 0.975], axis=0).T
        np.testing.assert_allclose([row.raw.interval, row.alpha.interval], ends, rtol=0, atol=1e-9)
        assert [row.raw.undefined, row.alpha.undefined] == np.isnan(replicates[name]).sum(axis=0).tolist()


def test_swapping_the_annotators_changes_nothing():
    pairs = random_pairs(5)
    swapped = [pair._replace(judgments=pair.judgments[::-1]) for pair in pairs]
    assert report(swapped) == report(pairs)


def test_the_order_of_responses_changes_no_value():
    pairs = random_pairs(6)
    rows, turned = report(pairs), report(pairs[::-1])
    for name, row in rows.items():
        other = turned[name]
        assert (other.n, other.majority, other.specific) == (row.n, row.majority, row.specific)
        assert (other.raw.value, other.alpha.value) == (row.raw.value, row.alpha.value)


def test_ac1_of_the_small_report_by_hand():
    rows = report(SMALL)
    # (1,0), (1,1), (0,0): half of the labels are 1, so chance is 2 · 1/4 = 1/2; (2/3 - 1/2)/(1/2).
    assert rows["Closure C"].ac1 == pytest.approx(1 / 3, abs=1e-15)
    # Label 0 once of ten: chance is 2 · 9/100 = 18/100; (80 - 18)/(100 - 18).
    assert rows["Substantive status"].ac1 == pytest.approx(62 / 82, abs=1e-15)
    assert rows["Local-failure reason"].ac1 is None


def test_one_label_throughout_is_told_apart_from_nothing_to_compare():
    rows = report([annotated("q", judged([], 1), judged([], 1))])
    assert (rows["Alignment A"].unanimous, rows["Alignment A"].alpha.value) == (True, None)
    assert (rows["Closure C"].unanimous, rows["Closure C"].n) == (False, 0)


# Of three people: (1, 1, 0) and (1, 1, unknown). In the first case every pair weighs 1/2.
THREE = [
    AnnotatedResponse("q1", (judged([SOUND], 1), judged([SOUND], 1, judge="A2"), judged([SOUND], 0, judge="A3"))),
    AnnotatedResponse("q2", (judged([SOUND], 1), judged([SOUND], 1, judge="A2"))),
]


def test_three_people_by_hand():
    row = report(THREE)["Alignment A"]
    # Coincidences: first case o11 = 2/2 = 1, o01 = o10 = 2/2 = 1; second o11 = 2. Of 5, 3 agree.
    assert (row.n, row.raw.value) == (2, pytest.approx(3 / 5, abs=1e-15))
    # Marginals 1 and 4: 1 - (5 - 1) · 2/(25 - 1 - 16) = 0.
    assert row.alpha.value == pytest.approx(0, abs=1e-15)
    oracle = krippendorff.alpha(np.array([[1, 1], [1, 1], [0, np.nan]]), level_of_measurement="nominal")
    assert row.alpha.value == pytest.approx(oracle, abs=1e-9)
    assert row.majority == pytest.approx(4 / 5, abs=1e-15)
    assert row.specific == pytest.approx((6 / 8, 0), abs=1e-15)
    # Chance 2 · 4/25 = 8/25; (15 - 8)/(25 - 8).
    assert row.ac1 == pytest.approx(7 / 17, abs=1e-15)


@pytest.mark.parametrize("seed", range(3))
def test_alpha_of_several_is_the_krippendorff_packages(seed):
    rng = np.random.default_rng(seed)
    labels = rng.random((30, 4)) < 0.7
    people = rng.integers(2, 5, size=30)
    cases = [
        AnnotatedResponse(f"q{number // 2}", tuple(judged([], label) for label in row[:count]))
        for number, (row, count) in enumerate(zip(labels.tolist(), people.tolist(), strict=True))
    ]
    label_codes = np.where(np.arange(4) < people[:, np.newaxis], labels, np.nan)
    oracle = krippendorff.alpha(label_codes.T, level_of_measurement="nominal")
    assert report(cases)["Alignment A"].alpha.value == pytest.approx(oracle, abs=1e-9)


def test_two_in_a_row_of_several_are_two():
    pairs = random_pairs(7)
    several = [AnnotatedResponse(pair.question_id, pair.judgments) for pair in pairs]
    assert report(several) == report(pairs)


def test_every_one_of_several_must_judge_every_step():
    case = THREE[0]._replace(judgments=(*THREE[0].judgments[:2], judged([], judge="A3")))
    with pytest.raises(RecordError, match=r"1 steps were judged by A1, 0 by A3"):
        report([case])


def test_what_was_judged_as_a_whole_has_no_rows_about_steps():
    whole = [AnnotatedResponse("q", (judged([SOUND], 1), judged([unsound(None)], 1)), stepwise=False)]
    assert list(report(whole)) == NAMES[3:]
    assert report(whole)["Local soundness L"].n == 1
    mixed = report([*SMALL, *whole])
    assert (mixed["Substantive status"].n, mixed["Local soundness L"].n) == (5, 4)


# The paper's rows for responses: how many differ, how many both call a failure, and what is printed.
# The counts are the only ones that give all five printed figures (Acc: one of three).
PRINTED = {
    "Alignment A": (76, 117, "94.0 97.1 0.739 0.984 0.755"),
    "Closure C": (59, 125, "94.1 97.7 0.797 0.988 0.809"),
    "Answer correctness": (8, 479, "81.4 99.7 0.990 0.998 0.992"),
    "Completeness K": (129, 239, "88.3 95.0 0.759 0.972 0.787"),
}


def split(differ, both_fail, n=2_598):
    """Two people's labels."""
    labels = [(0, 0)] * both_fail + [(0, 1)] * (differ // 2) + [(1, 0)] * (differ - differ // 2)
    return labels + [(1, 1)] * (n - len(labels))


def printed(row):
    percent = f"{100 * row.majority:.1f} {100 * row.raw.value:.1f}"
    return f"{percent} {row.alpha.value:.3f} {row.specific[0]:.3f} {row.specific[1]:.3f}"


def test_the_papers_table_of_responses_to_the_printed_digit():
    columns = {name: split(differ, both) for name, (differ, both, _) in PRINTED.items()}
    order = ("Alignment A", "Closure C", "Completeness K", "Answer correctness")
    pairs = [
        annotated(f"q{number // 3}", *(judged([], *(columns[name][number][who] for name in order)) for who in (0, 1)))
        for number in range(2_598)
    ]
    rows = report(pairs, resamples=100)
    for name, (differ, _, expected) in PRINTED.items():
        assert printed(rows[name]) == expected
        assert round((1 - rows[name].raw.value) * 2_598) == differ
        oracle = krippendorff.alpha(np.array(columns[name]).T, level_of_measurement="nominal")
        assert rows[name].alpha.value == pytest.approx(oracle, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,steps,n,expected",
    [
        ("Substantive status", [(FILLER, FILLER, 618), (FILLER, SOUND, 13), (SOUND, SOUND, 12_102)], 12_733,
         "95.1 99.9 0.989 0.999 0.990"),
        ("Step soundness", [(unsound(L1), unsound(L1), 910), (unsound(L1), SOUND, 595), (SOUND, SOUND, 10_596)], 12_101,
         "90.0 95.1 0.726 0.973 0.754"),
    ],
)  # fmt: skip
def test_the_papers_table_of_steps_to_the_printed_digit(name, steps, n, expected):
    first = [entry for entry, _, times in steps for _ in range(times)]
    second = [other for _, other, times in steps for _ in range(times)]
    pairs = [annotated(f"q{start}", judged(first[start : start + 5]), judged(second[start : start + 5]))
             for start in range(0, n, 5)]  # fmt: skip
    row = report(pairs, resamples=20)[name]
    assert (row.n, printed(row)) == (n, expected)


def test_ac1_near_the_ceiling_is_the_papers():
    # 292 of 300 agree and 14 of 600 labels say fail: chance 2 · 14/600 · 586/600, about .0456.
    labels = split(8, 3, 300)
    row = report([annotated(f"q{n}", judged([], a), judged([], b)) for n, (a, b) in enumerate(labels)])["Alignment A"]
    chance = 2 * 14 / 600 * 586 / 600
    assert row.ac1 == pytest.approx((292 / 300 - chance) / (1 - chance), abs=1e-12)
    assert f"{row.ac1:.3f}" == "0.972"
    assert row.alpha.value < 0.5


N1, N2 = Ineligibility.MISSING_EVIDENCE, Ineligibility.MISSING_LINK


def screened(dataset, *code):
    """True, or the reason of a no."""
    agreement_rows = [
        QuestionScreening("q", f"S{n}", entry is True, None if entry is True else entry) for n, entry in enumerate(code)
    ]
    return ScreenedQuestion(dataset, tuple(agreement_rows))


def screen(cases, resamples=200):
    return measure_screening_agreement(cases, rng=np.random.default_rng(42), resamples=resamples)


def test_screening_by_hand():
    cases = [screened("b", True, True), screened("a", True, N1), screened("a", N1, N1), screened("a", N1, N2)]
    agreement_rows = screen(cases)
    # (1,1), (1,0), (0,0), (0,0): three ones, five zeros; alpha = 1 - 7 · 2/(64 - 9 - 25) = 16/30.
    assert (agreement_rows.overall.eligibility.n, agreement_rows.overall.eligibility.raw.value) == (4, 3 / 4)
    assert agreement_rows.overall.eligibility.alpha.value == pytest.approx(16 / 30, abs=1e-15)
    # (N1,N1), (N1,N2): alpha = 1 - 3 · 2/(16 - 9 - 1) = 0.
    assert (
        agreement_rows.overall.reason.n,
        agreement_rows.overall.reason.raw.value,
        agreement_rows.overall.both_no,
    ) == (2, 1 / 2, 2)
    assert agreement_rows.overall.reason.alpha.value == pytest.approx(0, abs=1e-15)
    assert agreement_rows.overall.reason.specific is None
    assert list(agreement_rows.datasets) == ["a", "b"]
    assert agreement_rows.datasets["b"].eligibility.unanimous
    assert (agreement_rows.datasets["b"].reason.n, agreement_rows.datasets["b"].both_no) == (0, 0)
    assert (agreement_rows.datasets["a"].eligibility.n, agreement_rows.datasets["a"].both_no) == (3, 2)


def test_a_screening_without_a_label_or_a_reason_is_compared_with_nothing():
    open_ = QuestionScreening("q", "S1")
    agreement_rows = screen([ScreenedQuestion("a", (open_, open_)), screened("a", None, N1)])
    assert (agreement_rows.overall.eligibility.n, agreement_rows.overall.both_no, agreement_rows.overall.reason.n) == (
        1,
        1,
        0,
    )
    assert screen([]).overall.eligibility.n == 0


PAPERS_SCREENING = {"2WikiMultiHopQA": (300, 8, 18), "MuSiQue": (600, 84, 262), "HotpotQA": (400, 25, 42)}


@pytest.mark.slow
def test_the_papers_tables_of_eligibility_to_the_printed_digit():
    cases = [
        screened(dataset, *(bool(label) or N1 for label in labels))
        for dataset, (n, differ, both) in PAPERS_SCREENING.items()
        for labels in split(differ, both, n)
    ]
    agreement_rows = screen(cases, resamples=2_000)
    row = agreement_rows.overall.eligibility
    assert (row.n, f"{100 * row.raw.value:.1f} {row.alpha.value:.3f}") == (1_300, "91.0 0.783")
    assert agreement_rows.overall.both_no == 322
    # Another program's draws under the same seed are others; the ends move by less than a hundredth.
    assert row.alpha.interval == pytest.approx((0.745, 0.817), abs=0.006)
    assert row.raw.interval == pytest.approx((0.894, 0.925), abs=0.003)
    printed = {
        name: f"{100 * entry.eligibility.raw.value:.1f} {entry.eligibility.alpha.value:.3f} {entry.both_no}"
        for name, entry in agreement_rows.datasets.items()
    }
    assert printed["2WikiMultiHopQA"] == "97.3 0.804 18"
    assert printed["MuSiQue"] == "86.0 0.720 262"
    assert printed["HotpotQA"] == "93.8 0.735 42"


def test_reasons_are_resampled_among_what_both_refuse():
    """Whatever is eligible does not move the interval of the reasons by a digit."""
    refused = [screened("a", N1, N1), screened("a", N2, N2), screened("a", N1, N2), screened("a", N2, N2)]
    rng = [np.random.default_rng(1) for _ in range(2)]
    alone = measure_screening_agreement(refused, rng=rng[0], resamples=300).overall.reason
    among = measure_screening_agreement(
        [*refused, *[screened("a", True, True)] * 50], rng=rng[1], resamples=300
    ).overall.reason
    assert alone == among
