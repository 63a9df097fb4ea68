"""Rates of traces from different origins are never pooled."""

from __future__ import annotations

from dataclasses import replace

import pytest

import eclose
from eclose.diagnosis.diagnose import diagnose_cases
from eclose.diagnosis.label_file import write_labels
from eclose.diagnosis.label_table import TraceStratum
from eclose.diagnosis.run_counts import RunCounts, count_runs
from eclose.errors import UserError
from eclose.metrics.rates import Metric
from eclose.report.formats.json_file import render_diagnosis_json
from eclose.report.formats.markdown import render_markdown_report
from eclose.values.response import ResponseReading, Trace
from tests.diagnosis.test_diagnose import FAILS, case
from tests.diagnosis.test_run_counts import write_run

STATED, PROSE, HIDDEN = TraceStratum
RULES = {"marked": "named line", "agent": "agent", "prose": "conclusion word", "hidden": "thinking"}


def read_case(number, origin, *, reliable=True, **labels):
    """Return a case whose response was read with this origin; None for one without a trace."""
    judged = case(number=number, closed=reliable, **labels)
    status = "no_trace" if origin is None else "trace"
    reading = ResponseReading(reader=2, status=status, rule=RULES.get(origin, "short"), origin=origin)
    trace = Trace(()) if origin is None else judged.response.trace
    return replace(judged, response=replace(judged.response, reading=reading, trace=trace))


def read_cases(**origins):
    """Return cases of each origin, of which the first is unreliable."""
    named = [(None if origin == "untraced" else origin, first) for origin, n in origins.items() for first in range(n)]
    return [read_case(number, origin, reliable=bool(first)) for number, (origin, first) in enumerate(named)]


def test_headline_counts_stated_traces_and_responses_without_a_trace_and_gives_the_others_apart():
    diagnosis = diagnose_cases(read_cases(prose=4, marked=3, agent=2, hidden=5, untraced=1))
    assert (diagnosis.stratum, diagnosis.overall.responses) == (STATED, 6)
    assert {stratum: group.responses for stratum, group in diagnosis.apart.items()} == {PROSE: 4, HIDDEN: 5}
    reliable = diagnosis.apart[PROSE].rates[Metric.TRACE_RELIABILITY_RATE]
    assert (reliable.hits, reliable.n) == (3, 4)
    # Counts in = counts out: every response is read by one rule.
    assert sum(diagnosis.readings.values()) == 15
    assert next(iter(diagnosis.readings.items())) == (("trace", "hidden", "thinking"), 5)


@pytest.mark.parametrize(
    ("origins", "stratum", "apart"),
    [
        ({"prose": 3, "untraced": 2}, PROSE, {}),
        ({"hidden": 3, "prose": 1}, PROSE, {HIDDEN}),
        ({"untraced": 2}, STATED, {}),
    ],
)
def test_headline_is_of_prose_where_no_trace_is_stated(origins, stratum, apart):
    diagnosis = diagnose_cases(read_cases(**origins))
    assert (diagnosis.stratum, diagnosis.apart.keys()) == (stratum, set(apart))
    assert diagnosis.overall.responses + sum(group.responses for group in diagnosis.apart.values()) == sum(
        origins.values()
    )


@pytest.mark.parametrize("form", ["files", "labels"])
def test_origin_chooses_the_responses_of_every_figure(tmp_path, form):
    run = write_run(tmp_path / "run", read_cases(marked=3, prose=2))
    if form == "labels":
        pytest.importorskip("pyarrow")
        write_labels(run, tmp_path / "labels.parquet")
        run = tmp_path / "labels.parquet"
    stated, prose = eclose.diagnose(run), eclose.diagnose(run, origin="prose")
    assert [case.response.reading.origin for case in stated] == ["marked"] * 3
    assert [case.response.reading.origin for case in prose] == ["prose"] * 2
    assert (prose.diagnosis.stratum, prose.diagnosis.apart.keys()) == (PROSE, {STATED})
    assert stated.diagnosis.readings == prose.diagnosis.readings
    compared = eclose.compare(run, run, origin="prose").comparison.overall
    assert (compared.run_responses, compared.base_responses) == (2, 2)
    with pytest.raises(UserError, match="has no response with hidden traces, only stated, prose ones"):
        count_runs([run], stratum=HIDDEN)


def test_gate_checks_prose_only_where_it_is_named():
    mixed, prose = read_cases(marked=40, prose=9), read_cases(prose=9, untraced=1)
    assert eclose.gate(mixed, min_trr=0.5).diagnosis.overall.responses == 40
    assert eclose.gate(mixed, min_trr=0.1, origin="prose").diagnosis.overall.responses == 9
    with pytest.raises(UserError, match=r"no response states its trace.* with --origin prose, or origin='prose'"):
        eclose.gate(prose, min_trr=0.1)
    assert eclose.gate(prose, min_trr=0.1, origin="prose").diagnosis.overall.responses == 10


def test_labels_of_a_stratum_keep_failures_and_missing_labels_of_their_own_responses():
    cases = [
        read_case(0, "prose", steps=(FAILS,)),
        read_case(1, "marked", steps=(FAILS, FAILS)),
        read_case(2, "prose", aligned=None),
        read_case(3, "marked"),
    ]
    counts = RunCounts.of(cases)
    assert [entry[0] for entry in counts.labels.step_failures.tolist()] == [0, 0]
    assert list(counts.case_set.cases) == [cases[1], cases[3]]
    assert RunCounts.of(cases, PROSE).labels.step_failures.tolist() == [[0, counts.labels.step_failures[0, 1]]]


def test_report_has_a_row_for_traces_reported_apart_and_says_how_responses_were_read():
    diagnosis = diagnose_cases(read_cases(marked=3, prose=2))
    page = render_markdown_report(diagnosis, ())
    assert "| apart: prose traces | 2" in page
    assert "How the responses were read" in page
    assert "Not counted in these rates: 2 responses with prose traces" in page
    assert '"apart": {\n  "prose": {' in render_diagnosis_json(diagnosis)
