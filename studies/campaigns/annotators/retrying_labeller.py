"""Labellers that survive broken connections: they send the form again, or open the browser anew."""

from __future__ import annotations

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from random import Random
from threading import Event
from typing import TYPE_CHECKING, Any

from .browser import LOST, Browser, Form, Reader
from .error_model import HardDecisions, SimulatedAnnotator
from .labeller import Labeller, TruthIndex, fields_of, hidden_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .browser import Answer
    from .material import World

DIARY = "diary.json"
RATES = {"sound": HardDecisions(0.6, 0.06, 0.06), "aligned": HardDecisions(0.6, 0.15, 0.15)}
GIVES_UP = 0.3
"""Share of broken connections after which the browser is opened anew instead of retrying."""

SAVES = 0.25
"""Share of decisions that are followed by a draft."""


@dataclass
class SentForm:
    """Form that was sent once or more."""

    task: str
    name: str
    key: str
    entries: list[dict[str, str]]
    tries: int = 0
    status: int | None = None
    """Status of the last answer; None where none arrived."""
    receipt: str | None = None


@dataclass
class SubmissionDiary:
    """Notes of a labeller, for the audit."""

    sent: list[SentForm] = field(default_factory=list)
    drafts: int = 0
    """Acknowledged drafts."""
    reopened: int = 0
    """Pages opened again after a draft, to check what is left of it."""
    draft_loss: float = 0.0
    """Longest time before a break whose decisions the page had lost afterwards, in seconds."""
    problems: list[str] = field(default_factory=list)


class _Reopen(Exception):  # noqa: N818 - not an error
    """Raised to open the browser anew."""


class RetryingLabeller(Labeller):
    """Labeller that continues after the server was killed."""

    def __init__(self, browser: Browser, annotator: SimulatedAnnotator, truths: TruthIndex, **more: Any) -> None:
        super().__init__(browser, annotator, truths, **more)
        self.diary = SubmissionDiary()
        self._rng = Random(f"{annotator.name}/stubborn")
        self._chosen: dict[str, tuple[str, float]] = {}
        """Decisions on the current page, with their times."""
        self._saved: dict[str, str] = {}
        """Decisions that the server has acknowledged as a draft."""
        self._broke: float | None = None

    def work(self) -> None:
        while not self._until():
            try:
                super().work()
                return
            except (*LOST, _Reopen):
                time.sleep(0.03)

    def wait_for_more(self) -> bool:
        return True

    def decide(self, form: Form, page: Reader) -> list[dict[str, str]]:
        if self._broke is not None:
            self._look(form)
        self._chosen, self._saved = {}, {}
        return super().decide(form, page)

    def _look(self, form: Form) -> None:
        """Compare the choices of the reopened page with the decisions before the break."""
        assert self._broke is not None
        page_choices = {name: value for name, value in form.fields.items() if name in form.choices}
        if self._at == form.action and self._chosen:
            self.diary.reopened += 1
            if not self._saved.items() <= page_choices.items():
                self.diary.problems.append(f"an acknowledged draft of pass {form.action[-1]} was lost")
            gone = [at for name, (value, at) in self._chosen.items() if page_choices.get(name) != value]
            self.diary.draft_loss = max(self.diary.draft_loss, self._broke - min(gone, default=self._broke))
        self._broke = None

    def save_drafts(self, form: Form, entries: list[dict[str, str]]) -> None:
        self._at = form.action
        for name, value in fields_of(entries).items():
            self._chosen[name] = (value, time.monotonic())
            self._pause()
            # As on the page, where several decisions in a row are saved together.
            if self._rng.random() < SAVES:
                self._save(form)

    def _save(self, form: Form) -> None:
        now = {field_name: choice for field_name, (choice, _) in self._chosen.items()}
        answer = self._insist(lambda: self.browser.post(f"{form.action}/draft", hidden_of(form) | now, "draft"))
        if answer.status == 204:
            self._saved = now
            self.diary.drafts += 1
        else:
            self.diary.problems.append(f"a draft of pass {form.action[-1]} was answered with {answer.status}")

    def submit(self, form: Form, entries: list[dict[str, str]]) -> str | None:
        _, _, task, name = form.action.split("/")
        sent = SentForm(task, name, form.fields["key"], entries)
        self.diary.sent.append(sent)

        def send() -> Answer:
            sent.tries += 1
            return self.browser.post(form.action, hidden_of(form) | fields_of(entries), "submit")

        answer = self._insist(send)
        sent.status = answer.status
        if answer.status != 303 or answer.location is None:
            return None
        sent.receipt = answer.location.partition("?receipt=")[2]
        return answer.location

    def _insist(self, ask: Callable[[], Answer]) -> Answer:
        """Repeat the request until there is an answer, or raise ``_Reopen`` in ``GIVES_UP`` of the cases."""
        gives_up = self._rng.random() < GIVES_UP
        while True:
            try:
                answer = ask()
                self._broke = None
                return answer
            except LOST:
                self._broke = self._broke or time.monotonic()
                if gives_up or self._until():
                    raise _Reopen from None
                time.sleep(0.03)


def work(origin: str, links: dict[str, str], world: World, folder: Path, seed: int) -> None:
    """Run all labellers at once until SIGTERM; then write their diaries."""
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    truths = TruthIndex(world.truths)

    def label_until_stopped(name: str) -> SubmissionDiary:
        rng = Random(f"{name}/{seed}")
        browser = Browser(origin, timeout=20)
        _come_in(browser, links[name], name)
        rates = {} if name == "adjudicator" else RATES
        labeller = RetryingLabeller(
            browser, SimulatedAnnotator(name, rates), truths, think=lambda: rng.uniform(0.0, 0.02), until=stop.is_set
        )
        labeller.work()
        return labeller.diary

    with ThreadPoolExecutor(len(links)) as pool:
        diaries = dict(zip(links, pool.map(label_until_stopped, links), strict=True))
    (folder / DIARY).write_text(json.dumps({name: asdict(diary) for name, diary in diaries.items()}))


def _come_in(browser: Browser, link: str, name: str) -> None:
    """Join by the invitation, or log in where a broken request has used it."""
    while True:
        try:
            if browser.get(link, "enter").status == 200:
                browser.join(link)
            else:
                browser.log_in(name)
            return
        except LOST:
            time.sleep(0.03)
