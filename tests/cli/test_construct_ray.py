"""Many workers build the families that one process would have built, out of one ledger."""

from __future__ import annotations

from itertools import islice

import pytest
from tests.cli.test_construct import FILES, ran
from tests.store.postgres import fresh_database

from eclose.store.records import jsonl
from eclose.world.make.instances import make_world_items
from eclose.world.roles.request_handlers import build_world_handlers
from eclose.world.server.app import ModelServerThread

pytestmark = pytest.mark.slow


def test_workers_on_one_ledger_build_what_one_process_builds(tmp_path):
    pytest.importorskip("ray")
    ledger = fresh_database()
    made = [item.instance for item in islice(make_world_items("short-easy", 4), 10)]
    jsonl.write_records(tmp_path / "sources.jsonl", made)
    with ModelServerThread(build_world_handlers()) as server:
        ran(tmp_path / "sources.jsonl", server.base_url, tmp_path / "one")
        paid = server.bill(keys=False)["totals"]["paid"]
        on_ray = ("--engine", "ray", "--workers", 2, "--ledger", ledger)
        said = ran(tmp_path / "sources.jsonl", server.base_url, tmp_path / "many", *on_ray)
        assert server.bill(keys=False)["totals"]["paid"] == 2 * paid
    assert "all " not in said
    for name in FILES:
        one, many = tmp_path / "one" / name, tmp_path / "many" / name
        assert one.exists() == many.exists(), name
        assert not one.exists() or one.read_bytes() == many.read_bytes(), name
