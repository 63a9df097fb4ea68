"""Campaigns and performance claims. With this package, helpers of the houses' tests are importable as ``tests``."""

import sys
from pathlib import Path

sys.path[:0] = map(str, Path(__file__).parents[1].glob("packages/*"))
