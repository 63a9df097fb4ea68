"""The oracle against a second checker that shares no code with it, and both against what was planted."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from itertools import count, islice, product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from eclose.values.instance import Instance, Passage
from eclose.values.judgment import LocalFailure
from eclose.values.response import Response, Trace
from eclose.values.verdict import Verdict
from eclose_world.faulty.broken_responses import FAILURE_PLANS, BrokenResponse, break_response
from eclose_world.make.families import make_world_families
from eclose_world.make.instances import WorldItem, make_world_item
from eclose_world.oracle.judge import judge_by_oracle
from tests.second_checker import Check, StepCheck, check, check_fully

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.values.family import Family, View

HERE = Path(__file__).parent
PROFILES = ("2wiki", "musique", "hotpot")
FAMILIES = 20
"""Families looked at of every profile."""
APART = 13
"""Responses of 1,800 with exchanged names on which the two may differ; see the test."""
RELIABLE = Verdict(True, True, True, True, True)


def labels_of(verdict: Verdict, steps: object) -> Check:
    return Check(verdict, tuple(StepCheck(step.substantive, step.sound, step.failure) for step in steps))


def responses(item: WorldItem, seed: str) -> Iterator[tuple[Response, BrokenResponse | None]]:
    """The reliable response, and every way in which the item can be made to fail."""
    yield item.response, None
    for plan in FAILURE_PLANS:
        if (broken := break_response(item, plan, seed)) is not None:
            yield broken.response, broken


def all_responses(seed: int) -> Iterator[tuple[Instance, Response, BrokenResponse | None]]:
    for index in count():
        for profile in PROFILES:
            item = make_world_item(profile, seed, index)
            for response, broken in responses(item, f"second-{seed}"):
                yield item.instance, response, broken


def in_full(instance: Instance, response: Response, **said: Check) -> str:
    """A disagreement with everything needed to see who is wrong."""
    lines = [instance.question, response.trace.numbered + f"Final answer: {response.answer}"]
    lines += [f"{who}: {what.verdict}\n    {what.steps}" for who, what in said.items()]
    return "\n".join([*lines, *(f"[{passage.title}] {passage.text}" for passage in instance.evidence)])


# Independence


@pytest.mark.parametrize("path", [HERE / "second_checker.py", *(HERE / "second").glob("*.py")], ids=lambda p: p.name)
def test_shares_nothing_with_the_world(path: Path) -> None:
    allowed = {
        "eclose.values.instance",
        "eclose.values.judgment",
        "eclose.values.three_valued",
        "eclose.values.response",
    }
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            if name.startswith("eclose"):
                assert name in {*allowed, "eclose.values.verdict"}
            else:
                assert not name.startswith("tests") or name.startswith("tests.second")


# Agreement


@pytest.mark.slow
def test_agrees_with_the_oracle_on_two_thousand_responses() -> None:
    decided, unsound, disagreements = 0, set(), []
    for instance, response, broken in islice(all_responses(seed=2024), 2_000):
        mine = check_fully(instance, response)
        judged = judge_by_oracle(instance, response)
        theirs = labels_of(judged.verdict, judged.steps)
        planted = labels_of(broken.verdict, broken.steps) if broken else Check(RELIABLE, mine.steps)
        if not mine == theirs == planted:
            disagreements.append(in_full(instance, response, second=mine, oracle=theirs, planted=planted))
        decided += None not in (mine.verdict.locally_sound, mine.verdict.closed, mine.verdict.aligned)
        unsound |= {step.failure for step in mine.steps}
    assert not disagreements, "\n\n".join([f"{len(disagreements)} disagreements", *disagreements])
    assert decided == 2_000
    assert unsound == {None, *LocalFailure}


def shaken(item: WorldItem, response: Response, rng: Random, others: list[Response]) -> Response:
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
    total, disagreements = 0, []
    for index in range(30):
        for profile in PROFILES:
            item, rng = make_world_item(profile, 77, index), Random(f"shaken {profile} {index}")
            originals = [response for response, _ in responses(item, "shaken")]
            for _ in range(10):
                disagreements += disagreement(item.instance, shaken(item, rng.choice(originals), rng, originals))
                total += 1
    assert total == 900
    assert not disagreements, "\n\n".join([f"{len(disagreements)} disagreements", *disagreements])


def renamed(item: WorldItem, response: Response, rng: Random, others: list[Response]) -> Response:
    """The response shaken several times, with names in it exchanged for others from the passages."""
    for _ in range(rng.randint(1, 3)):
        response = shaken(item, response, rng, others)
    texts, names = list(response.trace.texts), names_of(item)
    for _ in range(rng.randint(1, 2)):
        if places := [(at, name) for at, text in enumerate(texts) for name in names if name in text]:
            at, old = rng.choice(places)
            texts[at] = texts[at].replace(old, rng.choice(names))
    return replace(response, trace=Trace.of(*texts))


@pytest.mark.slow
def test_agrees_on_traces_about_the_wrong_names() -> None:
    """Steps, soundness and correctness are the same; the rest but for two kinds of odd traces.

    Where a trace has two values for one thing and says nothing more of one of them, the oracle takes the other. Where
    it compares an option with itself, the oracle takes no notice. "Two values for one thing establish neither", and a
    comparison of something else than what was asked for is a deviation.
    """
    total, apart = 0, []
    for index in range(60):
        for profile in PROFILES:
            item, rng = make_world_item(profile, 78, index), Random(f"renamed {profile} {index}")
            originals = [response for response, _ in responses(item, "renamed")]
            for _ in range(10):
                response = renamed(item, rng.choice(originals), rng, originals)
                mine, judged = check_fully(item.instance, response), judge_by_oracle(item.instance, response)
                theirs = labels_of(judged.verdict, judged.steps)
                full = in_full(item.instance, response, second=mine, oracle=theirs)
                assert mine.steps == theirs.steps, full
                assert mine.verdict.locally_sound == theirs.verdict.locally_sound, full
                assert mine.verdict.correct == theirs.verdict.correct, full
                total, apart = total + 1, apart + [full] * (mine != theirs)
    assert total == 1_800
    assert len(apart) <= APART, "\n\n".join([f"{len(apart)} disagreements", *apart])


def disagreement(instance: Instance, response: Response) -> list[str]:
    """What the two say, if it is not the same."""
    mine, judged = check_fully(instance, response), judge_by_oracle(instance, response)
    theirs = labels_of(judged.verdict, judged.steps)
    return [] if mine == theirs else [in_full(instance, response, second=mine, oracle=theirs)]


# Families


@pytest.fixture(scope="module")
def families() -> list[Family]:
    return [family for profile in PROFILES for family in islice(make_world_families(profile, 2024), FAMILIES)]


def asked(question: View, evidence: View, trace: View, answer: View) -> tuple[Instance, Response]:
    """A question of one view, put to the passages of another, answered with the trace and the answer of others."""
    matched = question.question == evidence.question or question.evidence == evidence.evidence
    reference = (evidence if question.question == evidence.question else question).answer if matched else None
    instance = Instance("x", question.question, evidence.evidence, reference)
    return instance, Response("r", "x", trace.trace, answer.answer)


def labels(question: View, evidence: View, trace: View, answer: View) -> Check:
    return check_fully(*asked(question, evidence, trace, answer))


@pytest.mark.slow
def test_agrees_on_every_view_and_crossed_pair(families: list[Family]) -> None:
    """Every question with all passages, all traces and all answers of its family."""
    total, disagreements = 0, []
    for family in families:
        views = list(family.views)
        for mixed in product((views[0], views[-1]), views[:-1], views, views):
            disagreements += disagreement(*asked(*mixed))
            total += 1
    assert len(families) == FAMILIES * len(PROFILES)
    assert total >= 36 * len(families)
    assert not disagreements, "\n\n".join([f"{len(disagreements)} disagreements", *disagreements])


@pytest.mark.slow
def test_matched_views_hold_and_crossed_pairs_fail(families: list[Family]) -> None:
    """What appendices B.4 and B.5 demand of a family, without a look at how it was made."""
    for family in families:
        gold, other = family.gold, family.question_edit.view
        for view in family.views:
            assert labels(view, view, view, view).verdict == RELIABLE
        for edit in family.evidence_edits:
            view, first = edit.view, edit.first_affected_step
            for evidence, trace in ((gold, view), (view, gold)):
                sound = [step.sound for step in labels(gold, evidence, trace, trace).steps]
                assert all(sound[:first])
                assert sound[first] is False
                crossed = labels(gold, trace, trace, evidence).verdict
                assert crossed == Verdict(True, True, False, True, False)
        for question, trace in ((gold, other), (other, gold)):
            crossed = labels(question, gold, trace, trace).verdict
            assert (crossed.locally_sound, crossed.aligned, crossed.closed, crossed.correct) == (
                True,
                False,
                True,
                False,
            )


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
    labels = check(CHOICE, respond(*others, answer="Paper Harbour"))
    assert labels == Verdict(True, False, True, False, True)


FOUND = "So the birthplace of the director of the film Silent Tide is Norland."
OTHER_NAME = "Emil Rask is also known as Nils Holm."


@pytest.mark.parametrize(
    "steps, aligned",
    [
        # A conclusion shows the main line, unless the trace goes on to what is asked for.
        ((FIRST, FOUND), False),
        ((FOUND, FIRST), True),
        ((LAST, "Halmere lies in Norland."), True),
        ((FIRST, FOUND, "There is no information about the birthplace of Nils Holm."), False),
        # Without one, what is said last of something that was brought up; a stray fact is beside the point.
        ((FIRST, "Iron Meadow came out in 1950."), True),
        ((FIRST, "Nils Holm died in Halmere."), False),
        ((FIRST, OTHER_NAME, "Emil Rask died in Halmere."), False),
        ((FIRST, OTHER_NAME, "Emil Rask was born in Halmere."), True),
        (("Iron Meadow came out in 1950.",), False),
        (("1950 is later than 1921.",), None),
    ],
)
def test_the_main_line_decides(steps: tuple[str, ...], aligned: bool | None) -> None:
    assert check(ASKED, respond(*steps)).aligned is aligned


@pytest.mark.parametrize(
    "steps, aligned",
    [
        # Sides nobody explains show nothing; sides that belong elsewhere do.
        ((OLDER,), None),
        ((BY_HOLM, OLDER), True),
        (("Paper Harbour was scripted by Nils Holm.", OLDER), False),
        (("Iron Meadow was directed by Nils Holm.", OLDER), False),
        (("The screenwriter of Paper Harbour is older than the screenwriter of Silent Tide.",), False),
        ((BY_HOLM, BY_QUIST, "Nils Holm died before Vera Quist."), False),
    ],
)
def test_a_comparison_shows_what_it_is_of(steps: tuple[str, ...], aligned: bool | None) -> None:
    assert check(CHOICE, respond(*steps)).aligned is aligned


def test_a_choice_is_among_what_was_compared_or_what_was_asked() -> None:
    assert [step.failure for step in check_fully(CHOICE, respond(CHOSEN)).steps] == [None]
    assert [step.failure for step in check_fully(CHOICE, respond(CHOSEN.replace("older", "younger"))).steps] == ["L3"]
    other = "Iron Meadow has the director who is older."
    assert [step.failure for step in check_fully(CHOICE, respond(other)).steps] == ["L2"]


@pytest.mark.parametrize(
    "steps, closed",
    [
        # Said outright before put together, at every place on the way.
        ((FIRST, "Nils Holm was born in Norland.", LAST), True),
        ((FIRST, SECOND, "Nils Holm was born in Norland."), False),
        # Somebody else may be meant, of whom nothing is said.
        ((FIRST, "Paper Harbour was directed by Vera Quist.", "Nils Holm was born in Halmere."), False),
        ((FIRST, "Paper Harbour was directed by Vera Quist.", "Nils Holm was born in Halmere.",
          "Vera Quist was born in Halmere."), True),
        (("Paper Harbour was directed by Emil Rask.", "Nils Holm was born in Halmere."), False),
        (("Paper Harbour was directed by Emil Rask.", OTHER_NAME, "Nils Holm was born in Halmere."), True),
    ],
)  # fmt: skip
def test_what_the_claims_establish(steps: tuple[str, ...], closed: bool) -> None:
    labels = check(ASKED, respond(*steps))
    assert (labels.closed, labels.complete) == (closed, closed)


def answer_label(answer: str, value: str) -> bool | None:
    """Closure and correctness, which read an answer alike."""
    examples = {
        "3 May 1921": ("When was Nils Holm born?", "Nils Holm was born on May 3, 1921."),
        "52,300": ("What is the population of Halmere?", "Halmere has 52,300 inhabitants."),
        "Nils Holm": ("Who directed Paper Harbour?", FIRST),
        "no": ("Were Paper Harbour and Silent Tide directed by the same person?",
               "Paper Harbour and Silent Tide were directed by different people."),
    }  # fmt: skip
    question, step = examples[value]
    verdict = check(Instance("x", question, (), value), respond(step, answer=answer))
    assert verdict.closed is verdict.correct
    return verdict.correct


@pytest.mark.parametrize(
    "answer, value, label",
    [
        ("The answer is Nils Holm.", "Nils Holm", True),
        ("It was Holm, Nils", "Nils Holm", True),
        ("nils holm", "Nils Holm", True),
        ("Nils Holm, probably", "Nils Holm", None),
        ("not Nils Holm", "Nils Holm", None),
        ("Nils Holm or Vera Quist", "Nils Holm", False),
        ("Holm", "Nils Holm", False),
        ("It is unknown.", "Nils Holm", False),
        ("May 3, 1921", "3 May 1921", True),
        ("about 3 May 1921", "3 May 1921", None),
        ("1921", "3 May 1921", False),
        ("52300 inhabitants", "52,300", True),
        ("about 52,300", "52,300", None),
        ("152,300", "52,300", False),
        ("No, they were not.", "no", True),
        ("Yes, they were.", "no", False),
        ("no or yes", "no", False),
    ],
)
def test_answers_in_other_clothes(answer: str, value: str, label: bool | None) -> None:
    assert answer_label(answer, value) is label


def test_an_abstention_in_other_clothes() -> None:
    gap = "There is no information about the birthplace of Nils Holm."
    assert check(ASKED, respond(FIRST, gap, answer="The answer is unknown.")).closed is True


def test_an_answer_alone_says_nothing_of_a_trace() -> None:
    assert check(ASKED, respond()) == Verdict(True, None, None, None, True)


def test_a_sentence_about_something_on_the_way_leaves_the_claim_open() -> None:
    odd = Passage("3", "Old Mill", "Some say that Nils Holm went there.")
    claims = ("So the place of death of the director of Paper Harbour is Halmere.",
              "The person who directed both Paper Harbour and Iron Meadow died in Halmere.")  # fmt: skip
    for claim in claims:
        works = (*ASKED.evidence, film("Iron Meadow", "Nils Holm"))
        assert check_fully(replace(ASKED, evidence=works), respond(claim)).steps[0].failure == "L2"
        assert check_fully(replace(ASKED, evidence=(*works, odd)), respond(claim)).steps[0].sound is None


def test_a_sentence_it_cannot_read_leaves_the_claim_open() -> None:
    odd = replace(PERSON, text="Nils Holm is a film director. Nobody in Halmere has forgotten Nils Holm.")
    labels = check_fully(replace(ASKED, evidence=(FILM, odd, CITY)), respond(FIRST, SECOND, LAST))
    assert [step.sound for step in labels.steps] == [True, None, None]
    assert labels.verdict == Verdict(None, True, True, True, True)


def names_of(item: WorldItem) -> list[str]:
    """Whatever the passages are about."""
    return [re.sub(r" \([a-z ]+\)$", "", passage.title) for passage in item.instance.evidence]


def changed_name(item: WorldItem, rng: Random) -> Response:
    """The reliable response with one name of one step replaced by another from the passages."""
    names = names_of(item)
    places = [(at, name) for at, text in enumerate(item.response.trace.texts) for name in names if name in text]
    at, old = rng.choice(places)
    new = rng.choice([name for name in names if name != old])
    texts = [text.replace(old, new) if n == at else text for n, text in enumerate(item.response.trace.texts)]
    return replace(item.response, trace=Trace.of(*texts))


@pytest.mark.slow
def test_a_changed_fact_changes_the_verdict() -> None:
    unsound = 0
    for index in range(40):
        item = make_world_item(PROFILES[index % 3], 5, index)
        assert check(item.instance, item.response) == RELIABLE
        labels = check(item.instance, changed_name(item, Random(index)))
        assert labels != RELIABLE
        unsound += labels.locally_sound is False
    # Now and then the changed step is true as well, and only no longer to the point.
    assert unsound >= 38


@pytest.mark.slow
def test_a_changed_passage_changes_the_verdict() -> None:
    for index in range(40):
        item = make_world_item(PROFILES[index % 3], 6, index)
        for passage_id in item.instance.support_ids or ():
            rest = tuple(passage for passage in item.instance.evidence if passage.id != passage_id)
            assert check(replace(item.instance, evidence=rest), item.response).locally_sound is False
