"""Haystack: an agent with a tool, a pipeline with a retriever, and OpenInference's spans."""

from __future__ import annotations

import scene
from haystack import Document, Pipeline
from haystack.components.agents import Agent
from haystack.components.builders import AnswerBuilder, ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers import FilterRetriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import create_tool_from_function
from haystack.utils import Secret
from openinference.instrumentation.haystack import HaystackInstrumentor


def search(query: str) -> list:
    """Search the library for passages."""
    return scene.search(query)


def make_model(style: str, name: str) -> OpenAIChatGenerator:
    key = Secret.from_token(scene.KEY)
    return OpenAIChatGenerator(key, scene.MODEL, api_base_url=scene.find_model(style, name))


HaystackInstrumentor().instrument(tracer_provider=scene.open_spans("openinference"))
agent = Agent(chat_generator=make_model("tools", "agent"), tools=[create_tool_from_function(search)])
state = agent.run(messages=[ChatMessage.from_user(scene.QUESTION)])
scene.write_record("agent_state", {"messages": [message.to_dict() for message in state["messages"]]})

store = InMemoryDocumentStore()
store.write_documents(
    [
        Document(content=p["text"], meta={"title": p["title"]})
        for found in scene.SCENE["results"].values()
        for p in found
    ]
)
pipeline = Pipeline()
pipeline.add_component("retriever", FilterRetriever(store))
prompt = [ChatMessage.from_user("{% for d in documents %}{{d.content}} {% endfor %} {{question}}")]
pipeline.add_component("prompt", ChatPromptBuilder(prompt, required_variables="*"))
pipeline.add_component("model", make_model("reply", "pipeline"))
pipeline.add_component("answers", AnswerBuilder())
pipeline.connect("retriever.documents", "prompt.documents")
pipeline.connect("prompt.prompt", "model.messages")
pipeline.connect("model.replies", "answers.replies")
pipeline.connect("retriever.documents", "answers.documents")
question = scene.QUESTION
output = pipeline.run(
    {"prompt": {"question": question}, "answers": {"query": question}}, include_outputs_from={"retriever"}
)
answers = [answer.to_dict() for answer in output["answers"]["answers"]]
documents = [document.to_dict() for document in output["retriever"]["documents"]]
scene.write_record("pipeline", {"answers": {"answers": answers}, "retriever": {"documents": documents}})
