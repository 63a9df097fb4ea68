"""A project's tables in both databases, and hashes that cost little where their cost is not what is tested."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eclose.calls.ledger.database import make_database_engine, open_schema
from eclose_annotate.people import passwords
from eclose_annotate.schema import ANNOTATION_SCHEMA
from tests.calls.ledger.postgres import DATABASES, fresh_database

pytest.importorskip("argon2", reason="needs the annotate extra")

NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.fixture
def now():
    return NOW


@pytest.fixture
def cheap(monkeypatch):
    """Hashing as cheap as argon2 allows."""
    monkeypatch.setattr(passwords, "TIME_COST", 1)
    monkeypatch.setattr(passwords, "MEMORY_KIB", 8)
    passwords._hasher.cache_clear()
    yield
    passwords._hasher.cache_clear()


@pytest.fixture(scope="module", params=DATABASES)
def engine(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("accounts")
    engine = make_database_engine(folder / "project.db" if request.param == "sqlite" else fresh_database())
    with engine.begin() as connection:
        open_schema(connection, ANNOTATION_SCHEMA, "project")
    yield engine
    engine.dispose()


@pytest.fixture
def connection(engine, cheap):
    """A connection of an empty project. What a test does is taken back."""
    with engine.connect() as connection, connection.begin() as transaction:
        yield connection
        transaction.rollback()
