"""Calls of models: paid once, within limits and budgets, resumed where a run broke off."""
