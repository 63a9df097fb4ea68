"""The scores of an Inspect log with their explanations, for judging whether the one establishes the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose.integrations.inspect.convert_samples import JUDGMENT
from eclose.integrations.inspect.import_log import format_sample, iterate_samples, read_question_text
from eclose.integrations.inspect.model import require_inspect
from eclose.judging.grader_closure import NO_EXPLANATION, UNSCORED, GraderStatement
from eclose.store.records.jsonl import ReadRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from inspect_ai.log import EvalSample
    from inspect_ai.scorer import Score, Value

# The letters that Inspect's scorers record, in words that an explanation can establish.
_GRADES = {"C": "correct", "I": "incorrect", "P": "partially correct", "N": "no answer"}


def scan_inspect_statements(log: Path) -> Iterator[ReadRecord[GraderStatement]]:
    """Yield a record for each score of a log; a score without an explanation is rejected with the reason.

    A score of several values gives a record for each. Scores of ``eclose/lgg`` hold a judgment with reasons of their
    own and are rejected: import them by ``eclose data from-inspect`` and judge the run's folder.
    """
    require_inspect()
    samples = _iterate_log(log)
    # Called inside a running loop, Inspect replaces asyncio.run for the whole process. A thread has no loop.
    with ThreadPoolExecutor(1) as thread:
        while (sample := thread.submit(next, samples, None).result()) is not None:
            yield from _read_sample(sample)


def _iterate_log(log: Path) -> Iterator[EvalSample]:
    from inspect_ai.log import read_eval_log  # noqa: PLC0415 - optional

    try:
        header = read_eval_log(log, header_only=True)
    except (ValueError, KeyError) as error:
        raise UserError(f"{log}: is no log of Inspect ({error}).") from error
    yield from iterate_samples(log, header)


def _read_sample(sample: EvalSample) -> Iterator[ReadRecord[GraderStatement]]:
    where = format_sample(sample.id, sample.epoch)
    if not sample.scores:
        yield ReadRecord(where, rejected=UNSCORED)
    question = read_question_text(sample)
    for name, score in (sample.scores or {}).items():
        if JUDGMENT in (score.metadata or {}):
            yield ReadRecord(f"{where} {name}", rejected="a judgment of eclose")
            continue
        values = score.value if isinstance(score.value, dict) else {None: score.value}
        for key, value in values.items():
            label = name if key is None else f"{name}.{key}"
            yield _read_score(f"{where} {label}", label, question, score, value)


def _read_score(
    where: str, label: str, question: str, score: Score, value: Value | None
) -> ReadRecord[GraderStatement]:
    if value is None or isinstance(value, list):
        return ReadRecord(where, rejected=UNSCORED)
    if not (score.explanation or "").strip():
        return ReadRecord(where, rejected=NO_EXPLANATION)
    words = _GRADES.get(value, value) if isinstance(value, str) else str(value)
    answer = "" if score.answer is None else f" The answer was “{score.answer}”."
    asked = f"Which score does the answer to “{question}” get by {label}?{answer}"
    return ReadRecord(where, value=GraderStatement(where, label, asked, words, score.explanation or ""))
