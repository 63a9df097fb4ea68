"""Names of methods in tables."""

from __future__ import annotations

from eclose.core.response import UNTUNED_METHOD

REFERENCE_METHOD = "E-Closure"
"""The method whose gains over the others are reported."""

METHOD_NAMES = {
    UNTUNED_METHOD: "Backbone",
    "sft": "SFT",
    "cf_sft": "CF-SFT",
    "rm": "RM",
    "e_closure": REFERENCE_METHOD,
    "e_closure-S": "w/o S",
    "e_closure-T": "w/o T",
    "e_closure-C": "w/o C",
    "e_closure-one_sided": "One-sided",
}
"""Names of the methods in tables, by their names in recipes."""


def name_method(method: str) -> str:
    """Return the name of a method in tables; methods of others keep theirs."""
    return METHOD_NAMES.get(method, method)
