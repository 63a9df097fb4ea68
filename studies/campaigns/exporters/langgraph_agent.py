"""LangChain's agent on LangGraph: its state in three notations, a structured response, and OpenInference's spans."""

from __future__ import annotations

import scene
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.load import dumpd
from langchain_core.messages import messages_to_dict
from langchain_openai import ChatOpenAI
from openinference.instrumentation.langchain import LangChainInstrumentor
from pydantic import BaseModel


class Answer(BaseModel):
    """The answer."""

    answer: str


def run(name: str, **settings: object) -> dict:
    model = ChatOpenAI(model=scene.MODEL, base_url=scene.find_model(name=name), api_key=scene.KEY)
    agent = create_agent(model, [scene.search], **settings)
    return agent.invoke({"messages": [{"role": "user", "content": scene.QUESTION}]})


LangChainInstrumentor().instrument(tracer_provider=scene.open_spans("openinference"))
state = run("state")
scene.write_record("messages_to_dict", {"messages": messages_to_dict(state["messages"])})
scene.write_record("model_dump", {"messages": [message.model_dump() for message in state["messages"]]})
scene.write_record("dumpd", {"messages": [dumpd(message) for message in state["messages"]]})
structured = run("structured", response_format=ToolStrategy(Answer))
scene.write_record(
    "structured_response",
    {
        "messages": messages_to_dict(structured["messages"]),
        "structured_response": structured["structured_response"].model_dump(),
    },
)
