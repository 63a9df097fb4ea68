"""LlamaIndex: a function agent, a ReAct agent, a query engine with its nodes, and OpenInference's spans."""

from __future__ import annotations

import asyncio

import scene
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.llms.openai_like import OpenAILike
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor


def search(query: str) -> list:
    """Search the library for passages."""
    return scene.search(query)


class Library(BaseRetriever):
    """All passages of the scene."""

    def _retrieve(self, _: object) -> list:
        found = [passage for passages in scene.SCENE["results"].values() for passage in passages]
        nodes = [TextNode(text=passage["text"], metadata={"title": passage["title"]}) for passage in found]
        return [NodeWithScore(node=node, score=1.0) for node in nodes]


def make_model(style: str, name: str) -> OpenAILike:
    address = scene.find_model(style, name)
    return OpenAILike(
        scene.MODEL, api_base=address, api_key=scene.KEY, is_chat_model=True, is_function_calling_model=style == "tools"
    )


async def main() -> None:
    LlamaIndexInstrumentor().instrument(tracer_provider=scene.open_spans("openinference"))
    for name, kind, style in (("function", FunctionAgent, "tools"), ("react", ReActAgent, "react")):
        agent = kind(tools=[search], llm=make_model(style, name), streaming=False)
        result = await agent.run(scene.QUESTION)
        calls = [passage["text"] for call in result.tool_calls for passage in call.tool_output.raw_output]
        scene.write_record(
            f"{name}_agent", {"question": scene.QUESTION, "response": result.response.content, "contexts": calls}
        )
    model = make_model("reply", "engine")
    engine = RetrieverQueryEngine(Library(), get_response_synthesizer(llm=model))
    response = engine.query(scene.QUESTION)
    nodes = [node.model_dump(mode="json") for node in response.source_nodes]
    scene.write_record(
        "query_engine", {"question": scene.QUESTION, "response": response.response, "source_nodes": nodes}
    )


asyncio.run(main())
