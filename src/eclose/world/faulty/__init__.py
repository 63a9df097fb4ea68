"""Faulty material made on purpose: broken responses, sources and replies, and prompt injections."""
