from itertools import count
from math import nan

import krippendorff
import numpy as np
import pytest

from eclosure.core.judgment import Judgment, LocalFailure, StepJudgment
from eclosure.errors import RecordError
from eclosure.metrics.agreement import JudgedTwice, agreement_report

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


def report(pairs, seed=42, resamples=200):
    return {row.judgment: row for row in agreement_report(pairs, rng=np.random.default_rng(seed), resamples=resamples)}


L1, L2 = LocalFailure.UNSUPPORTED_CONTENT, LocalFailure.INVALID_INFERENCE
SMALL = [
    JudgedTwice("q1", judged([SOUND, unsound(L1)], 1, 1, 1, 1), judged([SOUND, unsound(L2)], 1, 0, 1, 1)),
    JudgedTwice("q1", judged([FILLER, SOUND], 0, 1, None, 0), judged([SOUND, SOUND], 0, 1, 1, 0)),
    JudgedTwice("q2", judged([unsound(L1)], 1, 0, 0, 0), judged([unsound(L1)], 1, 0, 0, 1)),
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
    pair = JudgedTwice("q", judged([SOUND]), judged([SOUND, SOUND], judge="A2"))
    with pytest.raises(RecordError, match=r"response r: 1 steps were judged by A1, 2 by A2\. Both must judge"):
        report([*SMALL, pair])


@pytest.mark.parametrize("other", [FILLER, StepJudgment(substantive=False, sound=False, failure=L1)])
def test_soundness_and_reason_are_compared_only_where_both_call_the_step_substantive(other):
    rows = report([JudgedTwice("q", judged([unsound(L1)]), judged([other]))])
    assert (rows["Substantive status"].n, rows["Step soundness"].n, rows["Local-failure reason"].n) == (1, 0, 0)


def test_a_reason_needs_both_to_call_the_step_unsound_and_both_to_name_one():
    steps = [unsound(L1), unsound(None), unsound(L2)], [SOUND, unsound(L1), unsound(L2)]
    rows = report([JudgedTwice("q", *map(judged, steps))])
    assert (rows["Step soundness"].n, rows["Local-failure reason"].n) == (3, 1)


def test_unknown_labels_are_left_out_and_derived_labels_use_what_decides_them():
    # A is false for both, so G is false whatever C is; L is unknown where a step's soundness is.
    first = judged([StepJudgment(True, None)], aligned=0)
    rows = report([JudgedTwice("q", first, judged([SOUND], aligned=0, closed=1))])
    assert {name: row.n for name, row in rows.items() if row.n} == {
        "Substantive status": 1,
        "Alignment A": 1,
        "Global sufficiency G": 1,
    }


def test_one_label_throughout_leaves_alpha_undefined_in_every_resample():
    row = report([JudgedTwice("q", judged([], 1), judged([], 1))], resamples=50)["Alignment A"]
    assert row.raw == (1.0, (1.0, 1.0), 0)
    assert row.alpha == (None, None, 50)
    assert row.specific == (1.0, None)


@pytest.mark.parametrize("pairs", [[], [JudgedTwice("q", judged([]), judged([]))]])
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
        pairs.append(JudgedTwice(f"q{response // 3}", once(steps), once(noisy(steps))))
    return pairs


def compared(pairs):
    """Two lists of labels for each judgment, built label by label; a case is there when both gave one."""
    labels = {name: [] for name in NAMES}
    for _, first, second in pairs:
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
    swapped = [pair._replace(first=pair.second, second=pair.first) for pair in pairs]
    assert report(swapped) == report(pairs)


def test_the_order_of_responses_changes_no_value():
    pairs = random_pairs(6)
    rows, turned = report(pairs), report(pairs[::-1])
    for name, row in rows.items():
        other = turned[name]
        assert (other.n, other.majority, other.specific) == (row.n, row.majority, row.specific)
        assert (other.raw.value, other.alpha.value) == (row.raw.value, row.alpha.value)
