"""How the numbers of each group of tables follow from others; every module maps its tables in ``RESOLVERS``."""

from . import (
    ablations,
    annotation,
    construction,
    detectors,
    diagnosis,
    evaluator,
    experiment,
    human_audit,
    screening,
    switching,
)

MODULES = (
    screening,
    annotation,
    diagnosis,
    detectors,
    construction,
    evaluator,
    experiment,
    human_audit,
    ablations,
    switching,
)
