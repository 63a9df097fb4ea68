"""Faulty material made on purpose: broken responses, bad sources and replies, and prompt injections."""
