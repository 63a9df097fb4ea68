"""DSPy: predictions of ReAct and of a chain of thought over passages, and OpenInference's spans."""

from __future__ import annotations

import dspy
import scene
from openinference.instrumentation.dspy import DSPyInstrumentor


def search(query: str) -> list:
    """Search the library for passages."""
    return scene.search(query)


def use_model(name: str) -> None:
    model = dspy.LM(f"openai/{scene.MODEL}", api_base=scene.find_model("fields", name), api_key=scene.KEY, cache=False)
    dspy.configure(lm=model)


DSPyInstrumentor().instrument(tracer_provider=scene.open_spans("openinference"))
use_model("react")
prediction = dspy.ReAct("question -> answer", tools=[search])(question=scene.QUESTION)
scene.write_record("react", {"question": scene.QUESTION, **prediction.toDict()})
use_model("chain")
context = [passage["text"] for found in scene.SCENE["results"].values() for passage in found]
prediction = dspy.ChainOfThought("context, question -> answer")(context=context, question=scene.QUESTION)
scene.write_record("chain_of_thought", {"question": scene.QUESTION, "contexts": context, **prediction.toDict()})
