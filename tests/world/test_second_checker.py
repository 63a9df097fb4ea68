"""The oracle against a second checker that shares no code with it, and both against what was planted."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from tests.world.second_checker import Check, StepCheck, check, check_fully

from eclosure.core.instance import Instance, Passage
from eclosure.core.judgment import LocalFailure
from eclosure.core.response import Response, Trace
from eclosure.core.verdict import Verdict
from eclosure.world.make import Item, make_item
from eclosure.world.oracle import judge
from eclosure.world.saboteur import PLANS, Sabotaged, sabotage

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PROFILES = ("2wiki", "musique", "hotpot")
APART = 15
"""Unplanned traces of 900 on which the two may differ; none once the oracle looks at a trace as a whole."""


def labels_of(verdict: Verdict, steps: object) -> Check:
    return Check(verdict, tuple(StepCheck(step.substantive, step.sound, step.failure) for step in steps))


def responses(item: Item, seed: str) -> Iterator[tuple[Response, Sabotaged | None]]:
    """The reliable response, and every way in which the item can be made to fail."""
    yield item.response, None
    for plan in PLANS:
        if (made := sabotage(item, plan, seed)) is not None:
            yield made.response, made


def all_responses(seed: int) -> Iterator[tuple[Instance, Response, Sabotaged | None]]:
    for index in count():
        for profile in PROFILES:
            item = make_item(profile, seed, index)
            for response, made in responses(item, f"second-{seed}"):
                yield item.instance, response, made


def in_full(instance: Instance, response: Response, **said: Check) -> str:
    """A disagreement with everything needed to see who is wrong."""
    lines = [instance.question, response.trace.numbered + f"Final answer: {response.answer}"]
    lines += [f"{who}: {what.verdict}\n    {what.steps}" for who, what in said.items()]
    return "\n".join([*lines, *(f"[{passage.title}] {passage.text}" for passage in instance.evidence)])


# Independence


@pytest.mark.parametrize("path", [HERE / "second_checker.py", *(HERE / "second").glob("*.py")], ids=lambda p: p.name)
def test_shares_nothing_with_the_world(path: Path) -> None:
    allowed = {"eclosure.core.instance", "eclosure.core.judgment", "eclosure.core.labels", "eclosure.core.response"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            if name.startswith("eclosure"):
                assert name in {*allowed, "eclosure.core.verdict"}
            else:
                assert not name.startswith("tests") or name.startswith("tests.world.second")


# Agreement


@pytest.mark.slow
def test_agrees_with_the_oracle_on_two_thousand_responses() -> None:
    decided, unsound, disagreements = 0, set(), []
    for instance, response, made in islice(all_responses(seed=2024), 2_000):
        mine = check_fully(instance, response)
        judged = judge(instance, response)
        theirs = labels_of(judged.verdict, judged.steps)
        planted = labels_of(made.verdict, made.steps) if made else mine
        if not mine == theirs == planted:
            disagreements.append(in_full(instance, response, second=mine, oracle=theirs, planted=planted))
        decided += None not in (mine.verdict.locally_sound, mine.verdict.closed, mine.verdict.aligned)
        unsound |= {step.failure for step in mine.steps}
    assert not disagreements, "\n\n".join([f"{len(disagreements)} disagreements", *disagreements])
    assert decided == 2_000
    assert unsound == {None, *LocalFailure}


def shaken(item: Item, response: Response, rng: Random, others: list[Response]) -> Response:
    """The response with its steps in another order, or some left out, or some of another response's put in."""
    texts = list(response.trace.texts)
    way = rng.randrange(4)
    if way == 0:
        rng.shuffle(texts)
    elif way == 1:
        texts = [text for text in texts if rng.random() < 0.6] or texts[:1]
    elif way == 2:
        texts.insert(rng.randint(0, len(texts)), rng.choice(rng.choice(others).trace.texts))
    else:
        texts = [*texts[: rng.randint(1, len(texts))], *rng.choice(others).trace.texts[rng.randint(0, 1) :]]
    answer = rng.choice((response, *others)).answer if rng.random() < 0.3 else response.answer
    return Response("shaken", item.instance.id, Trace.of(*texts), answer)


@pytest.mark.slow
def test_agrees_on_traces_nobody_planned() -> None:
    """Steps, soundness, closure and correctness are the same; alignment and completeness nearly always.

    They differ where a trace is out of order or leaves out a link. There the paper's "missing premises alone do not
    imply misalignment", and a choice among other things that does not answer the question, are on the second
    checker's side.
    """
    total, apart = 0, 0
    for index in range(30):
        for profile in PROFILES:
            item, rng = make_item(profile, 77, index), Random(f"shaken {profile} {index}")
            made = [response for response, _ in responses(item, "shaken")]
            for _ in range(10):
                response = shaken(item, rng.choice(made), rng, made)
                mine, judged = check_fully(item.instance, response), judge(item.instance, response)
                theirs = labels_of(judged.verdict, judged.steps)
                full = in_full(item.instance, response, second=mine, oracle=theirs)
                one, two = mine.verdict, theirs.verdict
                assert mine.steps == theirs.steps, full
                assert (one.locally_sound, one.correct) == (two.locally_sound, two.correct), full
                assert one.aligned != two.aligned or one.closed == two.closed, full
                total, apart = total + 1, apart + (one != two)
    assert total == 900
    assert apart <= APART


# It is not blind


FILM = Passage("0", "Paper Harbour", "Paper Harbour is a drama film directed by Nils Holm. It runs for 95 minutes.")
PERSON = Passage("1", "Nils Holm", "Nils Holm (born 3 May 1921) is a film director. He was born in Halmere.")
CITY = Passage("2", "Halmere", "Halmere is a small city in Norland. A tramway once linked the theatre with the coast.")
ASKED = Instance("x", "Where was the director of the film Paper Harbour born?", (FILM, PERSON, CITY), "Halmere")
FIRST, SECOND = "Paper Harbour was directed by Nils Holm [0].", "He was born in Halmere."
LAST = "So the birthplace of the director of the film Paper Harbour is Halmere."


def respond(*steps: str, answer: str | None = "Halmere") -> Response:
    return Response("r", "x", Trace.of(*steps), answer)


def codes(*steps: str) -> list[str | None]:
    return [step.failure for step in check_fully(ASKED, respond(*steps)).steps]


def test_a_reliable_response() -> None:
    assert check(ASKED, respond(FIRST, SECOND, LAST)) == Verdict(True, True, True, True, True)
    assert check(ASKED, respond(FIRST, SECOND)) == Verdict(True, True, True, True, True)


@pytest.mark.parametrize(
    "steps, answer, expected",
    [
        ((FIRST, SECOND), "Norland", Verdict(True, True, False, True, False)),
        ((FIRST,), "Halmere", Verdict(True, True, False, False, True)),
        ((FIRST, "Nils Holm was born on May 3, 1921."), "3 May 1921", Verdict(True, False, True, False, False)),
        ((FIRST, SECOND, "Halmere lies in Norland."), "Norland", Verdict(True, False, True, True, False)),
        ((FIRST, "There is no information about the birthplace of Nils Holm."), "unknown",
         Verdict(False, True, True, False, False)),
        ((FIRST, SECOND), None, Verdict(True, True, None, True, None)),
        (("Something else entirely.",), "Halmere", Verdict(None, None, None, None, True)),
    ],
)  # fmt: skip
def test_every_label_can_fail(steps: tuple[str, ...], answer: str | None, expected: Verdict) -> None:
    assert check(ASKED, respond(*steps, answer=answer)) == expected


def test_every_code_can_be_given() -> None:
    assert codes(FIRST, "He died in Halmere.") == [None, "L1"]
    assert codes("Nils Holm is also known as Emil Rask.", LAST.replace("Halmere", "Norland")) == ["L2", "L2"]
    assert codes("1950 is earlier than 1921.", "1950 - 1921 = 28.") == ["L3", "L3"]
    assert codes("The passages do not state the running time of Paper Harbour.") == ["L4"]
    assert codes("It is not the case that Nils Holm directed Paper Harbour.") == ["L5"]
    assert codes("Let us read the passages.", f"{FIRST[:-1]}; He died in Halmere.") == [None, "L1"]


def test_step_order_does_not_change_what_is_pursued() -> None:
    assert check(ASKED, respond("Nils Holm was born in Halmere.", LAST, FIRST)).aligned
    assert check(ASKED, respond(LAST, "Nils Holm was born in Halmere.", FIRST)).aligned


def film(name: str, director: str) -> Passage:
    return Passage(name, name, f"{name} is a drama film by {director}.")


def director(name: str, year: int) -> Passage:
    return Passage(name, name, f"{name} (born 3 May {year}) is a film director.")


CHOICE = Instance("x", "Which film has the director who is older, Paper Harbour or Silent Tide?", (
    film("Paper Harbour", "Nils Holm"), film("Silent Tide", "Vera Quist"), film("Iron Meadow", "Hugo Pell"),
    director("Nils Holm", 1921), director("Vera Quist", 1930), director("Hugo Pell", 1940),
), "Paper Harbour")  # fmt: skip
BY_HOLM, BY_QUIST = "Paper Harbour was directed by Nils Holm.", "Silent Tide was directed by Vera Quist."
OLDER, CHOSEN = "Nils Holm is older than Vera Quist.", "So Paper Harbour has the director who is older."


def test_a_choice_is_judged_by_what_was_compared() -> None:
    right = Verdict(True, True, True, True, True)
    for steps in ((BY_HOLM, BY_QUIST, OLDER, CHOSEN), (OLDER, BY_HOLM, BY_QUIST, CHOSEN), (BY_QUIST, OLDER, CHOSEN)):
        assert check(CHOICE, respond(*steps, answer="Paper Harbour")) == right
    # Older than somebody else's director: another question, and no answer to this one.
    others = (BY_HOLM, "Iron Meadow was directed by Hugo Pell.", "Nils Holm is older than Hugo Pell.", CHOSEN)
    found = check(CHOICE, respond(*others, answer="Paper Harbour"))
    assert found == Verdict(True, False, True, False, True)


def test_a_sentence_it_cannot_read_leaves_the_claim_open() -> None:
    odd = replace(PERSON, text="Nils Holm is a film director. Nobody in Halmere has forgotten Nils Holm.")
    found = check_fully(replace(ASKED, evidence=(FILM, odd, CITY)), respond(FIRST, SECOND, LAST))
    assert [step.sound for step in found.steps] == [True, None, None]
    assert found.verdict == Verdict(None, True, True, True, True)


def changed_name(item: Item, rng: Random) -> Response:
    """The reliable response with one name of one step replaced by another from the passages."""
    names = [re.sub(r" \([a-z ]+\)$", "", passage.title) for passage in item.instance.evidence]
    places = [(at, name) for at, text in enumerate(item.response.trace.texts) for name in names if name in text]
    at, old = rng.choice(places)
    new = rng.choice([name for name in names if name != old])
    texts = [text.replace(old, new) if n == at else text for n, text in enumerate(item.response.trace.texts)]
    return replace(item.response, trace=Trace.of(*texts))


def test_a_changed_fact_changes_the_verdict() -> None:
    reliable = Verdict(True, True, True, True, True)
    unsound = 0
    for index in range(40):
        item = make_item(PROFILES[index % 3], 5, index)
        assert check(item.instance, item.response) == reliable
        found = check(item.instance, changed_name(item, Random(index)))
        assert found != reliable
        unsound += found.locally_sound is False
    # Now and then the changed step is true as well, and only no longer to the point.
    assert unsound >= 38


def test_a_changed_passage_changes_the_verdict() -> None:
    for index in range(40):
        item = make_item(PROFILES[index % 3], 6, index)
        for wanted in item.instance.support_ids or ():
            rest = tuple(passage for passage in item.instance.evidence if passage.id != wanted)
            assert check(replace(item.instance, evidence=rest), item.response).locally_sound is False
