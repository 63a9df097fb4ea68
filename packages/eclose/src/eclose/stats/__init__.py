"""Statistics: intervals, bootstrap, coefficients, ranking, corrected rates."""
