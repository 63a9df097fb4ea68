"""Let a model answer questions: instances in, responses out, each with its trace, its answer and the raw completion.

The protocol of appendix A.2: the structured prompt, greedy decoding, one completion for each input, inputs in the order
of their ids. A generation without a finished answer is kept and counted, not asked again. A run may be killed at any
moment; the same call goes on, and what was answered is not asked, or paid, twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.benchmarks.layouts import Format
from eclose.benchmarks.load import detect_file, scan_instances
from eclose.calls.budget import CostEstimate, estimate_cost
from eclose.calls.client import CallSettings
from eclose.calls.run import ModelRun, RunObserver, RunResult, find_model_price, observe_nothing, run_models
from eclose.core.identity import content_hash
from eclose.core.instance import Instance
from eclose.core.response import Response
from eclose.errors import SettingError
from eclose.models.interface import ChatModel, Decoding, FinishReason, Reply, Request
from eclose.models.openai.failures import CallFailure, FailureKind
from eclose.models.resolve import LocalModelRef, ModelRef, ServedModelRef, find_model
from eclose.protocol.response_prompt import Order, ResponsePrompt
from eclose.store.records.sorted_spool import SortedSpool
from eclose.store.runs.folder import INSTANCES, RESPONSES
from eclose.store.runs.runner import Job, Rejection, decode_outcome
from eclose.store.runs.step import RunStep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.core.response import Source
    from eclose.models.openai.endpoint import ServerAddress
    from eclose.store.ledger.ledger import Ledger

JOB = "generate"
REFUSAL = "refusal"
_SAID = frozenset({FailureKind.LENGTH, FailureKind.EMPTY})
"""What is no failure here: the model answered, and what it said is an incomplete generation."""


@dataclass(frozen=True, kw_only=True)
class GenerateSettings:
    """What is asked and how the reply is drawn: everything that decides the responses, apart from model and questions.

    The defaults are the paper's.
    """

    demonstrations: int = 2
    order: Order = Order.EVIDENCE_FIRST
    max_new_tokens: int = 1_024
    max_length: int = 8_192
    """Most tokens of prompt and reply together, for a model that is loaded here. A server has a limit of its own."""
    thinking: bool | None = None
    """Whether a model that can think shall; None is off where the server is one's own, else left to the provider."""
    limit: int | None = None
    """Only so many questions, the first by id."""
    format: Format = Format.AUTO

    @property
    def prompt(self) -> ResponsePrompt:
        """What precedes a question."""
        return ResponsePrompt(self.demonstrations, self.order)


def incomplete(done: RunResult) -> Mapping[str, int]:
    """Generations without a submitted answer, by reason; part of the accepted."""
    found: Mapping[str, int] = done.manifest.calls["incomplete"]
    return found


@dataclass(frozen=True)
class Plan:
    """A run before it is begun: who is asked what, and where it goes."""

    model: ModelRef
    settings: GenerateSettings
    stage: RunStep
    _system: str = field(init=False)

    def __post_init__(self) -> None:
        """Responses of one system have a part of their ids in common, whatever file their questions came from."""
        object.__setattr__(self, "_system", content_hash(_deciding(self.model, self.settings))[7:19])

    @property
    def decoding(self) -> Decoding:
        """How a reply is drawn."""
        return _decoding(self.model, self.settings)

    def spool(self) -> SortedSpool[Instance]:
        """The questions in the order of their ids."""
        layout = Format(self.stage.settings["format"])
        return SortedSpool(Instance, scan_instances(self.stage.inputs[0], format=layout), limit=self.settings.limit)

    def request(self, instance: Instance) -> Request:
        """What is asked."""
        prompt = self.settings.prompt
        return Request(tuple(prompt.messages(instance.question, instance.evidence)), self.decoding)

    def response(self, instance: Instance, reply: Reply) -> Response:
        """What was said."""
        source: Source = self.model.source
        return Response.from_completion(
            f"{instance.id}-{self._system}",
            instance.id,
            reply.text,
            source,
            cut_off=reply.finish is not FinishReason.STOP,
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal as it is shown beside the responses."""

    problem: str
    raw: str | None


async def plan(
    instances: Path | str,
    model: ModelRef | str,
    out: Path | str,
    settings: GenerateSettings | None = None,
    *,
    deadline: float = 120.0,
    replay: bool = False,
) -> Plan:
    """What is to be done. A server is asked for its model's name where only its address is given."""
    settings = settings or GenerateSettings()
    model = find_model(model) if isinstance(model, str) else model
    if isinstance(model, ServedModelRef):
        if replay and not model.route.model:
            raise SettingError("a replay asks nobody, not even for a model's name. Name the model beside the base URL.")
        model = await model.settled(deadline)
    elif settings.thinking:
        raise SettingError("thinking: a model in this process is asked without. Use a server for it.")
    elif isinstance(model, LocalModelRef):
        model = replace(model, context=settings.max_length)
    path = Path(instances)
    layout = detect_file(path) if settings.format is Format.AUTO else settings.format
    told = _deciding(model, settings) | {
        "source": asdict(model.source),
        "limit": settings.limit,
        "format": layout.value,
    }
    return Plan(model, settings, RunStep("generate", told, (path,), Path(out) / RESPONSES))


def _deciding(model: ModelRef, settings: GenerateSettings) -> dict[str, Any]:
    return {
        **model.identity,
        "prompt": settings.prompt.hash,
        "demonstrations": settings.demonstrations,
        "order": settings.order.value,
        "decoding": _decoding(model, settings).plain,
    }


def _decoding(model: ModelRef, settings: GenerateSettings) -> Decoding:
    thinking = model.thinking if settings.thinking is None else settings.thinking
    return Decoding(max_tokens=settings.max_new_tokens, thinking=thinking)


def forecast(plan: Plan, calls: CallSettings | None = None) -> CostEstimate:
    """Calls, tokens and cost, before anything is sent. What a ledger already holds is not taken off."""
    price = find_model_price(plan.model, replace(calls or CallSettings(), unpriced=True, budget=None))
    with plan.spool() as spool:
        return estimate_cost((plan.request(one.value) for one in spool if one.value is not None), price)


async def generate(
    instances: Path | str,
    model: ModelRef | str,
    out: Path | str,
    settings: GenerateSettings | None = None,
    calls: CallSettings | None = None,
    *,
    ledger: Path | str | None = None,
    retry: bool = False,
    replay: bool = False,
    force: bool = False,
    watch: RunObserver = observe_nothing,
) -> RunResult:
    """Write ``responses.jsonl`` into a folder, with its manifest and what was set aside, and the questions beside it.

    What the flags mean says ``chat.inquiry.inquire``.
    """
    calls = one_completion(calls)
    planned = await plan(instances, model, out, settings, deadline=calls.deadline, replay=replay)
    inquiry = inquiry_of(planned, force=force)
    return await run_models(
        inquiry, [planned.model], calls, ledger=ledger, retry=retry, replay=replay, force=force, watch=watch
    )


def one_completion(calls: CallSettings | None) -> CallSettings:
    """One completion for each input: a bad answer is an answer."""
    return replace(calls or CallSettings(), semantic_attempts=1)


def inquiry_of(planned: Plan, *, force: bool = False) -> ModelRun[Instance]:
    """What is asked of the model about every question."""

    def jobs(asked: ChatModel) -> list[Job[Instance, Response]]:
        async def respond(instance: Instance) -> Response | Rejection:
            return await answer(asked, planned, instance)

        return [Job(JOB, respond, Response)]

    async def notes(ledger: Ledger) -> dict[str, Any]:
        return {"incomplete": await _incomplete(ledger), "engine": engine_facts(planned.model)}

    copy = partial(_copy_questions, planned, force=force)
    return ModelRun(planned.stage, planned.spool, lambda instance: instance.id, jobs, notes, copy)


async def make_inquiry(
    instances: Path,
    model: str,
    base_url: str | ServerAddress | None,
    out: Path,
    settings: GenerateSettings,
    deadline: float,
    *,
    force: bool,
) -> tuple[ModelRun[Instance], list[ModelRef]]:
    """The same on any machine, from what can be sent to it."""
    planned = await plan(instances, find_model(model, base_url=base_url), out, settings, deadline=deadline)
    return inquiry_of(planned, force=force), [planned.model]


def _copy_questions(planned: Plan, *, force: bool) -> None:
    """Copy the questions beside the responses, before any is asked, so that judging needs the folder alone.

    The copy is of the file as it is at the start: a change during the run is refused when the responses are written.
    """
    settings = {"limit": planned.settings.limit, "format": planned.stage.settings["format"]}
    copy = RunStep("generate instances", settings, planned.stage.inputs, planned.stage.out.with_name(INSTANCES))
    if copy.out.resolve() == planned.stage.inputs[0].resolve() or copy.finished(force=force) is not None:
        return
    with planned.spool() as spool:
        copy.write(spool)


async def _incomplete(ledger: Ledger) -> dict[str, int]:
    """Count the generations without a submitted answer, by reason."""
    reasons: Counter[str] = Counter()
    async for outcome in ledger.outcomes(JOB):
        if outcome.kind == "accepted" and (why := decode_outcome(Response, outcome).incomplete) is not None:
            reasons[why.value] += 1
    return dict(sorted(reasons.items()))


_PACKAGES = ("torch", "transformers", "tokenizers", "peft", "vllm")


def engine_facts(model: ModelRef) -> dict[str, Any]:
    """Return what computed the replies, for the manifest: engine, its versions, precision and device.

    Of a server nothing is known but that it is one: note its engine and versions beside the run.
    """
    if not isinstance(model, LocalModelRef):
        return {"engine": "server"}
    versions = {name: version(name) for name in _PACKAGES if find_spec(name) is not None}
    return {"engine": model.engine, "versions": versions, "dtype": _dtype(model), "device": _device()}


def _dtype(model: LocalModelRef) -> str:
    """Return the precision of the weights: as asked for, or, for ``auto``, as they were published."""
    if model.dtype != "auto" or model.weights.endswith(".gguf"):
        return model.dtype
    from eclose.models.weights import load_config  # noqa: PLC0415 - heavy

    published = getattr(load_config(model.weights, model.revision).get_text_config(), "dtype", None)
    return model.dtype if published is None else str(published).removeprefix("torch.")


def _device() -> str:
    import torch  # noqa: PLC0415 - heavy, and loaded by now

    if torch.cuda.is_available():
        return ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if accelerator is None else accelerator.type


async def answer(model: ChatModel, plan: Plan, instance: Instance) -> Response | Rejection:
    """One question to one model. What was cut off or empty is a response without an answer, a refusal is none."""
    try:
        reply = await model.complete(plan.request(instance))
    except CallFailure as failure:
        if failure.kind is FailureKind.REFUSAL:
            return Rejection(REFUSAL, Refused(failure.problem, failure.raw))
        if failure.kind not in _SAID or failure.reply is None:
            raise
        reply = failure.reply
    return plan.response(instance, reply)
