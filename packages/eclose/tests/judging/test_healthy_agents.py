"""Forty healthy tool agents, as spans and as plain messages, read from files and judged: none is in the gap."""

from __future__ import annotations

import asyncio
import json
from itertools import count

import pytest

from eclose.calls.model import FinishReason, Reply, TokenUsage
from eclose.diagnosis.diagnose import TraceStratum, diagnose_cases
from eclose.judging.judge_response import judge_response
from eclose.metrics.rates import Metric
from eclose.readers.import_settings import ImportSettings, TraceMode
from eclose.readers.judged_run import JudgedCase
from eclose.readers.load import scan_instances, scan_recorded_responses
from eclose.report.wording import describe_unread_traces
from eclose.values.judgment import UNSPLIT_ANSWER_REASON
from eclose.values.response import Response, Trace
from tests.readers.spans.files import make_span, wrap_spans, write_lines

PREAMBLES = (
    "I need the data sheet and the handbook to answer this. Let me search for the product.",
    "I'll look that up.",
    "Sure! Let me check the handbook for you.",
    "",
    "Great question! First, I'll find the team behind the {product}.",
    "To answer this, I need to look at the release notes of the {product}.",
    "Ich schlage das nach.",
    "Einen Moment bitte. Ich muss im Datenblatt des {product} nachsehen.",
    "Je vais consulter la fiche technique du {product}.",
    "Laissez-moi vérifier les conditions de garantie.",
    "Voy a buscar la ficha técnica del {product}.",
    "Devo consultare la scheda tecnica.",
    "Let's see which warehouse holds the {product}. I will call the stock tool now.",
    "**Searching the knowledge base** for the {product}...",
    "We should verify whether the {product} is covered. One moment.",
    "データシートを検索します。",
    "让我搜索一下数据表。",
    "Vou procurar a ficha técnica.",
    "Ik zoek het op in de handleiding.",
    "I have to determine who leads the team. What does the directory say?",
)
FINDING = "The {product} is made by the {team} team."
ANSWERS = (
    "{months} months.",
    "The {product} has a warranty of {months} months.",
    "The {product} is made by the {team} team. Its warranty runs {months} months. So {months} months are covered.",
    "The {product} is made by the {team} team.\nIts warranty runs {months} months.\nFinal answer: {months} months",
)
QUESTION = "How long is the warranty of the {product}?"
TEAMS = ("Netops", "Harbor", "Fjord", "Delta")


def make_agent(number: int) -> dict[str, str]:
    """Return the texts of an agent: preambles in turn, with and without a finding between two calls."""
    facts = {"product": f"Atlas X{number}", "team": TEAMS[number % 4], "months": str(12 + number)}
    texts = {
        "question": QUESTION,
        "preamble": PREAMBLES[number % len(PREAMBLES)],
        "result": "Handbook: the {product} belongs to the {team} team.",
        # Every third agent says what it found before it calls again.
        "between": f"{FINDING} Now let me check its warranty." if number % 3 == 0 else "Next, I'll check its warranty.",
        "second": "Data sheet of the {product}: warranty {months} months.",
        "answer": ANSWERS[number % len(ANSWERS)],
    }
    return {name: text.format(**facts) for name, text in texts.items()} | facts


def make_messages(agent: dict[str, str], number: int) -> object:
    """Return the conversation in OpenAI's plain form: as an object or a bare list, with contents as texts or parts."""
    calls = [{"id": f"c{number}", "type": "function", "function": {"name": "search", "arguments": "{}"}}]

    def content(text: str, kind: str = "text") -> object:
        return [{"type": kind, "text": text}] if number % 4 == 1 else text

    messages = [
        {"role": "system", "content": "You are a support agent."},
        {"role": "user", "content": content(agent["question"])},
        {
            "role": "assistant",
            "content": content(agent["preamble"]) if agent["preamble"] else None,
            "tool_calls": calls,
        },
        {"role": "tool", "tool_call_id": f"c{number}", "content": content(agent["result"])},
        {"role": "assistant", "content": content(agent["between"]), "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"c{number}", "content": json.dumps({"text": agent["second"]})},
        {"role": "assistant", "content": content(agent["answer"])},
    ]
    if number % 5 == 0:
        return {"id": f"agent-{number}", "messages": messages[:-1], "response": messages[-1]["content"]}
    return messages if number % 2 else {"messages": messages}


def make_spans(agent: dict[str, str], number: int) -> object:
    """Return the same agent as spans of the GenAI conventions: a root, two calls with their tools, and the answer."""
    at = count(1).__next__

    def said(text: str, *parts: object) -> str:
        return json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}, *parts]}])

    user = json.dumps([{"role": "user", "parts": [{"type": "text", "content": agent["question"]}]}])
    root = at()

    def span(operation: str, **attributes: str) -> dict[str, object]:
        names = {f"gen_ai__{name}": value for name, value in attributes.items()}
        return make_span(number + 1, at(), root, operation, gen_ai__operation__name=operation, **names)

    def tool(text: str) -> dict[str, object]:
        result = json.dumps({"results": [{"content": text}]}) if number % 2 else text
        return span("execute_tool", tool__name="search", tool__call__result=result)

    call = {"type": "tool_call", "id": "c1", "name": "search", "arguments": {}}
    spans = [
        span("chat", input__messages=user, output__messages=said(agent["preamble"], call)),
        tool(agent["result"]),
        span("chat", output__messages=said(agent["between"], call)),
        tool(agent["second"]),
        span("chat", output__messages=said(agent["answer"])),
    ]
    attributes = {"input__messages": user, "output__messages": said(agent["answer"])}
    names = {f"gen_ai__{name}": value for name, value in attributes.items()}
    return wrap_spans(
        make_span(number + 1, root, None, "invoke_agent", gen_ai__operation__name="invoke_agent", **names), *spans
    )


class HonestJudge:
    """Decides from the material of a request alone: a step that names a fact is sound, and a trace proves its facts."""

    name = "honest"

    async def complete(self, request):
        material = json.loads(request.messages[-1]["content"])
        steps = [step["text"] for step in material.get("steps", ())]
        facts = [fact for fact in (*TEAMS, "months") if any(fact in step for step in steps)]
        reply = {
            "judge_sufficiency": {"missing": None, "sufficient": True, "answer": None},
            "judge_soundness": {
                "steps": {str(step["id"]): self.judge_step(step) for step in material.get("steps", ())}
            },
            # A trace that claims nothing pursues the question and establishes no answer.
            "judge_alignment": {"pursued": "the question", "aligned": True},
            "judge_closure": {"established": None, "closed": "months" in facts},
        }[request.schema.name]
        text = json.dumps(reply if "steps" in reply else {"reason": "As the material says.", **reply})
        return Reply(text, FinishReason.STOP, TokenUsage(1, 1))

    def judge_step(self, step):
        claims = any(fact in step["text"] for fact in (*TEAMS, "months", "months."))
        return {"reason": "", "verdict": "sound" if claims else "not substantive", "support": None}


AGENTS = tuple(map(make_agent, range(40)))


def judge_file(path, mode=TraceMode.MARKED):
    settings = ImportSettings(trace=mode)
    instances = {record.value.id: record.value for record in scan_instances(path, settings=settings) if record.value}
    cases = []
    for record in scan_recorded_responses(path, settings=settings):
        assert record.value is not None, record
        instance = instances[record.value.instance_id]
        judgment = asyncio.run(judge_response(instance, record.value, HonestJudge()))
        cases.append(JudgedCase(instance, record.value, judgment))
    return cases


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Twenty agents as spans and twenty as messages, read from two files and judged."""
    folder = tmp_path_factory.mktemp("agents")
    spans = [make_spans(agent, number) for number, agent in enumerate(AGENTS) if number % 2]
    messages = [make_messages(agent, number // 2) for number, agent in enumerate(AGENTS) if number % 2 == 0]
    # The first record decides the layout of a file; lists and objects may follow each other.
    files = write_lines(folder / "spans.jsonl", *spans), write_lines(folder / "messages.jsonl", *messages)
    return {mode: [case for path in files for case in judge_file(path, mode)] for mode in TraceMode}


def test_no_healthy_agent_is_in_the_gap(judged):
    for cases in judged.values():
        assert len(cases) == len(AGENTS)
        assert [case.response for case in cases if case.verdict.in_gap] == []
        assert [case.response for case in cases if case.verdict.locally_sound is False] == []


def test_no_announcement_of_an_agent_is_a_step(judged):
    steps = {step for case in judged[TraceMode.MARKED] for step in case.response.trace.texts}
    assert [step for step in steps if not any(fact in step for fact in (*TEAMS, "months"))] == []
    # What an agent found between two calls is reasoning, and stays.
    cases = [case for case in judged[TraceMode.MARKED] if "is made by the" in " ".join(case.response.trace.texts[:1])]
    assert len(cases) >= len(AGENTS) // 3


def test_tool_results_are_evidence_and_the_last_message_is_the_answer(judged):
    for case in judged[TraceMode.MARKED]:
        texts = " ".join(passage.text for passage in case.instance.evidence)
        assert "Handbook" in texts
        assert "Data sheet" in texts
        assert "months" in (case.response.answer or "")
        assert "Handbook" not in " ".join(case.response.trace.texts)


def test_every_agent_is_counted_with_the_reason_of_its_missing_labels(judged):
    diagnosis = diagnose_cases(judged[TraceMode.MARKED])
    rates = diagnosis.overall.rates
    for metric in (Metric.GAP_RATE, Metric.TRACE_RELIABILITY_RATE, Metric.CLOSURE_RATE):
        assert rates[metric].n + rates[metric].unjudged == len(AGENTS)
    assert rates[Metric.GAP_RATE].value == 0
    assert sum(diagnosis.unread_traces.values()) == rates[Metric.CLOSURE_RATE].unjudged
    assert diagnosis.unread_traces[UNSPLIT_ANSWER_REASON] > 0
    (unsplit,) = describe_unread_traces(diagnosis.unread_traces, len(AGENTS))
    assert "C and K are not judged" in unsplit


def test_sentences_of_prose_answers_are_steps_where_that_is_chosen(judged):
    diagnosis = diagnose_cases(judged[TraceMode.PROSE])
    stated, prose = diagnosis.overall, diagnosis.apart[TraceStratum.PROSE]
    assert stated.responses + prose.responses == len(AGENTS)
    for rate in (group.rates[Metric.TRACE_RELIABILITY_RATE] for group in (stated, prose)):
        assert (rate.n > 0, rate.value) == (True, 1)


HOLLOW = Trace.of("The weather app is open here.")


@pytest.mark.parametrize("completion", [None, "The weather app is open here.\nAnswer: 12 months"])
def test_trace_without_a_claim_is_unknown_in_a_layout_of_another_tool(judged, completion):
    case = judged[TraceMode.MARKED][0]
    response = Response("r", case.instance.id, HOLLOW, "12 months", completion=completion)
    judgment = asyncio.run(judge_response(case.instance, response, HonestJudge()))
    assert judgment.verdict.in_gap is None
    assert [judgment.label(name) for name in "LACK"] == [None] * 4
    diagnosis = diagnose_cases([JudgedCase(case.instance, response, judgment)])
    assert (diagnosis.without_trace, list(diagnosis.unread_traces.values())) == (1, [1])
    (hollow,) = describe_unread_traces(diagnosis.unread_traces, 1)
    assert "no step claims anything" in hollow


def test_trace_without_a_claim_is_sound_in_the_layout_of_the_protocol(judged):
    case = judged[TraceMode.MARKED][0]
    text = "1. The weather app is open here.\nFinal answer: 12 months"
    response = Response.from_completion("r", case.instance.id, text)
    judgment = asyncio.run(judge_response(case.instance, response, HonestJudge()))
    assert (judgment.locally_sound, judgment.verdict.in_gap) == (True, True)
