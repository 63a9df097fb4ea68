"""Sources that cannot be built on: each is refused at the door for what was planted, and none gives itself away."""

from __future__ import annotations

from dataclasses import fields
from random import Random

import pytest

from eclose.errors import SettingError
from eclose.values.instance import Instance
from eclose_world.faulty.bad_sources import BAD_SOURCE_KINDS, make_bad_source, make_world_sources
from eclose_world.make.instances import make_world_item
from tests.building import build, world_model

PROFILES = ("2wiki", "musique", "hotpot", "short-easy", "short-hard")
DEFECTS = {
    "missing_passage": {"underdetermined", "broken_link"},
    "second_answer": {"underdetermined"},
    "broken_link": {"broken_link", "underdetermined"},
    "wrong_reference": {"unsupported_reference"},
    "malformed_question": {"malformed"},
    "one_passage": {None},
    "told_elsewhere": {None},
    "long_answer": {"long_answer"},
}
"""What the screen calls each; nothing is wrong with the last two but where the answer stands."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", BAD_SOURCE_KINDS)
def test_every_spoilt_source_is_refused_at_the_screen(kind):
    model, count = world_model(), 0
    for profile in PROFILES:
        for index in range(10):
            source = make_bad_source(make_world_item(profile, 13, index), kind, Random(index))
            if source is None:
                continue
            count += 1
            built = build(source, model)
            assert built.reason.startswith("screen_seed: "), (kind, source.id)
            name, reply = model.said[-1]
            assert name == "screen_seed"
            assert reply["defect"] in DEFECTS[kind]
    assert count >= 30


def test_what_is_wrong_shows_in_the_judgement_it_belongs_to():
    item, model = make_world_item("2wiki", 13, 3), world_model()
    for kind, name in (("one_passage", "support"), ("told_elsewhere", "elsewhere"), ("second_answer", "unique")):
        assert build(make_bad_source(item, kind, Random(1)), model).reason == f"screen_seed: {name}"


def test_nothing_but_what_is_wrong_changes():
    """Ids, marks and the number of passages are those of the good source."""
    parts = {"question", "evidence", "reference_answer", "aliases"}
    for index in range(10):
        item = make_world_item("hotpot", 13, index)
        for kind in BAD_SOURCE_KINDS:
            source = make_bad_source(item, kind, Random(index))
            if source is None:
                continue
            changed = {
                field.name
                for field in fields(Instance)
                if getattr(source, field.name) != getattr(item.instance, field.name)
            }
            assert changed
            assert changed <= parts
            assert [field.id for field in source.evidence] == [field.id for field in item.instance.evidence]


@pytest.mark.slow
def test_the_share_of_spoilt_sources_is_the_one_asked_for():
    sources = list(make_world_sources("2wiki", 5, 200, 0.3))
    spoilt = [source for source in sources if source.kind is not None]
    # Four standard deviations of a binomial of 200.
    assert abs(len(spoilt) / 200 - 0.3) < 4 * (0.3 * 0.7 / 200) ** 0.5
    assert {source.kind for source in spoilt} == set(BAD_SOURCE_KINDS)
    assert [source.instance.id for source in sources] == [
        make_world_item("2wiki", 5, index).instance.id for index in range(200)
    ]
    assert sources == list(make_world_sources("2wiki", 5, 200, 0.3))
    assert sources[:20] == list(make_world_sources("2wiki", 5, 20, 0.3))


@pytest.mark.slow
def test_the_good_ones_are_left_as_they_were_and_pass_the_screen():
    model = world_model()
    for index, source in enumerate(make_world_sources("2wiki", 6, 20, 0.5)):
        if source.kind is None:
            assert source.instance == make_world_item("2wiki", 6, index).instance
            built = build(source.instance, model)
            assert built.family is not None or not built.reason.startswith("screen_seed")


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(SettingError, match="unknown kind of bad source"):
        make_bad_source(make_world_item("2wiki", 1, 0), "coffee", Random(1))
    with pytest.raises(SettingError, match="between 0 and 1"):
        next(make_world_sources("2wiki", 1, 1, 2.0))
