"""Faulty material made on purpose: broken responses, bad sources and bad replies."""
