"""URLs of databases in messages and on disk: no password, wherever it stands in the URL."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from eclose.calls.ledger.database import (
    describe_database_location,
    is_database_url,
    make_database_engine,
    url_has_password,
)
from eclose.errors import SettingError
from eclose_annotate.project import _database_location
from tests.generating import questions

SECRET = "sEcret"

URLS = {
    "postgresql://u:sEcret@h:5433/x": "postgresql+psycopg://u:***@h:5433/x",
    "postgresql://u@h/x?password=sEcret&sslpassword=sEcret": "postgresql+psycopg://u@h/x",
    "postgresql://u@h/x?PASSWORD=sEcret": "postgresql+psycopg://u@h/x",
    "postgresql://u@h/x?pgpassword=sEcret&sslmode=require": "postgresql+psycopg://u@h/x?sslmode=require",
    "postgresql://u:a@h/x?password=sEcret&password=sEcret": "postgresql+psycopg://u:***@h/x",
    "postgresql://h/x?options=-c%20x.password%3DsEcret": "postgresql+psycopg://h/x",
    "postgresql+psycopg://u:sEcret@/x?host=/run/pg&port=5433": "postgresql+psycopg://u:***@/x?host=/run/pg&port=5433",
    "postgresql://u:sEcret@h/x?host=a&host=b": "postgresql+psycopg://u:***@h/x?host=a&host=b",
}


@pytest.mark.parametrize(("url", "expected"), URLS.items())
def test_a_message_names_the_server_without_any_password(url, expected):
    assert describe_database_location(url) == expected
    assert describe_database_location("runs/ledger.sqlite") == "runs/ledger.sqlite"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:sEcret@h:port/x",
        "postgresql://u:x@h:sEcret/x",
        "postgresql://u:x@sEcret@127.0.0.1/x",
        "postgresql://u:sEcret@[::1/x",
        "postgresql://u:x@h/x?port=sEcret",
        "postgresql://u:sEcret@h/x?port=a",
        "postgres://u:sEcret@h/x",
        "mysql://u:sEcret@h/x",
        "://u:sEcret@h/x",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_repeating_it(url):
    with pytest.raises(SettingError) as refused:
        make_database_engine(url)
    error: BaseException | None = refused.value
    assert SECRET not in str(error)
    # A traceback prints what an error was raised from.
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ if error.__cause__ or error.__suppress_context__ else error.__context__


@pytest.mark.parametrize("typo", ["postgresql//u:sEcret@h/x", "postgresql:/u:sEcret@h/x", "postgres:u:sEcret@h/x"])
def test_a_url_with_a_slip_is_not_taken_for_a_file(typo):
    """It would become a folder whose name holds the password."""
    with pytest.raises(SettingError, match="postgresql://user@host/name") as refused:
        is_database_url(typo)
    assert SECRET not in str(refused.value)
    assert not is_database_url("postgres/ledger.sqlite")


def test_a_project_keeps_no_password(tmp_path):
    assert url_has_password("postgresql://u@h/x?password=sEcret")
    assert not url_has_password("postgresql://u@h/x")
    for url in URLS:
        if "host=/" not in url and "options" not in url:
            with pytest.raises(SettingError, match="set PGPASSWORD"):
                _database_location(tmp_path, url)
    assert _database_location(tmp_path, "postgresql://u@h/x?sslmode=require") == "postgresql://u@h/x?sslmode=require"


@pytest.mark.slow
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@127.0.0.1:9/x?password=sEcret",
        "postgresql://u:sEcret@127.0.0.1:9/x?foo=sEcret",
        "postgresql://u:x@127.0.0.1:9/x?port=sEcret",
        "postgresql://u:x@sEcret@127.0.0.1/x",
        "postgresql//u:sEcret@127.0.0.1/x",
    ],
)
def test_no_command_repeats_a_password(tmp_path, url):
    questions(tmp_path / "instances.jsonl", 1)
    words = ["generate", "instances.jsonl", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--no-price"]
    process = subprocess.run(
        [sys.executable, "-m", "eclose.cli.main", *words, "--out", "run", "--ledger", url],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDEVMODE": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode in (2, 75), process.stderr
    assert SECRET not in process.stdout + process.stderr
    assert "Traceback" not in process.stderr
    assert not [path for path in tmp_path.rglob("*") if SECRET in str(path)]
