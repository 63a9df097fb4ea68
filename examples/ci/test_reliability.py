"""The same limits as a test: after `eclose judge`, run `pytest test_reliability.py --junitxml junit.xml`.

It fails with the reasons and names the responses to look at first; the rates are told at the end of the run.
"""

import os

from eclose.testing import assert_reliable

RUN = os.environ.get("RUN", "run")


def test_responses_are_reliable() -> None:
    """Sound in every step, as a whole, and judged."""
    assert_reliable(RUN, min_trr=0.85, max_lgg=0.05, max_unjudged=0.02)
