"""The server of a page: what it answers, and to whom."""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.diagnosis.report.conftest import cases

from eclose.diagnosis.report.view.build import build_view_index
from eclose.diagnosis.report.view.query import ViewIndex
from eclose.diagnosis.report.view.server import parse_response_query, serve_view
from eclose.errors import UserError

pytest.importorskip("uvicorn")
__all__ = ["cases"]


@pytest.fixture(scope="module")
def served(cases, tmp_path_factory):
    path = tmp_path_factory.mktemp("view") / "view.sqlite"
    build_view_index(path, cases, key="k", render=lambda data: f"<p>{data['total']} responses")
    with serve_view(ViewIndex(path)) as page:
        yield page


def status(url, **settings):
    try:
        with urlopen(Request(url, **settings), timeout=10) as reply:
            return reply.status
    except HTTPError as error:
        return error.code


def test_the_page_its_rows_and_its_blocks(served, cases):
    with urlopen(served.url, timeout=10) as reply:
        assert reply.read() == b"<p>96 responses"
        assert reply.headers["Cache-Control"] == "no-store"
    with urlopen(served.url + "rows?sort=given&first=0", timeout=10) as reply:
        assert json.load(reply)["ids"] == [case.response.id for case in cases]
    assert status(served.url + "block/details-0") == 200
    assert status(served.url + "block/details-7") == 404
    assert status(served.url + "rows?min=low") == 400


def test_only_its_own_address_is_answered(served):
    root = served.url.split("/", 3)[:3]
    assert status("/".join(root) + "/") == 404
    assert status("/".join([*root, "wrong-token", ""])) == 404
    assert status("/".join([*root, "rows"])) == 404
    # A name that another site points here.
    assert status(served.url, headers={"Host": "evil.example"}) == 400
    assert status(served.url) == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(served, method):
    for path in ("", "rows", "block/details-0"):
        assert status(served.url + path, method=method, data=b"x") == 405


def test_a_port_in_use_is_named(served):
    port = int(served.url.split(":")[2].split("/")[0])
    with pytest.raises(UserError, match=f"port {port}: cannot be used"):
        serve_view(served._index, port)


def test_an_address_is_the_query_that_the_page_sends():
    query = parse_response_query(
        {"outcome": "gap", "model": "a", "q": "x y", "passages": "1", "min": "0.5", "first": "500", "score": "closure"}
    )
    assert query.choices == {"outcome": "gap", "model": "a"}
    assert (query.search, query.in_passages, query.lowest, query.highest) == ("x y", True, 0.5, None)
