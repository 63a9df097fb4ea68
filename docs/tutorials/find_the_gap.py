# %% [markdown]
# # Find the gap in a RAG system
#
# You have traces of a RAG system in an OTLP file, as the OpenTelemetry Collector writes it. You want to know which answers
# are unreliable and why. This tutorial takes a minute and needs no key:
#
# ```sh
# pip install 'eclose[world,figures]'
# ```
#
# ## The traces
#
# The questions here are made up, so that the truth is known. A system answers 100 of them and fails in every way there is.
# We write what its instrumentation would have recorded: a span for the request, one for the retriever with its documents,
# and one for the model.

# %%
import json
from pathlib import Path

from eclose_world.files import write_world_questions

failures = {"path_deviation": 0.08, "incomplete_reasoning": 0.06, "answer_decoupling": 0.08, "L1": 0.1}
write_world_questions(Path("world"), 100, profile="2wiki", seed=7, failures=failures)


def attributes(**values):
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def span(number, index, kind, values):
    parent = {} if kind == "CHAIN" else {"parentSpanId": f"{number:012x}0001"}
    values = {"openinference.span.kind": kind, **values}
    times = {"startTimeUnixNano": f"{index}", "endTimeUnixNano": f"{index + 1}"}
    ids = {"traceId": f"{number + 1:032x}", "spanId": f"{number:012x}{index:04x}"}
    return {**ids, **parent, **times, "name": kind.lower(), "kind": 1, "attributes": attributes(**values), "status": {}}


def read(name):
    return [json.loads(line) for line in Path("world", name).read_text().splitlines()]


questions = {question["id"]: question for question in read("instances.jsonl")}
with open("traces.jsonl", "w") as file:
    for number, response in enumerate(read("responses.jsonl")):
        question = questions[response["instance_id"]]
        documents = {}
        for index, passage in enumerate(question["evidence"]):
            documents[f"retrieval.documents.{index}.document.content"] = passage["text"]
            documents[f"retrieval.documents.{index}.document.metadata"] = json.dumps({"title": passage["title"]})
        steps = [f"{index}. {step['text']}" for index, step in enumerate(response["trace"]["steps"], 1)]
        completion = "\n".join([*steps, f"Final answer: {response['answer']}"])
        spans = [
            span(number, 1, "CHAIN", {"input.value": question["question"], "output.value": completion}),
            span(number, 2, "RETRIEVER", {"input.value": question["question"], **documents}),
            span(number, 3, "LLM", {"llm.model_name": "my-model", "output.value": completion}),
        ]
        file.write(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}) + "\n")

# %% [markdown]
# ## Judge
#
# `eclose.evaluate` reads the traces, asks a judge about each response, and diagnoses the result. With your own traces, name a
# model of your choice, such as `judge="openai/gpt-x"`, and a `budget`. Here the made-up world plays the judge, over HTTP; it
# errs in 2 of 100 decisions.

# %%
import eclose
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread

with ModelServerThread(build_world_handlers(judge_noise=0.02)) as server:
    free = eclose.CallSettings(unpriced=True)
    results = eclose.evaluate("traces.jsonl", judge=server.base_url, out="run", calls=free)
len(results)

# %% [markdown]
# Every trace is accounted for. A trace without a question, documents or an answer would be rejected with the reason.
#
# ## Read the rates

# %%
for name in ("LSR", "TRR", "LGG"):
    print(name, results.rates[name])

# %% [markdown]
# - **LSR**: traces in which every step holds. This is what a faithfulness metric measures.
# - **TRR**: traces that are reliable as a whole: sound, about the question, and establishing the answer.
# - **LGG**: traces in which every step holds and the whole does not. This is the gap.
#
# ## See which responses fail, and why

# %%
from collections import Counter

rows = results.to_dicts()
Counter(row["trace_group"] for row in rows)

# %% [markdown]
# The gap has a kind for each broken link. These traces have no reference answer, so a trace that does not establish the
# submitted answer is a closure failure; with references, it would be incomplete reasoning or answer decoupling.

# %%
import matplotlib.pyplot as plt

kinds = Counter(row["failure_class"].replace("_", " ") for row in rows if row["in_gap"])
figure, axes = plt.subplots(figsize=(6, 1.4))
axes.barh(list(kinds), list(kinds.values()), color="#d55e00")
axes.set_title("Responses in the gap, by kind", loc="left")
axes.spines[["top", "right"]].set_visible(False)
figure

# %% [markdown]
# Each response has a sentence on what is broken:

# %%
for kind in ("path_deviation", "closure_failure"):
    row = next(row for row in rows if row["failure_class"] == kind)
    print(row["question"])
    print("  submitted:", row["answer"])
    print("  reason:", row["failure"])

# %% [markdown]
# ## Write the report
#
# `report/report.html` is one file with all of this: rates, every response with its steps and quotes, filters, plots.

# %%
results.report("report")
sorted(path.name for path in Path("report").iterdir())

# %% [markdown]
# On the command line, the same is `eclose judge traces.jsonl --judge MODEL --budget 10 --out run` and `eclose diagnose run`.
# [Read traces](../guides/traces.md) lists the trace stores, and [Judge and diagnose](../guides/diagnose.md) explains the
# report. Next: [trust the judge](trust_a_judge.md) and [gate a pull request](gate_a_pull_request.md).
