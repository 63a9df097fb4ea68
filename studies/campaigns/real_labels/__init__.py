"""Real responses with labels: people's traces, the same broken by hand, and model traces that people labelled.

Only labels, reasons and small spans of the traces lie here (``human.jsonl``, ``edits.jsonl``; see ``NOTICE.md``).
Questions, passages and whole traces are read from the data folder.
"""
