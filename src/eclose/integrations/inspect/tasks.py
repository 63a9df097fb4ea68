"""The three benchmarks as tasks of Inspect: the user's file, our response prompt, our judge.

One sample per question, and the question's id is the sample's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import Model
from inspect_ai.scorer import Scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from eclose.benchmarks.layouts import RecordLayout
from eclose.benchmarks.load import scan_instances
from eclose.benchmarks.two_wiki import read_aliases
from eclose.core.instance import Instance
from eclose.errors import UserError
from eclose.integrations.inspect.cases import INSTANCE, RELIABLE, instance_of, plain
from eclose.integrations.inspect.model import chat_messages
from eclose.integrations.inspect.scorer import lgg
from eclose.protocol.response_prompt import Order, ResponsePrompt
from eclose.store.records.counts import RecordCounter

VERSION = 1
"""Moves when scores may."""


@task
def hotpotqa(
    path: str,
    judge: str | Model | None = None,
    demonstrations: int = 2,
    order: str = Order.EVIDENCE_FIRST.value,
    max_new_tokens: int = 1_024,
    reference_free: bool = False,
) -> Task:
    """HotpotQA, from the user's own file."""
    prompt = ResponsePrompt(demonstrations, Order(order))
    return _benchmark(path, RecordLayout.HOTPOT, prompt, max_new_tokens, lgg(judge, reference_free))


@task(name="2wikimultihopqa")
def two_wiki(
    path: str,
    aliases: str | None = None,
    judge: str | Model | None = None,
    demonstrations: int = 2,
    order: str = Order.EVIDENCE_FIRST.value,
    max_new_tokens: int = 1_024,
    reference_free: bool = False,
) -> Task:
    """2WikiMultiHopQA, from the user's own file; ``aliases`` is the benchmark's id_aliases.json."""
    prompt = ResponsePrompt(demonstrations, Order(order))
    known = read_aliases(Path(aliases)) if aliases else None
    return _benchmark(path, RecordLayout.TWO_WIKI, prompt, max_new_tokens, lgg(judge, reference_free), known)


@task
def musique(
    path: str,
    judge: str | Model | None = None,
    demonstrations: int = 2,
    order: str = Order.EVIDENCE_FIRST.value,
    max_new_tokens: int = 1_024,
    reference_free: bool = False,
) -> Task:
    """MuSiQue, from the user's own file."""
    prompt = ResponsePrompt(demonstrations, Order(order))
    return _benchmark(path, RecordLayout.MUSIQUE, prompt, max_new_tokens, lgg(judge, reference_free))


@solver
def respond(demonstrations: int = 2, order: str = Order.EVIDENCE_FIRST.value, max_new_tokens: int = 1_024) -> Solver:
    """Ask with our response prompt, greedily: the same messages as ``eclose generate`` sends."""
    prompt = ResponsePrompt(demonstrations, Order(order))

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        instance = instance_of(state.sample_id, state.input_text, list(state.target), state.metadata)
        state.messages = chat_messages(prompt.messages(instance.question, instance.evidence))
        return await generate(state, max_tokens=max_new_tokens, temperature=0.0)

    return solve


def sample_of(instance: Instance) -> Sample:
    """A question as Inspect has it."""
    return Sample(
        id=instance.id,
        input=instance.question,
        target=list(instance.accepted_answers),
        metadata={INSTANCE: plain(instance)},
    )


def _benchmark(
    path: str,
    layout: RecordLayout,
    prompt: ResponsePrompt,
    max_new_tokens: int,
    judging: Scorer,
    aliases: Mapping[str, tuple[str, ...]] | None = None,
) -> Task:
    """A file of questions as a task. What is set aside is counted in its metadata, and what is wrong raises."""
    file, tally, samples = Path(path), RecordCounter(), []
    for record in scan_instances(file, layout=layout, aliases=aliases):
        tally.add(record)
        if record.error is not None:
            raise record.error
        if record.value is not None:
            samples.append(sample_of(record.value))
    if not samples:
        raise UserError(f"{file}: holds no question. Check that this is the file you meant.")
    return Task(
        dataset=MemoryDataset(samples, name=file.name, location=str(file)),
        solver=respond(prompt.demonstrations, prompt.order.value, max_new_tokens),
        scorer=judging,
        headline_metric=f"lgg.{RELIABLE}",
        version=VERSION,
        metadata={"questions": str(tally.counts()), "prompt": prompt.hash},
    )
