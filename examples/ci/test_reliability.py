"""Check the limits of a judged run: after `eclose judge`, run `pytest test_reliability.py --junitxml junit.xml`.

A failure gives the reasons and the responses to look at first. The rates are printed at the end of the run.
"""

import os

from eclose.testing import assert_reliable

RUN = os.environ.get("RUN", "run")


def test_responses_are_reliable() -> None:
    """Check that enough responses are reliable, few are in the gap and nearly all are judged."""
    assert_reliable(RUN, min_trr=0.85, max_lgg=0.05, max_unjudged=0.02)
