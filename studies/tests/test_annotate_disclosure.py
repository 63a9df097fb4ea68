"""Tests of ``studies/campaigns/annotate_disclosure.py``: its mutants fit the package as it is."""

from studies.campaigns import annotate_disclosure


def test_every_mutant_changes_the_package_and_names_a_test():
    assert annotate_disclosure.list_stale_mutants() == []


def test_stale_mutants_are_named_before_the_campaign_starts(monkeypatch):
    mutant = annotate_disclosure.MUTANTS[0]._replace(
        old="no such text", noticed_by="packages/eclose-annotate/tests/test_schema.py::test_missing"
    )
    monkeypatch.setattr(annotate_disclosure, "MUTANTS", (mutant,))
    text, test = annotate_disclosure.list_stale_mutants()
    assert "no such text" in text
    assert "test_missing" in test
