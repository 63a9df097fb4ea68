"""Segments of a text with their roles: claims, and what is none (plans, questions, fillers, layout, code).

Every segment is a piece of the text, in which only line breaks become blanks. Marked items stay one for one. Only
claims are steps; the others are kept with their role. A sentence that is not recognised stays a claim: a judge says
that it is not substantive, whereas a claim that was taken for a plan would be lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from eclose.reading.languages import Language, collect_texts, detect_language, latin_languages, load_languages
from eclose.values.segmentation import SentenceWords, split_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Role(StrEnum):
    """What a segment does in a response."""

    CLAIM = "claim"
    PLAN = "plan"
    QUESTION = "question"
    FILLER = "filler"
    RESTATEMENT = "restatement"
    NAMES_ANSWER = "names answer"
    ABSTENTION = "abstention"
    LAYOUT = "layout"
    CODE = "code"
    ANSWER = "answer"
    """Another answer than the submitted one."""
    HIDDEN = "hidden"
    """A claim of thinking beside a visible trace."""
    BEHIND = "behind the answer"
    BROKEN = "broken off"


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence, an item or a line of a text."""

    text: str
    role: Role = Role.CLAIM
    is_item: bool = False
    """Whether it is an item of a list."""
    is_heading: bool = False
    line: int = 0
    """Number of the line that it starts on."""


# "1." "(2)" "a)" "-" "•" "Step 3:" "**Step 3** -"; a number needs its punctuation and a gap: "1926 was warm", "3.5".
MARKER = re.compile(
    r"^\s*(?:\(?(?P<number>\d{1,3})[.):]|\(?[A-Za-z]\)|[-*•–]"
    r"|[#>*_\s]*(?:[Ss]tep|STEP|[Ss]chritt|[ÉéEe]tape|[Pp]aso|[Pp]asso|[Ss]tap|[Kk]rok|[Шш]аг)\s+(?P<step>\d{1,3})"
    r"[*_]*\s*(?:[.:)]|[-–—](?=\s))[*_]*)\s+(?=\S)"
)
_NO_MARKER = re.compile(r"(?!)")
_LINE_BREAK = re.compile(r"\s*[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+\s*")
_QUOTED = re.compile(r"^(?:\s*>)+ ?")
_UNFINISHED = re.compile(r"[^\W_][,;]?$|[,;–—-]$")
# "[1]", "[1, 2]", "[^3]", "【4†source】", "(5)", as models cite passages; several may follow each other.
_CITATIONS = r"(?:\s?(?:\[\^?[\w .,:;–-]{1,30}\]|【[^】]{1,40}】|\(\d{1,3}\)))+"
_AFTER_CITATION = re.compile(rf"(?<=[.!?。！？])[\"'”’»*_]*{_CITATIONS}\s+(?=[\"'“‘«(*_]*[^\W_])")
_ONLY_CITATIONS = re.compile(rf"\s*{_CITATIONS}[.\s]*")
SENTENCE_END = re.compile(rf"[.!?…。！？｡؟।۔][\"'”’»)\]」』）*_]*(?:{_CITATIONS})?\s*$")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_HEADING = re.compile(
    r"^\s*(?:#{1,6}\s+(?P<hash>.*?)\s*#*|[*_]{2}(?P<bold>[^*_\n]{1,80}?)(?:[*_]{2}\s*[:：]?|[:：][*_]{2}))\s*$"
)
_RULE = re.compile(r"^\s*(?:[-*_=–—]\s*){3,}$")
_TABLE_RULE = re.compile(r"^\s*\|?(?:\s*:?-{2,}:?\s*\|?)+\s*$")
_FOOTNOTE = re.compile(r"^\s*\[\^?\w{1,5}\]:?\s+\S.*|^\s*\[\^\w{1,20}\]:")
_LEAD_IN = re.compile(r"[:：][*_]*\s*$")
_MARKUP = re.compile(r"^[\s>#*_`•-]+|[\s*_`]+$")
_DISPLAY = re.compile(r"^\s*(?:\\\[|\$\$)\s*(?P<body>.*?)\s*(?:\\\]|\$\$)\s*[.,]?\s*$")
_QUESTION = re.compile(rf"[?？؟][)*_]*(?:{_CITATIONS})?$")
# A longer sentence announces nothing: it stays a claim, in whatever time its length would take.
_MAX_ANNOUNCEMENT = 1000
# Behind a colon, a semicolon or a dash another sentence may stand, which is a claim if it has four words.
_SECOND_SENTENCE = re.compile(r"(?:(?<! for):|;|\s[–—-]|，)\s+(?:\S+\s+){3}\S")
_EMPHASIS = re.compile(r"[*_`]+")


def strip_emphasis(text: str) -> str:
    """Return a text without the marks of Markdown for emphasis and code."""
    return _EMPHASIS.sub("", text)


@cache
def _source_line() -> re.Pattern[str]:
    texts = "|".join(collect_texts("sources"))
    return re.compile(
        rf"^[\s>#*_(\[]*(?:{texts})\s*[*_]*\s*[:：][*_]*\s*(?P<rest>.*)$|^[\s#*_]*(?:{texts})[\s*_]*$", re.I
    )


@dataclass(frozen=True, slots=True)
class Words:
    """The languages of a text: its own, and English for what models write in any."""

    main: Language
    all: tuple[Language, ...]

    @classmethod
    @cache
    def of(cls, language: Language) -> Words:
        """Return the words of a language."""
        english = load_languages()["en"]
        return cls(language, (language,) if language is english else (language, english))

    @classmethod
    def detect(cls, text: str, question: str = "") -> Words:
        """Return the words of a text's language; those of all languages in Latin letters where it has too few."""
        language, is_sure = detect_language(text)
        if is_sure:
            return cls.of(language)
        if question:
            language, _ = detect_language(text, detect_language(question)[0])
        return cls(language, (language, *(other for other in latin_languages() if other is not language)))

    @property
    def sentences(self) -> SentenceWords:
        """Abbreviations and beginnings of its sentences."""
        return self.main.sentence_words

    def find_role(self, text: str) -> Role:
        """Return the role of a sentence.

        >>> words = Words.of(load_languages()["en"])
        >>> texts = ("I need the data sheet.", "Let me check: the K5 needs 9 to 36 V DC.")
        >>> [words.find_role(text).value for text in texts]
        ['plan', 'claim']
        """
        if len(text) > _MAX_ANNOUNCEMENT:
            return Role.CLAIM
        bare = _MARKUP.sub("", text.replace("’", "'").replace("\n", " "))
        if not any(map(str.isalnum, bare)):
            return Role.LAYOUT
        if _QUESTION.search(bare):
            return Role.QUESTION
        if self.match_named_answer(text) is not None:
            return Role.NAMES_ANSWER
        if "=" in bare or not any(map(str.isalpha, bare)):
            return Role.CLAIM
        for language in self.all:
            if (role := _announce(bare, language)) is not None:
                # "I could not find it": what was sought is not there.
                return Role.CLAIM if self.abstains(bare) else role
        return Role.CLAIM

    def match_named_answer(self, text: str) -> str | None:
        """Return the answer of a sentence that calls itself the answer."""
        bare = strip_emphasis(text.strip())
        for language in self.all:
            for pattern in language.naming:
                if (match := pattern.fullmatch(bare)) is not None:
                    return str(match["answer"]).strip().removesuffix(".").removesuffix("。").strip("*_ ") or None
        return None

    def abstains(self, text: str) -> bool:
        """Return whether a sentence says that there is no answer."""
        return any(language.abstention.search(bare) for language, bare in self._find_denials(text))

    def marks_no_answer(self, text: str) -> bool:
        """Return whether a whole text stands for no answer, such as "unknown"."""
        bare = text.strip(" .*_\n")
        return len(bare) < 100 and any(language.empty_slot.fullmatch(bare) for language in self.all)

    def denies(self, text: str) -> bool:
        """Return whether a sentence says that there is no answer, or that the documents lack something."""
        return any(
            language.abstention.search(bare) or language.lack.search(bare)
            for language, bare in self._find_denials(text)
        )

    def _find_denials(self, text: str) -> list[tuple[Language, str]]:
        """Return the languages in which a sentence may say that there is none of something, with its words."""
        bare = _MARKUP.sub("", text.replace("’", "'"))
        lowered = bare.lower()
        return [(language, bare) for language in self.all if language.denial.search(lowered)]


def _announce(text: str, language: Language) -> Role | None:
    """Return plan, filler or restatement where a sentence is one of these and claims nothing behind it."""
    if language.whole_plan.search(text):
        return Role.PLAN
    lead = language.filler.match(text)
    rest = text[lead.end() :] if lead else text
    if not rest:
        return Role.FILLER
    for pattern, role in ((language.plan, Role.PLAN), (language.restatement, Role.RESTATEMENT)):
        if (opening := pattern.match(rest)) is not None:
            behind = rest[opening.end() :]
            if not (_SECOND_SENTENCE.search(rest) or language.statement.match(behind)):
                return role
    return None


def segment_text(text: str, words: Words) -> list[Segment]:
    """Return the segments of a text in order, with their roles."""
    return list(_segment_lines(text.splitlines(), words))


def segment_claims(text: str, words: Words) -> list[Segment]:
    """Return the segments of a text that was written as a trace; a list in it stays one item for one."""
    segments = segment_text(text, words)
    if sum(segment.is_item for segment in segments) < 2:
        return segments
    marked = (Role.PLAN, Role.RESTATEMENT, Role.QUESTION, Role.FILLER)
    return [
        Segment(part.text, Role.CLAIM, part.is_item, part.is_heading, part.line)
        if part.is_item and part.role in marked
        else part
        for part in segments
    ]


def _is_list(lines: Sequence[str]) -> bool:
    """Return whether there are two markers, or one that counts from one at the start."""
    filled = [line for line in lines if line.strip()]
    markers = [match for line in filled if (match := MARKER.match(_strip_quotation(line)))]
    if len(markers) > 1 or not markers:
        return bool(markers)
    return bool(MARKER.match(filled[0])) and int(markers[0]["number"] or markers[0]["step"] or 0) == 1


def _strip_quotation(line: str) -> str:
    """Return a line without the marks of a quotation before it."""
    return _QUOTED.sub("", line) if ">" in line else line


def join_lines(text: str) -> str:
    """Return a text on one line: each break with the blanks around it is a blank."""
    # A break is not printable, and most texts have none.
    return text if text.isprintable() else _LINE_BREAK.sub(" ", text)


def _segment_lines(lines: Sequence[str], words: Words) -> Iterator[Segment]:
    """Yield the segments of a text by its lines: code, headings, tables, lists, sources and sentences."""
    paragraph: list[str] = []
    start, number, in_sources = 0, 0, False
    marker = MARKER if _is_list(lines) else _NO_MARKER
    while number < len(lines):
        line = _strip_quotation(lines[number])
        block = _find_block(lines, number, line)
        is_source = bool(_source_line().match(line) or _FOOTNOTE.match(line) or _is_farewell(lines, number))
        is_item = marker.match(line) is not None
        is_boundary = block is not None or is_source or not line.strip() or is_item or in_sources
        if paragraph and (is_boundary or not _continues(paragraph[-1], line)):
            yield from _segment_paragraph(" ".join(paragraph), words, start)
            paragraph = []
        if block is not None:
            yield from (Segment(part.text, part.role, part.is_item, part.is_heading, number) for part in block.segments)
            in_sources = False
            number = block.end
            continue
        if is_source or (in_sources and line.strip()):
            yield Segment(line.strip(), Role.LAYOUT, line=number)
            match = _source_line().match(line)
            in_sources = in_sources or bool(match and not match["rest"]) or _is_farewell(lines, number)
        elif is_item:
            end, item = _join_item(lines, number, line)
            yield from _segment_item(item, _is_label(lines, number, end, item), words, number)
            number = end
            continue
        elif line.strip():
            start = start if paragraph else number
            paragraph.append(line.strip())
        number += 1
    if paragraph:
        yield from _segment_paragraph(" ".join(paragraph), words, start)


@dataclass(frozen=True, slots=True)
class _Block:
    """Lines that are no sentences, and where they end."""

    segments: tuple[Segment, ...]
    end: int


def _find_block(lines: Sequence[str], number: int, line: str) -> _Block | None:
    """Return a line of a letter, code, a heading, a rule, a row of a table or a displayed equation at this line."""
    if not (bare := line.strip()):
        return None
    if _is_letter_line("salutations", line) or _is_letter_line("subjects", line):
        return _Block((Segment(bare, Role.LAYOUT),), number + 1)
    # All others begin with a sign.
    return None if bare[0].isalnum() else _find_signed_block(lines, number, line, bare)


def _find_signed_block(lines: Sequence[str], number: int, line: str, bare: str) -> _Block | None:
    if _FENCE.match(line):
        end = next((at for at in range(number + 1, len(lines)) if _FENCE.match(lines[at])), len(lines) - 1) + 1
        return _Block((Segment(" ".join(part.strip() for part in lines[number:end]), Role.CODE),), end)
    if (match := _DISPLAY.match(line)) is not None:
        return _Block((Segment(match["body"]),), number + 1)
    if bare in ("\\[", "$$"):
        closing = ("\\]", "$$")
        # A display is short; without the limit a text of opening signs alone would take quadratic time.
        end = min(len(lines), number + _LONGEST_DISPLAY)
        closed = next((at for at in range(number + 1, end) if lines[at].strip() in closing), None)
        if closed is not None:
            return _Block((Segment(" ".join(part.strip() for part in lines[number + 1 : closed])),), closed + 1)
    if bare.startswith("|") and line.count("|") > 1:
        following = lines[number + 1] if number + 1 < len(lines) else ""
        is_layout = bool(_TABLE_RULE.match(line) or _TABLE_RULE.match(following))
        return _Block((Segment(bare, Role.LAYOUT if is_layout else Role.CLAIM, is_item=True),), number + 1)
    if _RULE.match(line):
        return _Block((Segment(bare, Role.LAYOUT),), number + 1)
    match = _HEADING.match(line)
    if match is not None and not SENTENCE_END.search(match["hash"] or match["bold"] or ""):
        text = (match["hash"] or match["bold"] or "").strip(" *_:：")
        return _Block((Segment(text, Role.LAYOUT, is_heading=True),), number + 1)
    return None


_LONGEST_FAREWELL = 5
"""Lines of a farewell with the names behind it."""
_LONGEST_QUOTATION = 500
"""Lines of a letter that is quoted below another."""
_LONGEST_DISPLAY = 60
"""Lines of a displayed equation."""


@cache
def _letter_line(kind: str) -> re.Pattern[str]:
    """Return a line that opens or ends a letter: "Dear Ms Rowe,", "Kind regards,", "Subject: Your order"."""
    ending = {"salutations": r"\b[^.!?:]{0,40}[,!]", "farewells": r"[,.!]?", "subjects": r"\s*:\s.*"}[kind]
    return re.compile(rf"\s*(?:{'|'.join(collect_texts(kind))}){ending}\s*", re.IGNORECASE)


def _is_letter_line(kind: str, line: str) -> bool:
    return _letter_line(kind).fullmatch(line) is not None


def _is_farewell(lines: Sequence[str], number: int) -> bool:
    """Return whether a letter ends at a line: a farewell, with names behind it."""
    if not number or not _is_letter_line("farewells", lines[number]):
        return False
    # The letter that is answered may be quoted below.
    behind = (lines[at] for at in range(number, min(len(lines), number + _LONGEST_QUOTATION)))
    names = (line for line in behind if line.strip() and not line.startswith(">"))
    return next(islice(names, _LONGEST_FAREWELL, None), None) is None


def _continues(before: str, line: str) -> bool:
    """Return whether a line continues the sentence of the line before it."""
    return bool(_UNFINISHED.search(before)) and line.strip()[:1].islower()


def _join_item(lines: Sequence[str], number: int, line: str) -> tuple[int, str]:
    """Return an item with the lines that continue it, and where it ends."""
    texts, end, after_blank = [MARKER.sub("", line, count=1).strip()], number + 1, False
    while end < len(lines):
        following = lines[end]
        if not following.strip():
            after_blank = True
        # An indented line continues its item even after a blank line, as in Markdown.
        elif (after_blank and not following[0].isspace()) or MARKER.match(following) or _starts_line(following):
            break
        else:
            texts.append(following.strip())
            after_blank = False
        end += 1
    return end, " ".join(texts)


def _starts_line(line: str) -> bool:
    return bool(_FENCE.match(line) or _RULE.match(line) or _HEADING.match(line) or _source_line().match(line))


def _is_label(lines: Sequence[str], number: int, end: int, item: str) -> bool:
    """Return whether an item only names what the items below it, which are indented further, say."""
    if SENTENCE_END.search(item) and not _LEAD_IN.search(item):
        return False
    following = lines[end] if end < len(lines) else ""
    return bool(MARKER.match(following)) and _indent(following) > _indent(lines[number])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _segment_item(item: str, is_label: bool, words: Words, line: int) -> Iterator[Segment]:
    if is_label or not any(map(str.isalnum, item)):
        yield Segment(item, Role.LAYOUT, is_item=True, line=line)
    else:
        yield Segment(item, words.find_role(item), is_item=True, line=line)


def _segment_paragraph(text: str, words: Words, line: int) -> Iterator[Segment]:
    sentences = split_at_citations(text, words.sentences)
    for number, sentence in enumerate(sentences):
        role = words.find_role(sentence)
        # A lead-in ends its paragraph in a colon.
        if role is Role.CLAIM and number == len(sentences) - 1 and _LEAD_IN.search(sentence):
            role = Role.LAYOUT
        yield Segment(sentence, role, line=line)


def split_at_citations(text: str, words: SentenceWords) -> list[str]:
    """Return the sentences of a text with the citations behind each, which ``split_sentences`` leaves in the middle."""
    ends = (
        [match.end() for match in _AFTER_CITATION.finditer(text)] if "[" in text or "(" in text or "【" in text else []
    )
    sentences: list[str] = []
    for start, end in zip([0, *ends], [*ends, len(text)], strict=True):
        for sentence in split_sentences(text[start:end], words):
            if sentences and _ONLY_CITATIONS.fullmatch(sentence):
                sentences[-1] = f"{sentences[-1]} {sentence}"
            else:
                sentences.append(sentence)
    return sentences
