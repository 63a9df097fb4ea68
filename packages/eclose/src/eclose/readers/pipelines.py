"""Records of chat APIs and pipelines, flattened to columns: question, documents, reference and response.

Chat completions and the Responses API of OpenAI keep request and reply apart; LangGraph keeps one list of messages;
Haystack keeps an object for each component. A flattened record has its paths in the original as keys, so that errors
name what the file has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError
from eclose.files.json_reader import JsonObject
from eclose.readers.conversion import ID_COLUMNS, ToolColumnNames, first_present_column
from eclose.readers.spans.documents import unwrap_serialized
from eclose.reading.messages import is_message_list
from eclose.reading.shapes import find_container

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REFERENCE_COLUMNS = ("reference", "reference_answer", "ground_truth", "expected_output", "expected_answer", "gold")
DOCUMENT_COLUMNS = ("documents", "source_documents", "context", "contexts", "retrieved_contexts", "retrieved_docs")
QUESTION_COLUMNS = ("query", "question", "query_str", "input", "user_input")
# Shapes in which an agent's own result holds what its tools returned.
_AGENT_RESULTS = frozenset({"agent steps", "trajectory", "run items", "crew", "executor"})

# Where logs keep a request and its reply, besides the record itself. A graph's output repeats its input messages.
_STATES = ("output", "outputs", "result", "response", "values", "state", "", "request", "request.body", "body", "input")
_REQUESTS = ("", "request", "request.body", "body", "inputs")
_REPLIES = ("response", "response.body", "completion", "reply", "output", "outputs", "result", "")
# Key of a reply in a flattened record, which no log has.
_REPLY = "reply beside the messages"
_API_KEYS = ("choices", "output", "status", "incomplete_details", "object")
_REPLY_TEXTS = ("response", "completion", "reply", "output", "answer")
_REPLY_NAMES = frozenset({*_REPLY_TEXTS, "structured_response", "model"})
_HOLDERS = frozenset({path.partition(".")[0] for path in (*_STATES, *_REQUESTS, *_REPLIES)} | {"messages", "choices"})


@dataclass(frozen=True, slots=True)
class _Conversation:
    """The messages of a record and the path of their list."""

    path: str
    messages: list[JsonObject]
    reply: Any = None
    """What stands beside them as the reply, in any form."""
    model: str | None = None

    @property
    def container(self) -> str:
        """Path of the object that holds the messages; empty for the record itself."""
        return self.path.rpartition(".")[0]


def holds_conversation(record: Mapping[str, Any]) -> bool:
    """Return whether a record holds messages, or the reply of a chat API."""
    conversation = _find_conversation(record)
    return bool(conversation.messages or _has_api_reply(record) or holds_agent_result(record))


def holds_agent_result(record: Mapping[str, Any]) -> bool:
    """Return whether a record is the result of an agent beside its question."""
    container = find_container(record)
    has_question = any(isinstance(record.get(name), str) for name in QUESTION_COLUMNS)
    return has_question and container is not None and container.name in _AGENT_RESULTS


def flatten_agent_result(record: JsonObject) -> tuple[JsonObject, ToolColumnNames]:
    """Return the result of an agent as the response to the question that stands beside it."""
    names = (*QUESTION_COLUMNS, *REFERENCE_COLUMNS, *ID_COLUMNS)
    fields = {name: record[name] for name in names if name in record}
    columns = ToolColumnNames(
        question=QUESTION_COLUMNS,
        passages=DOCUMENT_COLUMNS,
        reference=REFERENCE_COLUMNS,
        response=(_REPLY,),
        id=ID_COLUMNS,
        documents=True,
    )
    return {**fields, _REPLY: {name: value for name, value in record.items() if name not in fields}}, columns


def flatten_conversation(record: JsonObject) -> tuple[JsonObject, ToolColumnNames]:
    """Return a record of messages with its question, documents and reference as columns.

    Raises:
        RecordError: The record holds a reply without the request, or several replies.
    """
    conversation = _find_conversation(record)
    if not conversation.messages and holds_agent_result(record):
        return flatten_agent_result(record)
    if not conversation.messages:
        raise RecordError(
            "holds a reply without its question. Log the request beside it: "
            '{"messages": [...], "response": {...}}, or {"input": ..., "response": {...}} for the Responses API'
        )
    fields: JsonObject = {conversation.path: conversation.messages, _REPLY: conversation.reply}
    state = _get_fields(record, conversation.container) or {}
    prefix = conversation.container and f"{conversation.container}."
    holders = [
        *((name, record) for name in DOCUMENT_COLUMNS),
        *((f"{prefix}{name}", state) for name in DOCUMENT_COLUMNS),
    ]
    documents = next(
        ((path, value) for path, holder in holders if (value := holder.get(path.rpartition(".")[2]))), None
    )
    path = "documents" if documents is None else documents[0]
    if documents is not None:
        fields[path] = documents[1]
    names = (*REFERENCE_COLUMNS, *ID_COLUMNS)
    fields |= {name: record[name] for name in names if record.get(name) is not None and name not in fields}
    columns = ToolColumnNames(
        question=(conversation.path,),
        passages=(path,),
        reference=REFERENCE_COLUMNS,
        response=(_REPLY,),
        id=ID_COLUMNS,
        model=("model",),
        documents=True,
    )
    return {**fields, "model": conversation.model}, columns


def drop_conversation(record: JsonObject) -> JsonObject:
    """Return a record of messages, or of an agent's result, without what holds its messages and its reply."""
    container = None if _find_conversation(record).messages else find_container(record)
    paths = () if container is None else (*container.keys, *container.messages, *container.output, *container.finish)
    used = {path.partition(".")[0] for path in paths} | _REPLY_NAMES
    return {
        name: value
        for name, value in record.items()
        # A state may be a graph's, or a column with a name: "CA".
        if name not in used and not (name in _HOLDERS and isinstance(value, dict | list))
    }


def _find_conversation(record: Mapping[str, Any]) -> _Conversation:
    reply, model = _find_reply(record)
    for container in _STATES:
        fields = _get_fields(record, container)
        if fields is not None and is_message_list(fields.get("messages")):
            path = f"{container}.messages" if container else "messages"
            named = model or _find_model(fields["messages"]) or fields.get("model")
            return _Conversation(path, fields["messages"], reply, named if isinstance(named, str) else None)
    for container in _REQUESTS:
        fields = _get_fields(record, container)
        question = None if fields is None else fields.get("input")
        if is_message_list(question) or (isinstance(question, str) and _has_api_reply(record)):
            messages: Any = [{"role": "user", "content": question}] if isinstance(question, str) else question
            return _Conversation(f"{container}.input" if container else "input", messages, reply, model)
    return _Conversation("messages", [], reply, model)


def _find_reply(record: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Return the reply beside its request in the form in which it is there, and the model that wrote it."""
    for fields in _api_replies(record):
        model = fields.get("model")
        choices = fields.get("choices")
        if isinstance(choices, list) and len(choices) > 1:
            raise RecordError(f"choices: holds {len(choices)} replies. Write a record for each")
        message = {key: fields[key] for key in _API_KEYS if key in fields}
        return message, model if isinstance(model, str) else None
    for name in (*_REPLY_TEXTS, "structured_response"):
        reply = unwrap_serialized(record.get(name))
        holds_messages = isinstance(reply, dict) and is_message_list(reply.get("messages"))
        if isinstance(reply, str | dict | list) and reply and not holds_messages:
            return reply, _find_model([reply]) if isinstance(reply, dict) else None
    return None, None


def _has_api_reply(record: Mapping[str, Any]) -> bool:
    return next(_api_replies(record), None) is not None


def _api_replies(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the replies of chat completions (choices) and of the Responses API (items of output)."""
    for container in _REPLIES:
        fields = _get_fields(record, container)
        if fields is None:
            continue
        is_response = is_message_list(fields.get("output")) and all("type" in item for item in fields["output"])
        if is_message_list(fields.get("choices")) or is_response:
            yield fields


def _find_model(messages: list[JsonObject]) -> str | None:
    """Return the model that wrote the last message, as LangChain records it."""
    metadata = unwrap_serialized(messages[-1]).get("response_metadata")
    model = first_present_column(metadata, ("model_name", "model")) if isinstance(metadata, dict) else None
    return model if isinstance(model, str) else None


def _get_fields(record: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    fields: Any = record
    for key in path.split(".") if path else ():
        fields = fields.get(key)
        if not isinstance(fields, dict):
            return None
    return fields  # type: ignore[no-any-return]


def drop_components(record: JsonObject) -> JsonObject:
    """Return the output of a Haystack pipeline without its components."""
    return {name: value for name, value in record.items() if not isinstance(value, dict)}


def holds_pipeline_output(record: Mapping[str, Any]) -> bool:
    """Return whether a record holds replies or answers by component, as a Haystack pipeline returns them."""
    outputs = _components(record).values()
    return any(isinstance(output.get(key), list) for output in outputs for key in ("replies", "answers"))


def flatten_pipeline_output(record: JsonObject) -> tuple[JsonObject, ToolColumnNames]:
    """Return the output of a Haystack pipeline with its question, documents and reply as columns.

    Raises:
        RecordError: The output holds several answers or replies, or none.
    """
    components = _components(record)
    # The last component that has documents counts: a ranker comes behind its retriever.
    sources = [
        (f"{name}.documents", output["documents"]) for name, output in components.items() if output.get("documents")
    ]
    question = next((name for name in QUESTION_COLUMNS if isinstance(record.get(name), str)), QUESTION_COLUMNS[0])
    fields = {name: record.get(name) for name in (question, *REFERENCE_COLUMNS, *ID_COLUMNS) if name in record}
    path, answer = _single_reply(components)
    if isinstance(answer, dict) and "data" in answer:
        fields.setdefault(question, answer.get("query"))
        if answer.get("documents"):
            sources.append((f"{path}.documents", answer["documents"]))
        path, answer = f"{path}.data", answer["data"]
    fields[path] = answer
    documents = sources[-1][0] if sources else "documents"
    fields |= dict(sources[-1:])
    if fields.get(question) is None:
        raise RecordError(
            f"{question}: is missing. The output of a pipeline without an answer builder has no question: write it "
            'beside the output, {"query": question, **output}'
        )
    columns = ToolColumnNames((question,), (documents,), REFERENCE_COLUMNS, (path,), ID_COLUMNS, documents=True)
    return fields, columns


def _components(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {name: output for name, output in record.items() if isinstance(output, dict)}


def _single_reply(components: Mapping[str, Mapping[str, Any]]) -> tuple[str, Any]:
    """Return path and value of the only answer, or of the only reply of the last generator."""
    for key in ("answers", "replies"):
        outputs = [(name, output[key]) for name, output in components.items() if isinstance(output.get(key), list)]
        if not outputs:
            continue
        name, values = outputs[-1]
        if len(values) != 1:
            raise RecordError(
                f"{name}.{key}: holds {len(values)}, and one is judged at a time. Write a record for each"
            )
        return f"{name}.{key}[0]", values[0]
    raise RecordError("has neither answers nor replies of a component")
