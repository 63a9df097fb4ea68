"""Traces of spans, as stores and instrumentation write them."""
