"""Counterfactual families, E-Closure training and studies.

The names below are the public interface. Each is loaded when it is first used, so importing the package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.lazy_names import make_lazy_names

__version__: str
"""Version of the installed distribution, which the build takes from the tag of the release."""

if TYPE_CHECKING:
    from eclose_train.construction.api import aconstruct, construct
    from eclose_train.construction.settings import ConstructSettings
    from eclose_train.families.comparisons import Comparison, Direction, Edge
    from eclose_train.training.api import SwitchResult, SwitchSettings, select, switch_test, train
    from eclose_train.training.loss import EClosureCollator, EClosureLoss, EClosureLossMixin
    from eclose_train.training.run import TrainingResult
    from eclose_train.training.select import Selection
    from eclose_train.verifier.fit import TrainedVerifier, train_verifier

# A second list beside the imports above, which only type checkers see: both name the same things.
_HOMES = {
    "eclose_train.construction.api": (
        "aconstruct",
        "construct",
    ),
    "eclose_train.construction.settings": ("ConstructSettings",),
    "eclose_train.families.comparisons": (
        "Comparison",
        "Direction",
        "Edge",
    ),
    "eclose_train.training.api": (
        "SwitchResult",
        "SwitchSettings",
        "select",
        "switch_test",
        "train",
    ),
    "eclose_train.training.loss": (
        "EClosureCollator",
        "EClosureLoss",
        "EClosureLossMixin",
    ),
    "eclose_train.training.run": ("TrainingResult",),
    "eclose_train.training.select": ("Selection",),
    "eclose_train.verifier.fit": (
        "TrainedVerifier",
        "train_verifier",
    ),
}

__all__ = [
    "Comparison",
    "ConstructSettings",
    "Direction",
    "EClosureCollator",
    "EClosureLoss",
    "EClosureLossMixin",
    "Edge",
    "Selection",
    "SwitchResult",
    "SwitchSettings",
    "TrainedVerifier",
    "TrainingResult",
    "aconstruct",
    "construct",
    "select",
    "switch_test",
    "train",
    "train_verifier",
]

__getattr__, __dir__ = make_lazy_names(__name__, _HOMES)
