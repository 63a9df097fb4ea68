"""Missing labels by criterion and reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eclose.judging.run import MissingLabelCount, count_unjudged_labels
from eclose.values.judgment import NO_TRACE_REASON, REFERENCE_FREE_REASON, Criterion, Judgment

L, K = Criterion.LOCAL_SOUNDNESS, Criterion.COMPLETENESS


def judgment(number, evidence=True, **unjudged):
    reasons = {Criterion(name): reason for name, reason in unjudged.items()}
    return Judgment(f"r{number}", "judge", (), unjudged=reasons, evidence_sufficient=evidence)


def test_missing_labels_are_counted_by_kind_with_the_commonest_details():
    labels = count_unjudged_labels(
        [
            judgment(0, L="invalid: one", K=REFERENCE_FREE_REASON),
            judgment(1, L="invalid: two", K=REFERENCE_FREE_REASON),
            judgment(2, L="invalid: two", K=REFERENCE_FREE_REASON, evidence=None),
            judgment(3, L=NO_TRACE_REASON, K=REFERENCE_FREE_REASON),
            judgment(4, K=REFERENCE_FREE_REASON),
        ]
    )
    assert (labels.responses, labels.without_any) == (5, 1)
    assert labels.missing == (
        MissingLabelCount("evidence", "no usable reply", 1, ""),
        MissingLabelCount("L", "invalid", 3, "two"),
        MissingLabelCount("L", NO_TRACE_REASON, 1, ""),
        MissingLabelCount("K", REFERENCE_FREE_REASON, 5, ""),
    )
    # K was not to be judged: nothing is missing.
    assert labels.shares == {L: pytest.approx(0.8), **dict.fromkeys(list(Criterion)[1:], 0)}


def test_the_reason_of_a_missing_label_on_the_evidence_is_counted():
    refused = replace(judgment(0, evidence=None), evidence_unjudged="refusal: no")
    rows = count_unjudged_labels([refused, judgment(1, evidence=None)]).missing
    assert rows == (
        MissingLabelCount("evidence", "no usable reply", 1, ""),
        MissingLabelCount("evidence", "refusal", 1, "no"),
    )


def test_a_run_without_responses_has_no_share():
    assert set(count_unjudged_labels([]).shares.values()) == {0}
