"""Segmentation of a trace into steps (numbered lines, prose, or the log of an agent) and of prose into sentences.

The rules are deterministic and need no model. Every step is a piece of the original text, in which only line breaks
become blanks. Sentence rules are for English and for scripts with other full stops: abbreviations, initials, open
quotations and open parentheses do not end a sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.values.response import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Possessive quantifiers and the limited look-ahead keep the running time linear in the length of the text.
_END = re.compile(
    r"""(?<![.!?…。！？｡؟।])(?P<mark>[.!?…]++|[。！？｡؟।]++)"""
    r"""(?P<close>["'”’»)\]」』）*_]*+)"""
    r"""(?P<gap>\s++|(?<=[。！？｡])(?=[^\s.!?…。！？｡」』）、，,]))"""
    r"""(?=(?P<open>(?:["'“”‘«(\[「『（*_¡¿]++\s?)?)(?P<next>\S{1,40}))"""
)
_LAST_WORD = re.compile(r"[^\s(\[\"“‘«/–—]+$")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations that never end a sentence, because a name or another word must follow.
_BEFORE_A_NAME = _words(
    """
    mr mrs ms messrs mme mlle dr prof rev hon gen col maj capt cmdr cdr lt sgt cpl pvt adm brig sen rep gov pres supt fr
    mt ft dir v vs cf e.g i.e viz lit approx ca ph
    """
)
# Abbreviations before a number only; elsewhere ordinary words ("so the answer is no.", "there the cat sat.").
_BEFORE_A_NUMBER = _words(
    """
    no nos nr vol vols fig figs eq eqs sec ch p pp op ed art par b c d r fl est k
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun
    """
)
# Abbreviations that may end a sentence; the next word decides.
_EITHER = _words(
    "jr sr st ave blvd rd bros assn dept univ al eds et esp ph.d m.d b.a m.a b.sc m.sc d.phil lb lbs oz sq"
)
# Abbreviations that end a sentence before every capital letter.
_MOSTLY_LAST = _words("etc a.m p.m inc ltd co corp llc plc")
_ZONES = _words("EST EDT CST CDT MST MDT PST PDT ET CT PT GMT UTC BST CET CEST JST IST AEST Eastern Pacific Central")
# Words that start sentences but hardly ever names.
_BEGINNINGS = _words(
    """
    a an the this that these those it its he his she her they their we our you your i my there here who what when where
    which why how if in on at by for from to of with as and but or so yet nor not no yes all both each one some many
    most thus hence therefore then now later after before since because although though while during until however
    moreover furthermore also finally first second third next meanwhile additionally according based given let is are
    was were has have had did do does can only
    """
)
_OMISSION = re.compile(r"\.{2,}|…+")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
_INITIAL = re.compile(r"[^\W\d_]\.")
_NUMERAL = re.compile(r"\(?[#\d]|[IVXLC]{2,}\b|[VX]\b")
# "There are two: 1. Ada. 2. Eve.": the number belongs to the next word. A year at the end of a sentence does not.
_LIST_NUMBER = re.compile(r"(?:^|[:;]\s+)\(?\d{1,2}$")
# Longest quotation in characters: an inch sign must not join a page into one sentence.
_MAX_QUOTATION = 400
_PAIRS = {'"': '"', "(": ")", "[": "]", "“": "”", "«": "»", "「": "」", "『": "』", "（": "）"}


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a prose text.

    >>> split_sentences('Dr. Ruiz was born in St. Louis in 1.5 B.C. "Odd." She said so.')
    ['Dr. Ruiz was born in St. Louis in 1.5 B.C.', '"Odd."', 'She said so.']
    """
    text = text.strip()
    # In a text without capital letters, a small one may start a sentence.
    lowercase = text.islower()
    sentences, start = [], 0
    for match in _END.finditer(text):
        # The last words decide. Without the limit, a long text without sentences would take quadratic time.
        before = text[max(start, match.start("mark") - 80) : match.start("mark")]
        if _ends_sentence(before, match, lowercase=lowercase) and not _is_open(text, start, match.end("close")):
            sentences.append(text[start : match.end("close")])
            start = match.end("gap")
    return [*sentences, text[start:]] if text else []


def _ends_sentence(before: str, match: re.Match[str], *, lowercase: bool) -> bool:
    """Return whether a sentence ends at this mark, judging by the text on both sides."""
    following = match["next"]
    if following[0].islower() and not lowercase:
        # `"Stop!" she said`; "Help! was their fifth album".
        return False
    if match["open"].startswith("(") and following[0].isdigit():
        # "Cheer Up!" (2015).
        return False
    if _OMISSION.fullmatch(match["mark"]) and (before[-1:].isspace() or not before.strip("\"'“‘«([")):
        # "The name We Are ... Robin": an omission.
        return False
    last = (_LAST_WORD.search(before) or [""])[0]
    word = _bare(last)
    if match["mark"] != ".":
        # "Help!, their fifth album": no sentence starts with a comma. "Author! Author!" is one cry.
        return following[0] not in set(",;:.") and bool(before.strip()) and word != _bare(following)
    if last[-1:] in set("\"'”’»)]"):
        # "(X Ltd.).": the second full stop does not belong to the abbreviation.
        return True
    return not _LIST_NUMBER.search(before) and _can_be_last(word, match, following)


def _can_be_last(word: str, match: re.Match[str], following: str) -> bool:
    """Return whether a word with a full stop ends a sentence, rather than being an abbreviation inside it."""
    plain = word.lower()
    if plain in _BEFORE_A_NAME:
        return False
    if plain in _BEFORE_A_NUMBER and _NUMERAL.match(following):
        return False
    if plain in _MOSTLY_LAST:
        return bool(match["close"]) or (following[0].isupper() and _bare(following) not in _ZONES)
    if word == "I":
        # "So did I."; but "I. M. Pei".
        return not _INITIAL.match(following)
    # "J. K. Rowling", "the U.S. Senate", and "x" of an equation: the next word must look like a sentence start.
    if plain in _EITHER or _INITIALS.fullmatch(word):
        begins = _bare(following).lower() in _BEGINNINGS and not _INITIAL.match(following)
        return begins or _starts_quotation(match)
    return True


def _bare(word: str) -> str:
    """Return a word without the punctuation around it; initials keep theirs."""
    return word.strip("\"'“”‘’«»()[]*_,;:!?").removesuffix(".") if not _INITIALS.fullmatch(word) else word


def _starts_quotation(match: re.Match[str]) -> bool:
    """Return whether a quoted sentence follows: in 44 B.C. "Odd.", but not the U.S. "Billboard" charts."""
    opening = match["open"][:1]
    return opening in {'"', "“", "«"} and match["next"].rstrip('"”»')[-1:] in {".", "!", "?"}


def _is_open(text: str, start: int, end: int) -> bool:
    """Return whether a quotation or parenthesis inside the sentence is open at ``end`` and closed later."""
    # Stack of the closing characters that are due, each with the index of its opening.
    pending: list[tuple[str, int]] = []
    for index in range(start, end):
        char = text[index]
        if pending and char == pending[-1][0]:
            pending.pop()
        elif char in _PAIRS and (char != '"' or _is_opening(text, index)):
            pending.append((_PAIRS[char], index))
    # An opening at the very start does not count: all of a trace may be quoted.
    inner = [(closing, index) for closing, index in pending if index > start]
    if not inner or inner[0][1] <= end - _MAX_QUOTATION:
        return False
    return _is_closed(inner[0][0], text[end : end + _MAX_QUOTATION])


def _is_opening(text: str, index: int) -> bool:
    """Return whether a straight quotation mark opens: a word follows it, and none precedes it as with inches."""
    before, after = text[max(0, index - 1) : index], text[index + 1 : index + 2]
    return not before.isalnum() and before not in set(".,!?)") and bool(after.strip())


def _is_closed(closing: str, text: str) -> bool:
    """Return whether the closing character comes before another opening of its kind, which would mean a missing one."""
    for index, char in enumerate(text):
        if char == closing:
            return closing != '"' or not _is_opening(text, index)
        if _PAIRS.get(char) == closing:
            return False
    return False


class TraceLayout(StrEnum):
    """The layouts of a trace."""

    LINES = "lines"
    """One step per line, numbered or as a list."""
    PROSE = "prose"
    AGENT = "agent"
    """Thoughts, actions and observations."""
    EMPTY = "empty"
    """No trace: closure cannot be judged."""


@dataclass(frozen=True, slots=True)
class SegmentedTrace:
    """The steps of a trace, and the evidence inside it."""

    shape: TraceLayout
    trace: Trace
    observations: tuple[str, ...] = ()
    """Outputs of an agent's tools, which are evidence rather than reasoning."""


# "1." "(2)" "a)" "-" "•" "Step 3:" "**Step 3** -"; a number needs its punctuation and a gap: "1926 was warm", "3.5".
_MARKER = re.compile(
    r"^\s*(?:\(?(?P<number>\d{1,3})[.):]|\(?[A-Za-z]\)|[-*•–]"
    r"|[#>*_\s]*(?:[Ss]tep|STEP)\s+(?P<step>\d{1,3})[*_]*\s*(?:[.:)]|[-–—](?=\s))[*_]*)\s+(?=\S)"
)
_PART = re.compile(
    r"^[\s>#*_]*(?P<part>question|thought|reasoning|action input|action|observation|final answer|answer)\s*\d*\s*[*_]*"
    r"\s*:[*_]*\s*(?P<text>.*)$",
    re.IGNORECASE,
)
_THOUGHTS = frozenset({"thought", "reasoning"})
_LINE_BREAK = re.compile(r"\s*[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_UNFINISHED = re.compile(r"[^\W_][,;]?$|[,;–—-]$")


def segment_trace(text: str) -> SegmentedTrace:
    """Split a text into steps, by its layout.

    >>> segment_trace("1. Ada built it.\\n2. She was born in Lund.").trace.texts
    ('Ada built it.', 'She was born in Lund.')
    >>> segment_trace("Ada built it. She was born in Lund.").trace.texts
    ('Ada built it.', 'She was born in Lund.')
    """
    lines = text.splitlines()
    filled = [line for line in lines if line.strip()]
    if not filled:
        return SegmentedTrace(TraceLayout.EMPTY, Trace(()))
    if _is_log(filled):
        return _segment_log(filled)
    if _is_list(filled):
        return SegmentedTrace(TraceLayout.LINES, Trace.of(*_split_items(lines)))
    return SegmentedTrace(TraceLayout.PROSE, Trace.of(*_split_prose(lines)))


def segment_prose(text: str) -> Trace:
    """Return the sentences, list items and code blocks of an answer in prose; empty for a bare answer.

    A citation behind a full stop belongs to the sentence before it.

    >>> segment_prose("Ada built it. [1] She was born in Lund.[2] She died there.").texts
    ('Ada built it. [1]', 'She was born in Lund.[2]', 'She died there.')
    >>> segment_prose("Lund").texts
    ()
    """
    steps: list[str] = []
    for block, is_code in _split_blocks(text):
        if is_code:
            steps.append(_LINE_BREAK.sub(" ", block.strip()))
            continue
        lines = block.splitlines()
        filled = [line for line in lines if line.strip()]
        listed = _is_list(filled) or bool(_MARKER.match(filled[0]))
        steps += _split_items(lines) if listed else _split_prose(lines, _split_at_citations)
    # Rules and other lines without a word are layout.
    steps = [step for step in steps if any(map(str.isalnum, step))]
    is_bare = len(steps) == 1 and not (len(steps[0].split()) > 2 and _SENTENCE_END.search(steps[0]))
    return Trace(()) if is_bare else Trace.of(*steps)


# "[1]", "[1, 2]", "[^3]", "【4†source】", "(5)", as models cite passages; several may follow each other.
_CITATIONS = r"(?:\s?(?:\[\^?[\w .,:;–-]{1,30}\]|【[^】]{1,40}】|\(\d{1,3}\)))+"
_AFTER_CITATION = re.compile(rf"(?<=[.!?。！？])[\"'”’»*_]*{_CITATIONS}\s+(?=[\"'“‘«(*_]*[^\W_])")
_ONLY_CITATIONS = re.compile(rf"\s*{_CITATIONS}[.\s]*")
_SENTENCE_END = re.compile(rf"[.!?…。！？｡؟।][\"'”’»)\]*_]*(?:{_CITATIONS})?\s*$")
_FENCE = re.compile(r"^\s*(?:```|~~~)")


def _split_blocks(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the paragraphs of a text, and its fenced code blocks with True."""
    block: list[str] = []
    in_code = False
    for line in (*text.splitlines(), ""):
        is_fence = bool(_FENCE.match(line))
        if in_code:
            block.append(line)
            if is_fence:
                yield "\n".join(block), True
                block, in_code = [], False
        elif is_fence or not line.strip():
            if block:
                yield "\n".join(block), False
            block, in_code = ([line], True) if is_fence else ([], False)
        else:
            block.append(line)
    # A fence that is never closed: the rest is code.
    if block:
        yield "\n".join(block), in_code


def _split_at_citations(text: str) -> list[str]:
    """Return the sentences of a text with the citations behind each, which ``split_sentences`` leaves in the middle."""
    ends = [match.end() for match in _AFTER_CITATION.finditer(text)]
    steps: list[str] = []
    for start, end in zip([0, *ends], [*ends, len(text)], strict=True):
        for sentence in split_sentences(text[start:end]):
            if steps and _ONLY_CITATIONS.fullmatch(sentence):
                steps[-1] = f"{steps[-1]} {sentence}"
            else:
                steps.append(sentence)
    return steps


def trace_from_step_texts(texts: Sequence[str]) -> SegmentedTrace:
    """Take every text of a list as one step, without its number; join and segment the log of an agent."""
    steps = [_LINE_BREAK.sub(" ", text.strip()) for text in texts if text.strip()]
    if not steps:
        return SegmentedTrace(TraceLayout.EMPTY, Trace(()))
    if _is_log(steps):
        return segment_trace("\n".join(texts))
    # Markers are dropped only where all steps have one: a single "1)" may be part of the sentence.
    if all(map(_MARKER.match, steps)):
        steps = [_MARKER.sub("", step) for step in steps]
    return SegmentedTrace(TraceLayout.LINES, Trace.of(*steps))


def _is_log(lines: Sequence[str]) -> bool:
    """Return whether the lines hold observations together with thoughts or actions."""
    parts = {match["part"].lower() for line in lines if (match := _PART.match(line))}
    return "observation" in parts and bool(parts & (_THOUGHTS | {"action"}))


def _is_list(lines: Sequence[str]) -> bool:
    """Return whether the markers count up from one, or at least two markers make up half of the lines."""
    markers = [match for line in lines if (match := _MARKER.match(line))]
    numbers = [int(match["number"] or match["step"] or 0) for match in markers]
    if numbers and numbers == list(range(1, len(numbers) + 1)):
        return len(markers) >= 2 or bool(_MARKER.match(lines[0]))
    return len(markers) >= 2 and 2 * len(markers) >= len(lines)


def _split_items(lines: Sequence[str]) -> Iterator[str]:
    """Yield the items of a list; an unmarked line continues the item before it, unless it starts a paragraph."""
    item, after_blank = "", False
    for line in lines:
        if not line.strip():
            after_blank = True
            continue
        match = _MARKER.match(line)
        # An indented line continues its item even after a blank line, as in Markdown.
        if match is None and item and not (after_blank and not line[0].isspace()):
            item = f"{item} {line.strip()}"
        else:
            yield from [item] if item else []
            item = "" if match is None else line[match.end() :].strip()
            yield from split_sentences(line) if match is None else ()
        after_blank = False
    yield from [item] if item else []


def _split_prose(lines: Sequence[str], split: Callable[[str], list[str]] = split_sentences) -> Iterator[str]:
    """Yield the sentences of each line; a line that ends in mid-sentence continues on the next one."""
    paragraph: list[str] = []
    for line in map(str.strip, lines):
        if paragraph and not (_UNFINISHED.search(paragraph[-1]) and line[:1].islower()):
            yield from split(" ".join(paragraph))
            paragraph = []
        paragraph.append(line)
    yield from split(" ".join(paragraph))


def _segment_log(lines: Sequence[str]) -> SegmentedTrace:
    """Separate the thoughts and observations of a log by their labels."""
    thoughts: list[str] = []
    observations: list[str] = []
    # Agent prompts end in "Thought:", so text before the first label is a thought.
    part = "thought"
    for line in lines:
        match = _PART.match(line)
        part, text = (match["part"].lower(), match["text"]) if match else (part, line)
        # Questions, actions and answers go into a list that is dropped.
        target = thoughts if part in _THOUGHTS else observations if part == "observation" else []
        if match or not target:
            target.append(text.strip())
        else:
            target[-1] = f"{target[-1]}\n{text.strip()}"
    steps = (sentence for thought in thoughts for sentence in _split_prose(thought.splitlines()))
    texts = tuple(text.strip() for text in observations if text.strip())
    return SegmentedTrace(TraceLayout.AGENT, Trace.of(*steps), texts)
