"""From a file of sources to a folder of families, over real HTTP: what comes out, what is refused, what it costs."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from eclose.calls.client import CallSettings
from eclose.calls.resolve import find_model_ref
from eclose.calls.run import RunOptions
from eclose.errors import SettingError, UserError
from eclose.files import jsonl
from eclose.files.jsonl import ReadRecord
from eclose.values.family import Family
from eclose.values.instance import Instance
from eclose.values.judgment import NO_REFERENCE_REASON
from eclose_train.construction.forecast import UNPILOTED_BASIS, forecast_construction
from eclose_train.construction.funnel import count_processed_sources
from eclose_train.construction.run import (
    DUPLICATE,
    ConstructionModels,
    ConstructionRun,
    ConstructionSources,
    construct_families,
    resolve_construction_models,
)
from eclose_train.construction.settings import ConstructSettings
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.family_conditions import find_family_defects
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread

FREE = CallSettings(unpriced=True)
FILES = ("families.jsonl", "train.jsonl", "development.jsonl", "README.md")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Four questions of each of two profiles; one without a reference, one that another asks too."""
    instances = [
        item.instance for name in ("short-easy", "short-hard") for item in islice(make_world_items(name, 3), 4)
    ]
    bare = replace(instances[0], id="bare", question="Who wrote it?", reference_answer=None, aliases=())
    twin = replace(instances[1], id="zz-twin")
    path = tmp_path_factory.mktemp("sources") / "sources.jsonl"
    jsonl.write_records(path, [*instances, bare, twin])
    return path


@pytest.fixture(scope="module")
def server():
    with ModelServerThread(build_world_handlers()) as running:
        yield running


def models(server):
    world = find_model_ref("world", base_url=server.base_url, environ={})
    return asyncio.run(resolve_construction_models(world, world))


def built(sources, server, out, settings=None, limit=None, **more):
    options = RunOptions(**more)
    return asyncio.run(construct_families(sources, models(server), out, settings, FREE, options, limit=limit))


@pytest.fixture(scope="module")
def done(sources, server, tmp_path_factory):
    """A run that nobody disturbed."""
    return built(sources, server, tmp_path_factory.mktemp("run"))


@pytest.fixture
def run(done, tmp_path):
    """Its folder, to do with as one likes."""
    return Path(shutil.copytree(done.stage.out.parent, tmp_path / "run"))


@pytest.mark.slow
def test_a_folder_holds_families_that_are_right_with_everything_that_goes_with_them(done, run):
    families = list(jsonl.read_records(run / "families.jsonl", Family))
    assert families
    assert [find_family_defects(family) for family in families] == [()] * len(families)
    assert [family.id for family in families] == sorted(family.id for family in families)
    for family in families:
        assert family.provenance.reverifier == family.provenance.verifier
        assert {finding.again for finding in family.findings} == {False, True}
    parts = [list(jsonl.read_records(run / name, Family)) for name in ("train.jsonl", "development.jsonl")]
    assert sorted(family.id for part in parts for family in part) == [family.id for family in families]
    manifest = done.manifest
    assert manifest.counts.conserved
    assert manifest.funnel["read"].rejected == {DUPLICATE: 1}
    assert manifest.funnel["screen"].rejected == {NO_REFERENCE_REASON: 1}
    card = (run / "README.md").read_text("utf-8")
    assert f"| {len(families)} |" in card


@pytest.mark.slow
def test_the_funnel_is_told_by_dataset_and_so_is_what_it_took(done):
    calls = done.manifest.calls
    funnel, usage = calls["funnel"], calls["usage"]
    assert {name: counts["Processed"] for name, counts in funnel.items()} == {
        "world-short-easy": 5,
        "world-short-hard": 4,
    }
    columns = ["Sampled", "Processed", "Screened", "y*", "Evidence", "Question", "Packed"]
    assert [list(counts) for counts in funnel.values()] == [columns] * 2
    # One source asks the same as another, so it is not processed.
    assert sum(counts["Sampled"] for counts in funnel.values()) == 10
    # The paper's "Packed" are the families in the end, after the final re-verification.
    assert sum(counts["Packed"] for counts in funnel.values()) == done.manifest.counts.accepted
    for counts in funnel.values():
        passed = list(counts.values())
        assert passed == sorted(passed, reverse=True)
    for amount in ("replies", "prompt_tokens", "completion_tokens"):
        assert sum(entry[amount] for entry in usage.values()) == calls[amount]


@pytest.mark.slow
def test_the_second_time_nobody_is_asked_and_what_is_missing_is_made_up_for(sources, server, run):
    before = {name: (run / name).read_bytes() for name in FILES}
    paid = server.bill(keys=False)["totals"]["paid"]
    (run / "development.jsonl").unlink()
    assert built(sources, server, run).again
    assert server.bill(keys=False)["totals"]["paid"] == paid
    assert {name: (run / name).read_bytes() for name in FILES} == before


@pytest.mark.slow
def test_out_of_the_ledger_alone_comes_the_same(sources, server, run, tmp_path):
    paid = server.bill(keys=False)["totals"]["paid"]
    built(sources, server, tmp_path / "again", ledger=run / "ledger.sqlite", replay=True)
    assert server.bill(keys=False)["totals"]["paid"] == paid
    for name in FILES[:3]:
        assert (tmp_path / "again" / name).read_bytes() == (run / name).read_bytes()


@pytest.mark.slow
def test_without_the_second_check_nobody_is_asked_twice(sources, server, tmp_path):
    result = built(sources, server, tmp_path / "run", ConstructSettings(reverify=False))
    assert "reverify" not in result.manifest.funnel
    assert "reverifier" not in result.manifest.settings
    for family in jsonl.read_records(tmp_path / "run" / "families.jsonl", Family):
        assert family.provenance.reverifier is None
        assert not any(finding.again for finding in family.findings)


def test_what_is_refused_is_kept_with_stage_reason_and_what_was_said(server, tmp_path):
    source = next(make_world_items("short-easy", 3)).instance
    jsonl.write_records(tmp_path / "wrong.jsonl", [replace(source, reference_answer="Nobody At All", aliases=())])
    result = built(tmp_path / "wrong.jsonl", server, tmp_path / "run")
    assert result.manifest.counts.accepted == 0
    (record,) = map(json.loads, (tmp_path / "run" / "families.jsonl.rejected.jsonl").read_text().splitlines())
    assert record["stage"] == "screen"
    (setback,) = record["value"]["setbacks"]
    assert setback["stage"] == "screen_seed"
    assert setback["finding"]["said"]["defect"] == "unsupported_reference"


@pytest.mark.slow
def test_a_pilot_scaled_up_comes_near_the_bill(server, tmp_path):
    instances = [item.instance for name in ("short-easy", "2wiki") for item in islice(make_world_items(name, 8), 16)]
    jsonl.write_records(tmp_path / "all.jsonl", instances)
    jsonl.write_records(tmp_path / "some.jsonl", [*instances[:6], *instances[16:22]])
    built(tmp_path / "some.jsonl", server, tmp_path / "pilot")
    plan = ConstructionRun.of(tmp_path / "all.jsonl", models(server), tmp_path / "run", ConstructSettings())
    expected = forecast_construction(plan, {}, tmp_path / "pilot")
    calls = built(tmp_path / "all.jsonl", server, tmp_path / "run").manifest.calls
    assert expected.calls == pytest.approx(calls["replies"], rel=0.15)
    assert expected.prompt_tokens == pytest.approx(calls["prompt_tokens"], rel=0.15)


def test_without_a_pilot_it_is_a_guess_that_says_so(sources, server, tmp_path):
    plan = ConstructionRun.of(sources, models(server), tmp_path / "run", ConstructSettings())
    guess = forecast_construction(plan, {})
    assert (guess.sources, guess.basis, guess.cost) == (8, UNPILOTED_BASIS, None)
    assert 8 < guess.calls < 8 * 16
    more = forecast_construction(
        ConstructionRun.of(sources, models(server), tmp_path / "run", ConstructSettings(edits=4)), {}
    )
    assert more.calls > guess.calls


@pytest.mark.slow
def test_a_pilot_of_something_else_is_no_pilot(sources, server, tmp_path):
    built(sources, server, tmp_path / "pilot", limit=2)
    other = ConstructionRun.of(sources, models(server), tmp_path / "run", ConstructSettings(edits=1))
    with pytest.raises(SettingError, match=r"other settings \(edits\)"):
        forecast_construction(other, {}, tmp_path / "pilot")
    same = ConstructionRun.of(sources, models(server), tmp_path / "run", ConstructSettings())
    with pytest.raises(SettingError, match="no sources of"):
        forecast_construction(same, {}, tmp_path / "pilot")


def test_kin_among_the_models_are_told():
    def named(name):
        return find_model_ref(name, base_url="http://127.0.0.1:9/v1", environ={})

    alike = asyncio.run(resolve_construction_models(named("gpt-5"), named("gpt-5-mini"), named("claude-x")))
    assert alike.same_family_checkers == (alike.verifier.name,)
    assert asyncio.run(resolve_construction_models(named("gpt-5"), named("claude-x"))).same_family_checkers == ()


def test_what_follows_from_the_families_follows_them_after_a_retry_and_a_kill(sources, server, run):
    (run / "train.jsonl").write_text("")  # as an earlier end of the run would have left it
    (run / "README.md").unlink()
    built(sources, server, run)
    whole = (run / "train.jsonl").read_bytes()
    assert whole
    (run / "train.jsonl.manifest.json").unlink()  # killed between the two
    (run / "train.jsonl").write_text("half a li")
    built(sources, server, run)
    assert (run / "train.jsonl").read_bytes() == whole
    assert (run / "README.md").exists()


def test_nothing_of_anybody_elses_is_overwritten_and_that_is_known_before_anybody_is_paid(sources, server, tmp_path):
    paid = server.bill(keys=False)["totals"]["paid"]
    for name in ("train.jsonl", "README.md"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(UserError, match="was not written by this run"):
            built(sources, server, folder)
        assert (folder / name).read_text() == "mine"
    (tmp_path / "own").mkdir()
    copy = shutil.copy(sources, tmp_path / "own" / "development.jsonl")
    with pytest.raises(SettingError, match="is an input"):
        built(Path(copy), server, tmp_path / "own", force=True)
    assert server.bill(keys=False)["totals"]["paid"] == paid


def test_a_card_that_somebody_worked_on_is_kept(sources, server, run):
    text = (run / "README.md").read_text("utf-8")
    (run / "README.md").write_text(text.replace("apache-2.0", "cc-by-4.0"))
    built(sources, server, run)
    assert "cc-by-4.0" in (run / "README.md").read_text("utf-8")


def test_questions_in_any_script_are_told_apart():
    questions = ["Кто написал роман?", "Кто снял фильм?", "谁写了这本书?", "Who  wrote IT?", "who wrote it?"]
    questions += ["Caf\u00e9?", "Cafe\u0301?"]
    spool = [
        ReadRecord(str(number), value=Instance(str(number), question, ())) for number, question in enumerate(questions)
    ]
    assert [record.rejected for record in ConstructionSources(spool)] == [
        None,
        None,
        None,
        None,
        DUPLICATE,
        None,
        DUPLICATE,
    ]


def test_a_part_of_the_sources_is_the_first_in_seeded_order(tmp_path):
    """As appendix B.1 processes a part of its sample: by the order of `data sample`, not by id."""
    from eclose.readers.sampling import sample_instances

    items = [item.instance for item in islice(make_world_items("short-easy", 3), 12)]
    jsonl.write_records(tmp_path / "a.jsonl", items)
    model = find_model_ref("world", base_url="http://127.0.0.1:9/v1", environ={})
    plan = ConstructionRun.of(
        tmp_path / "a.jsonl", ConstructionModels(model, model, model), tmp_path / "out", ConstructSettings(), limit=4
    )
    with plan.open_records() as sources:
        drawn = [record.value.id for record in sources]
    assert drawn == sorted(item.id for item in sample_instances(items, 4))
    assert drawn != sorted(item.id for item in items)[:4]


def test_a_pilot_from_before_the_columns_of_the_paper_still_counts():
    assert (
        count_processed_sources({"Sources": 12, "Screened": 4})
        == count_processed_sources({"Sampled": 20, "Processed": 12})
        == 12
    )
    assert count_processed_sources({"Sampled": 20, "Processed": 0}) == count_processed_sources({}) == 0
