"""Quantiles of the beta distribution against scipy's."""

import numpy as np
import pytest
from scipy import stats

from eclose.stats import beta_quantiles
from eclose.stats.beta_quantiles import beta_survival, beta_upper_quantile

PARAMETERS = np.array([
    (1, 1), (1, 10), (1, 1e5), (1.4, 0.3), (2, 0.05), (3, 3), (97, 4), (4, 97), (950, 51), (5e4, 5e4), (3e3, 9.7e4)
]).T  # fmt: skip


@pytest.mark.parametrize("tail", [0.025, 0.1, 0.001])
def test_upper_quantiles_are_those_of_the_distribution(tail):
    a, b = PARAMETERS
    assert beta_upper_quantile(a, b, tail) == pytest.approx(stats.beta.isf(tail, a, b), abs=1e-9)


def test_a_float_and_an_array_give_the_same():
    for a, b in PARAMETERS.T:
        single = beta_upper_quantile(float(a), float(b), 0.025)
        assert isinstance(single, float)
        assert single == pytest.approx(float(beta_upper_quantile(np.array([a]), np.array([b]), 0.025)[0]), abs=1e-12)


def test_the_chance_of_a_greater_value():
    a, b = PARAMETERS
    mean = a / (a + b)
    x = mean + np.array([[0.01], [0.3], [0.9]]) * (1 - mean)
    assert beta_survival(x, a, b) == pytest.approx(stats.beta.sf(x, a, b), rel=1e-8, abs=1e-300)


def test_a_million_responses_converge():
    assert beta_upper_quantile(5e5, 5e5, 0.025) == pytest.approx(stats.beta.isf(0.025, 5e5, 5e5), abs=1e-9)


def test_what_does_not_converge_is_an_error_and_not_a_number(monkeypatch):
    with pytest.raises(ArithmeticError, match="incomplete beta function"):
        beta_survival(0.5 + 1e-9, 1e9, 1e9)
    monkeypatch.setattr(beta_quantiles, "_PRECISION", -1.0)
    with pytest.raises(ArithmeticError, match="quantile"):
        beta_upper_quantile(3.0, 3.0, 0.025)
