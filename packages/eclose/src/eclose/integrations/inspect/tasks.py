"""The three benchmarks as tasks of Inspect, with the response prompt and the judge of eclose.

Questions are read from a file of the user. There is one sample per question, with the id of the question.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import Model
from inspect_ai.scorer import Scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from eclose.calls.inspect_model import build_inspect_messages
from eclose.errors import UserError
from eclose.files.outcome_counts import RecordCounter
from eclose.integrations.inspect.samples import INSTANCE, RELIABLE, instance_from_sample, record_to_json_dict
from eclose.integrations.inspect.scorer import lgg_scorer
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt
from eclose.readers.benchmarks import read_wikidata_aliases
from eclose.readers.import_settings import ImportSettings
from eclose.readers.layouts import RecordLayout
from eclose.readers.load import scan_instances
from eclose.values.instance import Instance

TASK_VERSION = 1
"""Version of the tasks; raised with every change that can affect scores."""


@task(name="hotpotqa")
def hotpotqa_task(
    path: str,
    judge: str | Model | None = None,
    demonstrations: int = 2,
    order: str = PromptOrder.EVIDENCE_FIRST.value,
    max_new_tokens: int = 1_024,
    reference_free: bool = False,
) -> Task:
    """Build the HotpotQA task from a file of the benchmark."""
    prompt = ResponsePrompt(demonstrations, PromptOrder(order))
    return _benchmark(path, RecordLayout.HOTPOT, prompt, max_new_tokens, lgg_scorer(judge, reference_free))


@task(name="2wikimultihopqa")
def two_wiki_task(
    path: str,
    aliases: str | None = None,
    judge: str | Model | None = None,
    demonstrations: int = 2,
    order: str = PromptOrder.EVIDENCE_FIRST.value,
    max_new_tokens: int = 1_024,
    reference_free: bool = False,
) -> Task:
    """Build the 2WikiMultiHopQA task from a file of the benchmark; ``aliases`` is its id_aliases.json."""
    prompt = ResponsePrompt(demonstrations, PromptOrder(order))
    alias_table = read_wikidata_aliases(Path(aliases)) if aliases else None
    return _benchmark(
        path, RecordLayout.TWO_WIKI, prompt, max_new_tokens, lgg_scorer(judge, reference_free), alias_table
    )


@task(name="musique")
def musique_task(
    path: str,
    judge: str | Model | None = None,
    demonstrations: int = 2,
    order: str = PromptOrder.EVIDENCE_FIRST.value,
    max_new_tokens: int = 1_024,
    reference_free: bool = False,
) -> Task:
    """Build the MuSiQue task from a file of the benchmark."""
    prompt = ResponsePrompt(demonstrations, PromptOrder(order))
    return _benchmark(path, RecordLayout.MUSIQUE, prompt, max_new_tokens, lgg_scorer(judge, reference_free))


@solver(name="respond")
def response_solver(
    demonstrations: int = 2, order: str = PromptOrder.EVIDENCE_FIRST.value, max_new_tokens: int = 1_024
) -> Solver:
    """Ask with the response prompt and greedy decoding, by the same messages as ``eclose generate``."""
    prompt = ResponsePrompt(demonstrations, PromptOrder(order))

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        instance = instance_from_sample(state.sample_id, state.input_text, list(state.target), state.metadata)
        state.messages = build_inspect_messages(prompt.messages(instance.question, instance.evidence))
        # Greedy, one completion for each input (appendix A.2).
        return await generate(state, max_tokens=max_new_tokens, temperature=0.0)

    return solve


def build_inspect_sample(instance: Instance) -> Sample:
    """Return a question as a sample of Inspect."""
    return Sample(
        id=instance.id,
        input=instance.question,
        target=list(instance.accepted_answers),
        metadata={INSTANCE: record_to_json_dict(instance)},
    )


def _benchmark(
    path: str,
    layout: RecordLayout,
    prompt: ResponsePrompt,
    max_new_tokens: int,
    judging: Scorer,
    aliases: Mapping[str, tuple[str, ...]] | None = None,
) -> Task:
    """Build a task from a file of questions; rejected records are counted in its metadata, malformed ones raise."""
    file, tally, samples = Path(path), RecordCounter(), []
    for record in scan_instances(file, aliases=aliases, settings=ImportSettings(format=layout)):
        tally.add(record)
        if record.error is not None:
            raise record.error
        if record.value is not None:
            samples.append(build_inspect_sample(record.value))
    if not samples:
        raise UserError(f"{file}: holds no question of this benchmark. Check the path.")
    return Task(
        dataset=MemoryDataset(samples, name=file.name, location=str(file)),
        solver=response_solver(prompt.demonstrations, prompt.order.value, max_new_tokens),
        scorer=judging,
        headline_metric=f"lgg.{RELIABLE}",
        version=TASK_VERSION,
        metadata={"questions": str(tally.counts()), "prompt": prompt.hash},
    )
