"""A model server on loopback that plays one agent: it announces, searches twice, and answers.

The path of a request, ``/STYLE/NAME/v1/...``, says how the model calls its tools and which conversation it is; the
number of requests on that path is the turn. Chat Completions, the Responses API and streams are answered.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_SUBMITTING = ("final_result", "final_answer", "Answer")


@dataclass(frozen=True, slots=True)
class AgentScript:
    """What the model says."""

    searches: tuple[tuple[str, str], ...]
    """Text and query of each search."""
    conclusion: str
    """Claims before the answer."""
    answer: str

    @property
    def reply(self) -> str:
        """The last message."""
        return f"{self.conclusion}\n\nAnswer: {self.answer}"

    def play(self, style: str, turn: int, request: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """Return the text of a turn, and the name and arguments of the tool that it calls."""
        is_last = turn >= len(self.searches)
        text, query = ("", "") if is_last else self.searches[turn]
        if style == "reply":
            return "\n".join([*(said for said, _ in self.searches[1:]), self.reply]), None
        if style == "fields":
            return self._write_fields(turn, request), None
        if style == "react":
            return self._write_log(turn, request), None
        if style == "code":
            code = f"final_answer({self.answer!r})" if is_last else f"print(search(query={query!r}))"
            return f"Thought: {text or self.conclusion}\n<code>\n{code}\n</code>", None
        if not is_last:
            return text, {"name": "search", "arguments": json.dumps({"query": query})}
        names = [tool.get("function", tool).get("name") for tool in request.get("tools") or ()]
        if (name := next((name for name in names if name in _SUBMITTING), None)) is not None:
            return self.conclusion, {"name": name, "arguments": json.dumps({"answer": self.answer})}
        return self.reply + ("\n\nTERMINATE" if style == "terminate" else ""), None

    def _write_log(self, turn: int, request: Mapping[str, Any]) -> str:
        """Return a turn of a log, with the label of the answer that the prompt asks for."""
        if turn < len(self.searches):
            text, query = self.searches[turn]
            return f"Thought: {text}\nAction: search\nAction Input: {json.dumps({'query': query})}"
        label = "Final Answer" if "Final Answer:" in json.dumps(request["messages"]) else "Answer"
        return f"Thought: {self.conclusion}\n{label}: {self.answer}"

    def _write_fields(self, turn: int, request: Mapping[str, Any]) -> str:
        """Return the fields that DSPy asks for."""
        if "next_tool_name" in json.dumps(request["messages"]):
            text, query = self.searches[turn] if turn < len(self.searches) else (self.conclusion, "")
            name, arguments = ("search", json.dumps({"query": query})) if query else ("finish", "{}")
            fields = {"next_thought": text, "next_tool_name": name, "next_tool_args": arguments}
        else:
            claims = " ".join([*(said for said, _ in self.searches[1:]), self.conclusion])
            fields = {"reasoning": claims, "answer": self.answer}
        return "\n\n".join([*(f"[[ ## {name} ## ]]\n{text}" for name, text in fields.items()), "[[ ## completed ## ]]"])


class ScriptedAgentServer:
    """A running server; ``base_url`` is its address without a style. A context manager."""

    def __init__(self, script: AgentScript) -> None:
        self.script = script
        self.turns: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _build_handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def base_url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _build_handler(server: ScriptedAgentServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            style, name = self.path.split("/")[1:3]
            turn = server.turns[name]
            server.turns[name] += 1
            text, call = server.script.play(style, turn, request)
            if self.path.endswith("/responses"):
                self._send(json.dumps(_build_response(request, turn, text, call)), "application/json")
                return
            completion = _build_completion(request, turn, text, call)
            if request.get("stream"):
                choice = completion["choices"][0]
                delta = choice.pop("message")
                delta["tool_calls"] = [{"index": 0, **made} for made in delta.get("tool_calls", ())]
                chunk = {**completion, "object": "chat.completion.chunk", "choices": [{**choice, "delta": delta}]}
                self._send(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", "text/event-stream")
            else:
                self._send(json.dumps(completion), "application/json")

        def _send(self, body: str, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *_: Any) -> None:  # noqa: A002 - its name there
            """Print nothing."""

    return Handler


def _build_completion(
    request: Mapping[str, Any], turn: int, text: str, call: Mapping[str, Any] | None
) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if call is not None:
        message["tool_calls"] = [{"id": f"call_{turn}", "type": "function", "function": call}]
    reason = "stop" if call is None else "tool_calls"
    return {
        "id": f"chatcmpl-{turn}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
    }


def _build_response(request: Mapping[str, Any], turn: int, text: str, call: Mapping[str, Any] | None) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed", "content": content}
    items = [message]
    if call is not None:
        made = {"type": "function_call", "id": f"fc_{turn}", "call_id": f"call_{turn}", "status": "completed"}
        items.append({**made, **call})
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": f"resp_{turn}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": request["model"],
        "output": items,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": request.get("tools", []),
        "usage": {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20, **details},
    }
