"""Labeller that drives the pages: from the first page through all passes of all tasks, until the queue is empty."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from .browser import Browser, Form, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from eclose.values.judgment import Ineligibility

    from .browser import RequestTiming
    from .error_model import SimulatedAnnotator, Truth

_NEXT = re.compile(r'<a class="main-action(?: waits)?" href="(/tasks/[^"]+)"')
_TAKE = re.compile(r'<form method="post" action="/take">')


class TruthIndex:
    """Index of the truth by the texts that a page shows."""

    def __init__(self, truths: Iterable[Truth], ineligible: Mapping[str, Ineligibility] | None = None) -> None:
        self._by_trace: dict[tuple[str, str], Truth] = {}
        self._by_answer: dict[tuple[str, str, str | None], Truth] = {}
        self._ineligible = ineligible or {}
        for truth in truths:
            trace = "\n".join(truth.steps)
            # Of two responses with one trace all that is decided without the answer is the same.
            self._by_trace[truth.question, trace] = truth
            self._by_answer[truth.question, trace, truth.answer] = truth

    def entries(self, annotator: SimulatedAnnotator, name: str, page: Reader, count: int) -> list[dict[str, str]]:
        """Return the annotator's entries for a page of this pass with ``count`` entries."""
        question, *words = page.words
        if name == "S":
            return annotator.screening(question, self._ineligible.get(question))
        if name == "A":
            return annotator.steps(self._by_trace[question, "\n".join(words[:count])])
        if name == "B":
            return annotator.whole(self._by_trace[question, words[0]], name)
        return annotator.whole(self._by_answer[question, words[0], words[1]], name)


class Labeller:
    """Works off the queue of one person."""

    def __init__(
        self,
        browser: Browser,
        annotator: SimulatedAnnotator,
        truths: TruthIndex,
        *,
        think: Callable[[], float] = lambda: 0.0,
        drafts: int = 0,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        self.browser, self.annotator, self.truths = browser, annotator, truths
        self._think, self._drafts, self._until = think, drafts, until
        self.submitted = 0

    def stop_when(self, until: Callable[[], bool]) -> None:
        """Stop as soon as ``until`` returns True."""
        self._until = until

    def work(self) -> None:
        """Work until the queue is empty or ``until`` returns True."""
        for task in self._tasks():
            where: str | None = task
            while where is not None and where.startswith("/tasks/") and not self._until():
                where = self.submit_pass(where)

    def _tasks(self) -> Iterator[str]:
        while not self._until():
            home = self.browser.get("/", "home").text
            if (link := _NEXT.search(home)) is not None:
                yield link[1]
            elif _TAKE.search(home):
                form = next(candidate for candidate in Reader(home).forms if candidate.action == "/take")
                answer = self.browser.post("/take", form.fields, "take")
                assert answer.status == 303, answer
                yield answer.location or "/"
            elif self.wait_for_more():
                time.sleep(0.2)
            else:
                return

    def wait_for_more(self) -> bool:
        """Return whether to look again later when the queue is empty."""
        return False

    def submit_pass(self, where: str) -> str | None:
        """Open a pass, decide and submit; return the path the server redirects to."""
        answer = self.browser.get(where, "page")
        assert answer.status == 200, answer
        page = Reader(answer.text)
        form = next(candidate for candidate in page.forms if candidate.action.startswith("/tasks/"))
        entries = self.decide(form, page)
        self.save_drafts(form, entries)
        self._pause()
        return self.submit(form, entries)

    def decide(self, form: Form, page: Reader) -> list[dict[str, str]]:
        """Return the annotator's entries for the page and check that it has a control for each."""
        name = form.action.rsplit("/", 1)[1]
        count = max(int(field_name.partition(".")[0]) for field_name in form.choices)
        entries = self.truths.entries(self.annotator, name, page, count)
        for field_name, value in fields_of(entries).items():
            assert value in form.choices[field_name], (field_name, value)
        return entries

    def save_drafts(self, form: Form, entries: list[dict[str, str]]) -> None:
        """Save drafts on the way, as the page does during decisions."""
        chosen = list(fields_of(entries).items())
        for number in range(self._drafts):
            self._pause()
            some = dict(chosen[: 1 + number * len(chosen) // max(1, self._drafts)])
            saved = self.browser.post(f"{form.action}/draft", hidden_of(form) | some, "draft")
            assert saved.status == 204, saved

    def submit(self, form: Form, entries: list[dict[str, str]]) -> str | None:
        """Send the form."""
        answer = self.browser.post(form.action, hidden_of(form) | fields_of(entries), "submit")
        assert answer.status == 303, answer
        self.submitted += 1
        return answer.location

    def _pause(self) -> None:
        if seconds := self._think():
            time.sleep(seconds)


def label_in_shifts(
    origin: str,
    links: Mapping[str, str],
    annotators: Mapping[str, SimulatedAnnotator],
    truths: TruthIndex,
    shifts: Sequence[Sequence[str]],
) -> list[RequestTiming]:
    """Let the people of each shift finish their queues at once, shift after shift; return the timed requests.

    Args:
        origin: Address of the annotation server.
        links: Invitations by name.
        annotators: The people by name.
        truths: Truth about the responses.
        shifts: Names; adjudicators come after the annotators.
    """

    def label_all(name: str) -> list[RequestTiming]:
        browser = Browser(origin)
        browser.join(links[name])
        Labeller(browser, annotators[name], truths).work()
        browser.close()
        return browser.timings

    timings: list[RequestTiming] = []
    for names in shifts:
        with ThreadPoolExecutor(len(names)) as pool:
            for own_timings in pool.map(label_all, names):
                timings += own_timings
    return timings


def fields_of(entries: list[dict[str, str]]) -> dict[str, str]:
    """Convert entries into the fields of a form."""
    return {f"{number}.{name}": value for number, entry in enumerate(entries, start=1) for name, value in entry.items()}


def hidden_of(form: Form) -> dict[str, str]:
    """Return the hidden fields of a form, without earlier choices."""
    return {name: value for name, value in form.fields.items() if name not in form.choices}
