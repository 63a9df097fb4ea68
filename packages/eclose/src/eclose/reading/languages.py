"""Languages of responses, as data: one table a language in ``languages/``, with markers, words and abbreviations.

A table is loaded when a text of its language is read. ``docs/guides/languages.md`` says what each entry is.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError
from eclose.values.segmentation import SentenceWords

if TYPE_CHECKING:
    from collections.abc import Iterable

AUTO = "auto"
_NOTHING = re.compile(r"(?!)")
# Scripts of several languages: kana decides between Japanese and Chinese.
_LETTER = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"[^\W\d_]+")
_ASCII_WORD = re.compile(r"[a-z]+")
_SAMPLE = 2000
# Weight of common words, of which one that no other language has weighs 1.
_SURE = 1.0


def _alternatives(texts: Iterable[str]) -> str:
    return "|".join(texts) or "(?!)"


_SENTENCE_KEYS = ("before_name", "before_number", "beginnings", "after_ordinal")


class Language:
    """The words of one language, as compiled patterns."""

    def __init__(self, code: str, table: dict[str, Any]) -> None:
        self.code = code
        self.name: str = table["name"]
        self.table = table
        self.common = frozenset((*table.get("common", ()), *filter(str.isalpha, table["conclusions"])))
        self.spaced = code not in ("ja", "zh")
        self.verbless = "verbless" in table

    def _words(self, key: str, ending: str = r"(?!\w)") -> re.Pattern[str]:
        """Return a pattern of the alternatives; scripts without blanks have no word boundaries."""
        end = ending if self.spaced else ""
        texts = self.table.get(key, ())
        return re.compile(rf"(?:{_alternatives(texts)}){end}", re.IGNORECASE) if texts else _NOTHING

    @cached_property
    def script(self) -> re.Pattern[str]:
        """Letters of a script that this language writes; matches nothing for Latin letters."""
        return re.compile(self.table["script"]) if "script" in self.table else _NOTHING

    @cached_property
    def sentence_words(self) -> SentenceWords:
        """Abbreviations inside sentences, and words that begin them."""
        words = [frozenset(self.table.get(key, ())) for key in _SENTENCE_KEYS]
        before_name, before_number, beginnings, after_ordinal = words
        return SentenceWords(before_name, before_number, beginnings | self.common, after_ordinal)

    @cached_property
    def because(self) -> re.Pattern[str]:
        """A word that opens a reason or a relative clause."""
        return self._words("because", r"(?!\w)" if self.code != "fr" else "")

    @cached_property
    def conclusion(self) -> re.Pattern[str]:
        """A word that opens a conclusion."""
        return re.compile(
            rf"(?:(?:and|but|und|et|y|e|en|i|и|ve)\s+)?(?:{self._words('conclusions').pattern})", re.IGNORECASE
        )

    @cached_property
    def therefore(self) -> re.Pattern[str]:
        """A word inside a sentence that makes it a conclusion."""
        return re.compile(rf"(?<!\w){self._words('therefore').pattern}", re.IGNORECASE)

    @cached_property
    def verdict(self) -> re.Pattern[str]:
        """Yes, no and the like at the start of a sentence."""
        return self._words("verdicts")

    @cached_property
    def hedge(self) -> re.Pattern[str]:
        """Words that open an opinion, such as "I think"."""
        return self._words("hedges")

    @cached_property
    def naming(self) -> tuple[re.Pattern[str], ...]:
        """Sentences that call themselves the answer."""
        return tuple(re.compile(text, re.IGNORECASE | re.DOTALL) for text in self.table.get("naming", ()))

    @cached_property
    def restatement(self) -> re.Pattern[str]:
        """Words that open a restatement of the task."""
        return self._words("restatements")

    @cached_property
    def abstention(self) -> re.Pattern[str]:
        """Words that say that there is no answer."""
        return self._words("abstentions", "")

    @cached_property
    def lack(self) -> re.Pattern[str]:
        """Words that say that the documents lack something."""
        return self._words("lacks", "")

    @cached_property
    def denial(self) -> re.Pattern[str]:
        """Words, in small letters, of which each abstention and each lack has one; matches any text without them."""
        return re.compile("|".join(self.table.get("denials", ("",))))

    @cached_property
    def empty_slot(self) -> re.Pattern[str]:
        """What is written into the slot of an answer that there is not."""
        return self._words("slots")

    @cached_property
    def finite(self) -> re.Pattern[str]:
        """A finite verb."""
        return re.compile(rf"(?<!\w){self._words('finite').pattern}", re.IGNORECASE)

    @cached_property
    def fragment(self) -> re.Pattern[str] | None:
        """A whole answer without a subject, in languages that mark subjects rather than verbs."""
        return self._words("fragment", "") if "fragment" in self.table else None

    @cached_property
    def instruction(self) -> re.Pattern[str]:
        """Questions that ask for instructions or a text."""
        return self._words("instructions")

    @cached_property
    def listing(self) -> re.Pattern[str]:
        """Questions that ask for a list."""
        return self._words("listings")

    @cached_property
    def account(self) -> re.Pattern[str]:
        """Questions that ask for an account."""
        return self._words("accounts")

    @cached_property
    def filler(self) -> re.Pattern[str]:
        """Words before an announcement, which alone claim nothing either."""
        return re.compile(
            rf"(?:(?:{_alternatives(self._plans('fillers'))})(?!\w)[\s,.!:;，。、！–—-]*)+", re.IGNORECASE
        )

    @cached_property
    def plan(self) -> re.Pattern[str]:
        """Words that announce a search, a call or a computation."""
        openings, activities = _alternatives(self._plans("openings")), _alternatives(self._plans("activities"))
        begins = rf"(?:{openings})(?!\w)[^.!?]{{0,60}}?(?<!\w)(?:{activities})"
        return re.compile(rf"(?:{begins}|(?:{_alternatives(self._plans('needs'))}))", re.IGNORECASE)

    @cached_property
    def whole_plan(self) -> re.Pattern[str]:
        """Announcements that the end of the sentence, or all of it, shows."""
        return re.compile(_alternatives(self._plans("whole")), re.IGNORECASE)

    @cached_property
    def statement(self) -> re.Pattern[str]:
        """A verb that states something in the main clause, behind an announcement."""
        # Before the first subordinate clause; ", which is 24 V" and "so it is 24 V" claim also behind it.
        main = rf"(?:(?!(?<!,)\s(?:{_alternatives(self._plans('clauses'))})\b).)*?"
        return re.compile(rf"{main}\s(?:{_alternatives(self._plans('statements'))})\b", re.IGNORECASE)

    def _plans(self, key: str) -> list[str]:
        return list(self.table.get("plans", {}).get(key, ()))


@cache
def load_languages() -> dict[str, Language]:
    """Load every table, by its code."""
    folder = files("eclose.reading") / "languages"
    paths = sorted((path for path in folder.iterdir() if path.name.endswith(".toml")), key=lambda path: path.name)
    return {
        path.name.removesuffix(".toml"): Language(
            path.name.removesuffix(".toml"), tomllib.loads(path.read_text("utf-8"))
        )
        for path in paths
    }


def find_language(code: str) -> Language | None:
    """Return a language by its code; None for ``auto``.

    Raises:
        SettingError: There is no table of this language.
    """
    if code == AUTO:
        return None
    if (language := load_languages().get(code)) is None:
        raise SettingError(f"language: {code!r} is none of auto, {', '.join(load_languages())}.")
    return language


def detect_language(text: str, default: Language | None = None) -> tuple[Language, bool]:
    """Return the language of a text by its script and its commonest words, and whether these are enough to be sure.

    In doubt it is the default, or English.
    """
    return _detect_sample(text[:_SAMPLE], default)


# One reading asks for the language of a text, of its parts and of the question several times.
@lru_cache(maxsize=256)
def _detect_sample(sample: str, default: Language | None) -> tuple[Language, bool]:
    languages = load_languages()
    pattern = _ASCII_WORD if sample.isascii() else _WORD
    if pattern is _WORD:
        letters = len(_LETTER.findall(sample))
        counts = {
            code: len(language.script.findall(sample))
            for code, language in languages.items()
            if "script" in language.table
        }
        # A name in another script does not make a language of it; kana does.
        code = "ja" if counts["ja"] * 20 > letters else max(counts, key=lambda name: counts[name])
        if counts[code] * 4 > letters:
            return languages[code], True
    scores: dict[str, float] = {}
    shared = _weigh_words()
    for word in pattern.findall(sample.lower()):
        for code, weight in shared.get(word, ()):
            scores[code] = scores.get(code, 0.0) + weight
    if not scores:
        return default or languages["en"], False
    best = max(scores, key=lambda name: (scores[name], default is languages[name], name == "en"))
    return languages[best], scores[best] >= _SURE


@cache
def latin_languages() -> tuple[Language, ...]:
    """Return the languages that are written in Latin letters."""
    return tuple(language for language in load_languages().values() if "script" not in language.table)


@cache
def _weigh_words() -> dict[str, list[tuple[str, float]]]:
    """Return the common words with their languages; a word of several languages weighs less."""
    users: dict[str, list[str]] = {}
    for code, language in load_languages().items():
        for word in language.common:
            users.setdefault(word, []).append(code)
    return {word: [(code, 1 / len(codes) ** 2) for code in codes] for word, codes in users.items()}


def collect_texts(key: str) -> list[str]:
    """Return the entries of all languages under a key, without repeats."""
    return list(dict.fromkeys(text for language in load_languages().values() for text in language.table.get(key, ())))


@cache
def collect_labels() -> dict[str, str]:
    """Return the labels of an agent's log in all languages, by their lower-case text."""
    return {
        label: part
        for language in load_languages().values()
        for part, labels in language.table["labels"].items()
        for label in labels
    }


def key_name(key: object) -> str:
    """Return the form in which keys and tags of slots are compared."""
    text = str(key).strip().casefold()
    if not text.isascii():
        # "étapes" and "etapes" are one key.
        text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return re.sub(r"[\s-]+", "_", text)


@cache
def collect_keys(kind: str) -> frozenset[str]:
    """Return the keys and tags of slots in all languages: ``answer_keys`` or ``trace_keys``."""
    return frozenset(key_name(key) for key in collect_texts(kind))
