"""Assembly of cases from the spans of a trace: question, documents, steps and answer."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eclose.errors import RecordError
from eclose.readers.spans.content import (
    ChatMessage,
    find_answer,
    find_document_list,
    find_given_documents,
    find_questions,
    find_slots,
    read_messages,
    read_result,
    read_texts_of_documents,
)
from eclose.readers.spans.documents import RetrievedChunk
from eclose.readers.spans.selection import ROOT, CaseSelection, matches_selection, parse_json_text, resolve_pointer
from eclose.readers.spans.span import Span, SpanContent, SpanKind, first_attribute
from eclose.reading.messages import Part, PartKind, make_result, strip_code
from eclose.reading.shapes import SUBMITTING
from eclose.values.response import SpanRef
from eclose.values.times import normalize_time

NO_ANSWER = "no final answer"
NO_QUESTION = "no question"
SEVERAL_QUESTIONS = "several questions"
NO_DOCUMENTS = "no documents with text"
NO_ROOT = "root span not in the file"
NO_SPAN = "no span matches"
TIME_UNREAD = "time that cannot be read left out"
LOCAL_ROOT_NOTE = "top span taken as root, its parent is not in the file"
# What happens below these is not the reasoning of the response: a query is rewritten, a tool has a model of its own.
_OPAQUE = (SpanKind.RETRIEVER, SpanKind.RERANKER, SpanKind.TOOL)
_TOOL_NAMES = ("tool.name", "gen_ai.tool.name")


@dataclass(frozen=True, slots=True)
class TraceCase:
    """A question with the documents that were retrieved for it, the steps of the response, and its answer."""

    question: str
    documents: tuple[RetrievedChunk, ...]
    parts: tuple[Part, ...]
    """Thoughts, texts and observations in order, without the answer."""
    answer: str
    span: SpanRef
    model: str | None = None
    notes: tuple[str, ...] = ()
    time: str | None = None


class TraceRejection(Exception):  # noqa: N818 - not an error of the program or the file
    """Why a readable trace yields no case."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class CaseReader:
    """How cases are read from the traces of one dialect."""

    store: str
    read_content: Callable[[Span], SpanContent]
    find_switch: Callable[[Span], str]
    """Returns the setting that makes a producer record content."""
    selection: CaseSelection

    def read_cases(self, spans: Sequence[Span]) -> Iterator[TraceCase | TraceRejection]:
        """Yield every case of a trace, or why there is none.

        Raises:
            RecordError: The parents of the spans form a circle.
        """
        tree = _SpanTree(spans, self.read_content)
        notes: tuple[str, ...] = ()
        if self.selection.case != ROOT:
            chosen = [span for span in tree.spans if matches_selection(span, self.selection.case)]
            if not chosen:
                yield TraceRejection(f"{NO_SPAN} {self.selection.case!r}")
        else:
            chosen = tree.roots
            if not chosen:
                chosen, notes = tree.local_roots, (LOCAL_ROOT_NOTE,)
                if len(chosen) > 1:
                    yield TraceRejection(NO_ROOT)
                    return
        for span in chosen:
            try:
                yield self._read_case(span, tree, notes)
            except TraceRejection as rejection:
                yield rejection

    def _read_case(self, span: Span, tree: _SpanTree, notes: tuple[str, ...]) -> TraceCase:
        parts = _CaseParts(span, tree)
        if not any(tree.content[item.span_id].captured for item in parts.spans) and not self._has_pointers:
            raise TraceRejection(f"no content captured: {self.find_switch(parts.telling_span)}")
        question = self._read_question(span, parts)
        answer = self._read_answer(span, parts)
        documents = self._read_documents(span, parts)
        time = normalize_time(span.end) or normalize_time(span.start)
        unread = time is None and bool(span.end or span.start)
        return TraceCase(
            question=question,
            documents=documents,
            parts=tuple(_number_parts(parts.read_texts(answer))),
            answer=answer,
            span=SpanRef(span.trace_id, span.span_id, self.store),
            model=parts.model,
            notes=(*notes, TIME_UNREAD) if unread else notes,
            time=time,
        )

    @property
    def _has_pointers(self) -> bool:
        return any((self.selection.question, self.selection.documents, self.selection.answer))

    def _read_question(self, span: Span, parts: _CaseParts) -> str:
        pointer = self.selection.question
        if pointer is not None:
            questions = find_questions(resolve_pointer(dict(span.attributes), pointer))
        else:
            questions = parts.find_questions()
        if len(questions) > 1:
            raise TraceRejection(SEVERAL_QUESTIONS)
        if not questions:
            raise TraceRejection(NO_QUESTION if pointer is None else f"{NO_QUESTION} at {pointer}")
        return questions[0]

    def _read_answer(self, span: Span, parts: _CaseParts) -> str:
        pointer = self.selection.answer
        if pointer is not None:
            answer = find_answer(resolve_pointer(dict(span.attributes), pointer))
        else:
            answer = parts.find_answer()
        if answer is None:
            raise TraceRejection(NO_ANSWER if pointer is None else f"{NO_ANSWER} at {pointer}")
        return answer

    def _read_documents(self, span: Span, parts: _CaseParts) -> tuple[RetrievedChunk, ...]:
        pointer = self.selection.documents
        if pointer is None:
            documents, unread = parts.find_documents()
            if unread is not None and not documents:
                raise TraceRejection(f"{NO_DOCUMENTS}: {self.find_switch(unread)}")
            return documents
        value = resolve_pointer(dict(span.attributes), pointer)
        documents = _unique(
            read_texts_of_documents(find_document_list(value) or ([value] if isinstance(value, str) else []))
        )
        if not documents:
            raise TraceRejection(f"{NO_DOCUMENTS} at {pointer}")
        return documents


class _SpanTree:
    """The spans of a trace in order, by their parents."""

    def __init__(self, spans: Sequence[Span], read_content: Callable[[Span], SpanContent]) -> None:
        self.spans = sorted(spans, key=lambda span: span.start) if all(span.start for span in spans) else list(spans)
        self.content: Mapping[str, SpanContent] = {span.span_id: read_content(span) for span in spans}
        self._children: defaultdict[str | None, list[Span]] = defaultdict(list)
        for span in self.spans:
            self._children[span.parent_id].append(span)
        reached = sum(1 for root in (*self.roots, *self.local_roots) for _ in self.walk(root))
        if reached < len(self.spans):
            raise RecordError("the parents of its spans form a circle")

    @cached_property
    def roots(self) -> list[Span]:
        return self._children[None]

    @cached_property
    def local_roots(self) -> list[Span]:
        """The spans whose parent was recorded elsewhere, or not at all."""
        return [span for span in self.spans if span.parent_id is not None and span.parent_id not in self.content]

    def walk(self, span: Span) -> Iterator[Span]:
        """Yield the span and all below it, parents before children."""
        stack = [span]
        while stack:
            current = stack.pop()
            yield current
            stack += reversed(self._children.get(current.span_id, []))

    def walk_visible(self, span: Span) -> Iterator[Span]:
        """Yield the same, without what is below retrievers and tools."""
        stack = [span]
        while stack:
            current = stack.pop()
            yield current
            if self.content[current.span_id].kind not in _OPAQUE or current is span:
                stack += reversed(self._children.get(current.span_id, []))


class _CaseParts:
    """The parts of a case in its span and the spans below it."""

    def __init__(self, span: Span, tree: _SpanTree) -> None:
        self._tree = tree
        self._span = span
        self._case = tree.content[span.span_id]
        self.spans = list(tree.walk(span))
        visible = {item.span_id for item in tree.walk_visible(span)}
        order = {item.span_id: number for number, item in enumerate(tree.spans)}
        # By time, not by depth: a retriever beside an agent comes before the agent's own calls.
        self._visible = sorted(
            (item for item in self.spans if item.span_id in visible), key=lambda item: order[item.span_id]
        )
        self._below = [(item, tree.content[item.span_id]) for item in self._visible if item is not span]
        # A tool's documents are evidence; a result without any is an observation of the trace.
        self._tool_documents = {
            item.span_id: [] if _submits(item) else _read_tool_documents(tree.content[item.span_id].output)
            for item in self._visible
            if tree.content[item.span_id].kind is SpanKind.TOOL
        }
        self._calls = [content for _, content in self._below if content.kind is SpanKind.LLM]
        if self._case.kind is SpanKind.LLM:
            self._calls.insert(0, self._case)

    @property
    def telling_span(self) -> Span:
        """The first span of a known kind, whose dialect says how to record content."""
        known = (span for span in self.spans if self._tree.content[span.span_id].kind is not SpanKind.OTHER)
        return next(known, self.spans[0])

    @property
    def model(self) -> str | None:
        """The model of the last call, which wrote the answer."""
        names = (content.model for content in reversed([self._case, *self._calls]))
        return next((name for name in names if name), None)

    def find_questions(self) -> list[str]:
        if questions := find_questions(self._case.input):
            return questions
        # The root may be a request of a web framework; the first agent, chain or call below it holds the question.
        below = (content for _, content in self._below if content.kind not in (*_OPAQUE, SpanKind.OTHER))
        return next((questions for content in below if (questions := find_questions(content.input))), [])

    def find_answer(self) -> str | None:
        if (answer := find_answer(self._case.output)) is not None:
            return answer
        # An error of the last call leaves no answer, however much earlier calls said.
        return find_answer(self._calls[-1].output) if self._calls else None

    def find_documents(self) -> tuple[tuple[RetrievedChunk, ...], Span | None]:
        """Return the documents of all retrievers, and a retriever whose documents were not recorded."""
        contents = [(span, self._tree.content[span.span_id]) for span in self._visible]
        # A reranker passes on what the model reads; without one, all that was retrieved counts.
        reranked = [pair for pair in contents if pair[1].kind is SpanKind.RERANKER and pair[1].documents]
        sources = reranked or [pair for pair in contents if pair[1].kind is SpanKind.RETRIEVER]
        documents, unread = [], None
        for span, content in sources:
            texts = list(read_texts_of_documents(content.documents or []))
            documents += texts
            # A span with an input and no documents retrieved nothing; no setting hides them.
            if not texts and (content.documents or not content.captured):
                unread = span
        for tool_documents in self._tool_documents.values():
            documents += tool_documents
        if not documents and unread is None:
            documents = list(read_texts_of_documents(find_given_documents(self._case.input)))
        return _unique(documents), unread

    def read_texts(self, answer: str) -> Iterator[tuple[PartKind, str]]:
        """Yield the thoughts, texts and observations of the response in order.

        A trace that the application put out itself stands for what its models said on the way.
        """
        slots = find_slots(self._case.output)
        has_tools = any(content.kind is SpanKind.TOOL for _, content in self._below)
        seen: set[str] = set()
        has_call_texts = any(_has_text(content.output) for content in self._calls)
        case = [(self._span, self._case)] if self._case.kind is SpanKind.LLM else []
        for span, content in [*case, *self._below]:
            if content.kind is SpanKind.TOOL and _submits(span):
                continue
            if content.kind is SpanKind.TOOL and not self._tool_documents[span.span_id]:
                yield from _observe(content.output, seen)
            elif content.kind in _OPAQUE:
                # Its documents are passages; the part says that they were seen here.
                yield PartKind.RESULT, ""
            if content.kind is SpanKind.LLM and slots is None:
                # Where tools have no spans of their own, their results are in the next request of the model.
                for message in () if has_tools else read_messages(content.input) or ():
                    for result in message.tool_results:
                        yield from _observe(result, seen)
                yield from _think(content.output, answer, seen)
            elif content.kind is SpanKind.AGENT and not has_call_texts and content is not self._case and slots is None:
                yield from _think(content.output, answer, seen)
        for part in () if slots is None else slots.trace:
            for text in [part] if isinstance(part, str) else part:
                yield PartKind.SAID, text


def _submits(span: Span) -> bool:
    """Return whether a tool only takes the answer, so that what it returns is no evidence."""
    name = str(first_attribute(span.attributes, _TOOL_NAMES) or span.name)
    return name.lower().removesuffix(".__call__") in SUBMITTING


def _read_tool_documents(output: Any) -> list[RetrievedChunk]:
    """Return the documents of a tool that returned a list of them; none where its result is of another shape."""
    items = find_document_list(read_result(output))
    if not items or not all(isinstance(item, Mapping) for item in items):
        return []
    documents = list(read_texts_of_documents(items))
    return documents if len(documents) == len(items) else []


def _number_parts(texts: Iterable[tuple[PartKind, str]]) -> Iterator[Part]:
    """Yield texts as parts of messages of their own."""
    for number, (kind, text) in enumerate(texts):
        yield make_result(text, "", number) if kind is PartKind.RESULT else Part(kind, text, message=number)


def _observe(value: Any, seen: set[str]) -> Iterator[tuple[PartKind, str]]:
    """Yield the result of a tool as an observation, once."""
    value = read_result(value)
    text = value if isinstance(value, str) else find_answer(value)
    if text is None and value not in (None, "", [], {}):
        text = json.dumps(value, ensure_ascii=False, default=str)
    if text and text.strip() and text not in seen:
        seen.add(text)
        yield PartKind.RESULT, text


def _has_text(output: Any) -> bool:
    return bool(find_answer(output)) or any(message.reasoning for message in read_messages(output) or ())


def _think(output: Any, answer: str, seen: set[str]) -> Iterator[tuple[PartKind, str]]:
    """Yield the reasoning and the texts of a model's output, without the answer."""
    messages = read_messages(output)
    if messages is None:
        # What is prepared for a model, with its messages and tools, is none of its replies.
        is_request = isinstance(output := parse_json_text(output), Mapping) and bool(
            {"messages", "tools"} & output.keys()
        )
        text = None if is_request else find_answer(output)
        messages = [] if text is None else [ChatMessage("assistant", text)]
    for message in messages:
        for thought in message.reasoning:
            if thought.strip() and thought not in seen:
                seen.add(thought)
                yield PartKind.HIDDEN, thought
        text = strip_code(message.text) if message.is_reply else ""
        if text and answer.strip() not in (text, message.text.strip()) and text not in seen:
            seen.add(text)
            yield PartKind.SAID, text


def _unique(documents: Any) -> tuple[RetrievedChunk, ...]:
    by_text: dict[str, RetrievedChunk] = {}
    for document in documents:
        by_text.setdefault(" ".join(document.text.split()), document)
    return tuple(by_text.values())
