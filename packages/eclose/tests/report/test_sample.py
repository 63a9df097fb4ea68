"""The responses that the page of a large run lists."""

from __future__ import annotations

from collections import Counter

import pytest

from eclose.report import explorer as filters
from eclose.report.explorer import RunSample, derive_response_facts, get_response_group, sample_report_cases
from eclose.report.formats.html_page import render_report_page
from tests.report.making import make_cases, make_diagnosis, make_questions


@pytest.fixture(scope="module")
def many():
    return make_cases(make_questions(10), 200, seed=3)


def outcomes(cases):
    return Counter(derive_response_facts(case).outcome for case in cases)


def test_a_run_within_the_limit_is_listed_in_full(many):
    chosen = sample_report_cases(many, len(many))
    assert chosen == RunSample(tuple(many))
    assert chosen.sentences == ()


def test_all_failures_are_listed_before_reliable_responses(many):
    counts = outcomes(many)
    failures = counts.total() - counts["reliable"]
    chosen = sample_report_cases(many, round(failures / 0.8) + 1)
    listed = outcomes(chosen.cases)
    assert listed.total() == round(failures / 0.8) + 1
    assert {name: count for name, count in listed.items() if name != "reliable"} == {
        name: count for name, count in counts.items() if name != "reliable"
    }
    assert chosen.left_out == len(many) - listed.total()
    assert chosen.outcomes["reliable"] == (listed["reliable"], counts["reliable"])


def test_above_their_share_failures_are_spread_over_strata(many):
    limit = 60
    chosen = sample_report_cases(many, limit)
    assert len(chosen.cases) == limit
    assert outcomes(chosen.cases)["reliable"] == limit - round(0.8 * limit)

    def strata(cases):
        return Counter(
            (outcome, get_response_group(case, "benchmark"), get_response_group(case, "model"))
            for case in cases
            if (outcome := derive_response_facts(case).outcome) != "reliable"
        )

    listed, judged = strata(chosen.cases), strata(many)
    largest = max(listed.values())
    # A stratum with fewer than the largest share is listed in full, but for the last place.
    assert all(listed[name] >= min(count, largest - 1) for name, count in judged.items())


def test_the_order_of_the_run_does_not_change_the_sample(many):
    forwards = {case.response.id for case in sample_report_cases(many, 100).cases}
    backwards = {case.response.id for case in sample_report_cases(many[::-1], 100).cases}
    assert forwards == backwards


def test_the_sample_keeps_the_order_of_the_run(many):
    positions = {case.response.id: position for position, case in enumerate(many)}
    listed = [positions[case.response.id] for case in sample_report_cases(many, 50).cases]
    assert listed == sorted(listed)


@pytest.fixture(scope="module")
def diagnosis(many):
    return make_diagnosis(many)


def test_the_page_says_how_many_responses_it_lists(many, diagnosis, monkeypatch):
    monkeypatch.setattr(filters, "MAX_PAGE_RESPONSES", 50)
    page = render_report_page(diagnosis, many)
    assert "This page lists 50 of 200 responses" in page
    assert "<code>eclose data labels</code>" in page
    assert page == render_report_page(diagnosis, sample_report_cases(many, 50))
    # The figures are still those of all responses.
    assert "Of 200 responses" in page


def test_a_small_page_says_nothing_of_a_sample(many, diagnosis):
    page = render_report_page(diagnosis, many)
    assert 'id="sample"' not in page
    assert "Every response" in page
