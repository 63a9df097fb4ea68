"""Shapes of containers and messages, as data: how each is recognised, and where its parts are.

A new producer is a row of ``CONTAINERS`` or a word in one of the tables of names; the code in ``messages`` is for no
producer of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Container(NamedTuple):
    """One way in which a producer wraps messages and their result."""

    name: str
    keys: tuple[str, ...]
    """Paths that an object of this shape has."""
    messages: tuple[str, ...] = ()
    """Paths of messages, items or calls, in order; all that are there are read."""
    output: tuple[str, ...] = ()
    """Paths of the application's result, in order of preference."""
    finish: tuple[str, ...] = ()
    """Paths of the reason why the reply ended."""


CONTAINERS = (
    Container("chat completion", ("choices",), ("choices",), finish=("choices.0.finish_reason",)),
    Container(
        "gemini", ("candidates",), ("candidates",), finish=("candidates.0.finishReason", "promptFeedback.blockReason")
    ),
    Container("gemini block", ("promptFeedback.blockReason",), finish=("promptFeedback.blockReason",)),
    Container("converse", ("output.message",), ("output.message",), finish=("stopReason",)),
    Container("graph", ("messages", "structured_response"), ("messages",), ("structured_response",)),
    Container("team", ("messages", "stop_reason"), ("messages",)),
    Container(
        "agent state", ("messages",), ("input", "messages", "output", "response"), ("final_output", "final_answer")
    ),
    Container("run items", ("new_items",), ("new_items",), ("final_output",)),
    Container("agent steps", ("steps.0.step_number",), ("steps",), ("output", "final_answer")),
    Container("agent steps", ("steps.0.task",), ("steps",), ("output", "final_answer")),
    Container("agent steps", ("steps.0.plan",), ("steps",), ("output", "final_answer")),
    Container("agent steps", ("steps.0.model_output",), ("steps",), ("output", "final_answer")),
    Container("generation", ("text", "finishReason"), ("steps",), ("text",), ("finishReason",)),
    Container("generation", ("text", "finish_reason"), ("steps",), ("text",), ("finish_reason",)),
    Container("generation", ("generated_text",), (), ("generated_text",), ("details.finish_reason",)),
    Container("executor", ("agent_thoughts",), ("agent_thoughts",), ("answer",)),
    Container("harness", ("resps", "doc"), (), ("resps.0.0",)),
    Container("crew", ("tasks_output", "raw"), ("tasks_output.-1.messages",), ("raw",)),
    Container("spans", ("gen_ai.output.messages",), ("gen_ai.input.messages", "gen_ai.output.messages")),
    Container("spans", ("gen_ai.input.messages",), ("gen_ai.input.messages",)),
    Container("spans", ("llm.output_messages",), ("llm.input_messages", "llm.output_messages")),
    Container("spans", ("llm.input_messages",), ("llm.input_messages",), ("output.value",)),
    Container("spans", ("output.value",), (), ("output.value",)),
    Container("calls", ("tools_called",), ("tools_called",), ("actual_output", "actualOutput")),
    Container("calls", ("toolsCalled",), ("toolsCalled",), ("actual_output", "actualOutput")),
    Container("executor", ("intermediate_steps",), ("intermediate_steps",), ("output", "answer", "result")),
    Container("trajectory", ("trajectory",), ("trajectory",), ()),
    Container("result", ("all_messages",), ("all_messages",), ("output", "data")),
    Container("turns", ("turns",), ("turns",)),
    Container("samples", ("user_input.0",), ("user_input",), ("response",)),
    Container("batch", ("response.body",), ("response.body",)),
    Container("items", ("output.0.type",), ("output",), (), ("incomplete_details.reason", "status")),
    Container("items", ("output.0.role",), ("output",), (), ("status",)),
    Container("items", ("output", "object"), ("output",), (), ("incomplete_details.reason", "status")),
    Container("message", ("message.role",), ("message",), finish=("finish_reason", "done_reason", "finishReason")),
    Container("message", ("message.content",), ("message",), finish=("finish_reason", "done_reason")),
)
"""Shapes by their keys; the first that fits counts."""

USER_ROLES = _words(
    """
    user human humanmessage user-prompt userpromptnode usermessage chatmessageuser requester
    """
)
MODEL_ROLES = _words(
    """
    assistant ai model chatbot agent bot aimessage aimessagechunk assistantmessage response message_output_item
    output textmessage thoughtevent toolcallsummarymessage multimodalmessage stopmessage handoffmessage
    assistant_message
    """
)
TOOL_ROLES = _words(
    """
    tool function toolmessage functionmessage observation tool-response ipython toolcallexecutionevent
    functionexecutionresultmessage tool_message environment
    """
)
OTHER_ROLES = _words(
    """
    system developer systemmessage system-prompt instructions platform memory remove
    """
)
ROLES = USER_ROLES | MODEL_ROLES | TOOL_ROLES | OTHER_ROLES

ROLE_KEYS = ("role", "type", "kind", "_type", "part_kind", "message_type", "author")
TEXT_TYPES = _words(
    """
    text input_text output_text message_text chunk answer string markdown textpart output_text_delta
    summary_text textcontent output_audio
    """
)
HIDDEN_TYPES = _words(
    """
    thinking reasoning redacted_thinking thought thoughts analysis reasoning_text reasoning_content
    reasoning_message reasoning_item reasoningcontent thinkchunk summary chain_of_thought reasoning-delta reasoningtext
    """
)
HIDDEN_KEYS = (
    "reasoning_content",
    "reasoning",
    "thinking",
    "reasoningContent",
    "reasoningText",
    "thoughts",
    "summary",
    "reasoning_details",
    "tool_plan",
)
CALL_TYPES = _words(
    """
    tool_use tool_call function_call server_tool_use tool-call toolcall functioncall tool_calls call
    dynamic-tool toolcallrequestevent tool_call_item handoff_call_item mcp_approval_request mcp_list_tools
    executable_code executablecode computer_call local_shell_call custom_tool_call mcp_call action agentaction
    tool_call_request functioncallcontent tool_call_message tool.execution
    """
)
RESULT_TYPES = _words(
    """
    tool_result tool_call_response function_call_output tool-return tool-result tool_output
    tool_call_output_item toolresult functionresponse code_execution_result web_search_tool_result
    mcp_tool_result tool_response custom_tool_call_output retry-prompt toolcallresponse tool_call_result
    computer_call_output functionresultcontent tool_return_message
    """
)
SILENT_TYPES = _words(
    """
    step-start step-finish source source-url source-document file image image_url input_image audio video
    document citation thinking_signature signature start-step finish-step data usage mcp_list_tools_item
    tool_reference handoff_output_item memoryqueryevent usermemory builtin-tool-call
    """
)
STREAM_TYPES = _words(
    """
    message_start message_delta message_stop content_block_start content_block_delta content_block_stop ping
    response.created response.in_progress response.completed response.output_item.added response.output_item.done
    response.content_part.added response.content_part.done response.output_text.delta response.output_text.done
    response.reasoning_summary_text.delta response.reasoning_text.delta response.function_call_arguments.delta
    response.reasoning_summary_text.done response.function_call_arguments.done
    """
)
MEDIA_TYPES = frozenset({"image", "image_url", "input_image", "audio", "input_audio", "video", "input_file"})
CALL_KEYS = ("tool_calls", "toolCalls", "function_call", "tool_call", "functionCall", "toolUse", "executableCode")
RESULT_KEYS = (
    "tool_call_result",
    "toolResult",
    "functionResponse",
    "codeExecutionResult",
    "toolResults",
    "tool_results",
)
RESULT_VALUES = ("tool_return", "results", "output", "outputs", "result", "response", "content", "text", "outcome")
ERROR_KEYS = ("isError", "is_error", "error", "isErrorResult")
TEXT_KEYS = ("text", "content", "value", "output_text", "refusal", "delta", "parts", "blocks", "transcript")
CONTENT_KEYS = ("content", "parts", "blocks", "items", "_content", "contents", "text", "refusal", "data")
WRAPPERS = ("message", "delta", "raw_item", "item", "chunk", "kwargs", "model_response", "content")
"""Keys of an object that only wraps a message."""

SUBMITTING = _words(
    """
    final_result final_answer finalanswer final_response submit submit_answer submit_final_answer submit_result
    finish answer respond response structured_output structuredoutput return_answer provide_answer give_answer
    send_message final_output return_final_answer output done attempt_completion report_answer set_answer
    """
)
"""Tools whose call is the answer."""

CUT_OFF = _words(
    """
    length max_tokens max_output_tokens model_length token_limit maxtokens max_length incomplete
    error_max_tokens model_context_window_exceeded content_length_limit max_turns max_iterations
    """
)
WITHHELD = _words(
    """
    content_filter content_filtered safety recitation blocklist prohibited_content spii guardrail_intervened
    blocked content-filter error failed cancelled error_toxic image_safety language
    """
)
FINISH_KEYS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason")


def get_path(value: Any, path: str) -> Any:
    """Return the value at a path of keys and indexes; a key with dots, as spans have it, is tried first."""
    if isinstance(value, Mapping) and path in value:
        return value[path]
    for key in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and key.removeprefix("-").isdigit():
            value = value[int(key)] if -len(value) <= int(key) < len(value) else None
        else:
            return None
    return value


def find_container(value: Mapping[str, Any]) -> Container | None:
    """Return the shape of an object; None where no row fits."""
    for container in CONTAINERS:
        if all(get_path(value, key) is not None for key in container.keys):
            return container
    return None
