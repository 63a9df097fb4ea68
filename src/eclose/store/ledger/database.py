"""A database by its place: a file is SQLite, a URL is PostgreSQL. Durable once committed, brought up to date by name.

Knows engines, locks and migrations, nothing of what the tables mean.
"""

from __future__ import annotations

import json
import os
import platform
import time
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import URL, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError

from eclose.errors import SettingError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection, Engine

Migration: TypeAlias = "Callable[[Connection], None]"

# What a power cut takes back is paid for twice: FULL waits for the disk, and fullfsync is what that takes on a Mac.
_PRAGMAS = ("busy_timeout = 10000", "journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "foreign_keys = ON")
_STATEMENT_SECONDS = 120
"""What a statement may take on a server that sets no limit of its own; migrations take as long as they need."""
_TRANSPORT = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Seconds, and milliseconds for the last, until a connection whose other end is gone is given up."""
_LOCK_BYTE = 2**30
"""The byte that is locked on Windows, where a locked one cannot be read: far behind the holder's name."""
# Any number will do, so long as all workers that open one database at once agree on it.
_MIGRATION_LOCK = 0x65636C6F


_NO_URL = "this is no URL of a database. Write postgresql://user@host/name, or name a file."
# What a message may repeat of a URL's query. A list of secrets would never be complete: pgpassword, options, …
_SAYABLE = ("host", "hostaddr", "port", "user", "dbname", "service", "sslmode")


def is_url(where: Path | str) -> bool:
    """Return whether this is a URL and not a file. A URL with a slip in its head is refused, not taken for a file."""
    if isinstance(where, str) and "://" not in where and where.startswith("postgres") and "@" in where:
        raise SettingError(_NO_URL)  # its password would become the name of a folder
    return isinstance(where, str) and "://" in where


def describe_location(where: Path | str) -> str:
    """Return the file or URL as a message may name it: without a password or anything else that may be secret."""
    if not is_url(where):
        return str(where)
    url = _url(str(where))
    server = url.set(query={}).render_as_string()
    query = "&".join(f"{name}={value}" for name in _SAYABLE for value in url.normalized_query.get(name, ()))
    return f"{server}?{query}" if query else server


def has_password(where: str) -> bool:
    """Return whether a URL holds a password, before the host or in its query."""
    url = _url(where)
    return bool(url.password) or any("password" in name.lower() for name in url.query)


WRITE_OPTION = "eclose_writes"
"""An option of a connection that will write. Of two readers of a file that both turn writers, one is turned away."""


def make_engine(where: Path | str, *, connections: int = 1) -> Engine:
    """The engine of a place, for so many at once. Nothing is opened yet."""
    return _postgresql(_url(str(where)), connections) if is_url(where) else _sqlite(Path(where), connections)


def _url(where: str) -> URL:
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):
        raise SettingError(_NO_URL) from None  # the error repeats the URL, and with it the password
    if "@" in (url.host or ""):
        raise SettingError("the URL of the database holds @ in its password. Write %40 for it, or set PGPASSWORD.")
    if not all(port.isdigit() for ports in url.normalized_query.get("port", ()) for port in ports.split(",")):
        raise SettingError("the URL of the database has a port that is no number.")
    if url.get_backend_name() != "postgresql":
        name = url.get_backend_name()
        raise SettingError(f"{name}://: is no database known here. Write postgresql://user@host/name, or name a file.")
    return url.set(drivername="postgresql+psycopg")


def _postgresql(url: URL, connections: int) -> Engine:
    # What the URL says itself is left as it is.
    transport = {name: value for name, value in _TRANSPORT.items() if name not in url.query}
    try:
        engine = create_engine(url, pool_size=connections, pool_pre_ping=True, connect_args=transport)
    except ImportError as missing:
        raise UserError("a PostgreSQL database needs psycopg. Run: pip install 'eclose[postgres]'") from missing

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # A server may be set to answer before the disk has. Settings that ask for more, such as a replica, are left.
        if connection.execute("SHOW synchronous_commit").fetchone()[0] == "off":
            connection.execute("SET synchronous_commit = on")
        if connection.execute("SHOW statement_timeout").fetchone()[0] == "0":
            connection.execute(f"SET statement_timeout = '{_STATEMENT_SECONDS}s'")
        connection.commit()

    return engine


def _sqlite(path: Path, connections: int) -> Engine:
    engine = create_engine(URL.create("sqlite+pysqlite", database=str(path)), pool_size=connections)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # Python's own idea of when a transaction begins leaves out changes of the schema.
        connection.isolation_level = None
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")

    opened: list[tuple[int, int]] = []

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        _refuse_another_file(path, opened)
        writes = connection.get_execution_options().get(WRITE_OPTION)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _refuse_another_file(path: Path, opened: list[tuple[int, int]]) -> None:
    """Raise where a database's file is not the one that was opened: what is written then is in no file."""
    try:
        status = os.stat(path)
    except OSError:
        status = None
    known = None if status is None else (status.st_dev, status.st_ino)
    if known is not None and not opened:
        opened.append(known)
    elif not opened or known != opened[0]:
        raise UserError(
            f"{path}: was removed or replaced while it was in use, so nothing more can be written to it. Put it back "
            "from a copy before you run the same command again: without it, everything is asked and paid again."
        )


class WriterLock:
    """At most one process, and one opening in it, writes to a file. The system lets go when the process dies."""

    def __init__(self, path: Path, purpose: str) -> None:
        if path.is_dir():
            raise UserError(f"{path}: is a folder. Name a file.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UserError(f"{path}: cannot be written here ({error.strerror}). Choose another place.") from error
        try:
            _lock(self._file)
        except ImportError as missing:
            self.release()
            raise UserError(
                f"{path}: this system has no file locks. Keep the ledger in PostgreSQL, --ledger postgresql://..."
            ) from missing
        except OSError as taken:
            holder = self._holder()
            self.release()
            raise UserError(f"{path}: {holder}. Wait until it ends, or choose another file.") from taken
        self._sign(purpose)

    def release(self) -> None:
        """Let others write. The lock's file stays: were it removed, two could hold two files of one name."""
        os.close(self._file)

    def _sign(self, purpose: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        holder = {"process": os.getpid(), "host": platform.node(), "purpose": purpose, "since": now}
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        os.write(self._file, json.dumps(holder).encode() + b"\n")

    def _holder(self) -> str:
        """Return who has the lock: between taking and signing, the one before, or none that is known."""
        name = "another process"
        with suppress(ValueError, KeyError, TypeError):
            os.lseek(self._file, 0, os.SEEK_SET)
            holder = json.loads(os.read(self._file, 2**16))
            name = f"process {holder['process']} on {holder['host']} ({holder['purpose']}, since {holder['since']})"
        return f"{name} is writing to it"


def _lock(file: int) -> None:
    """Lock an open file for this process; OSError where it is taken, ImportError where the system cannot."""
    try:
        fcntl: Any = import_module("fcntl")
    except ImportError:
        msvcrt: Any = import_module("msvcrt")
        os.lseek(file, _LOCK_BYTE, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def read_server_time(connection: Connection) -> float:
    """Return seconds since 1970 by the one clock that all processes at a database share."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())


def execute_all(connection: Connection, statements: Sequence[str], types: Mapping[str, Mapping[str, str]]) -> None:
    """Execute statements in which the names of types stand in braces, by the words of the database at hand."""
    for statement in statements:
        connection.execute(text(statement.format_map(types[connection.dialect.name])))


def migrate(connection: Connection, migrations: Sequence[Migration], table: str, place: str) -> None:
    """Apply, in order, what was not applied yet; each is known by its name and done once."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
    done = _applied(connection, table, place)
    if unknown := done - {migration.__name__ for migration in migrations}:
        names = ", ".join(sorted(unknown))
        raise UserError(f"{place}: was written by another version of eclose ({names}). Install the newest one.")
    for migration in migrations:
        if migration.__name__ not in done:
            migration(connection)
            connection.execute(text(f"INSERT INTO {table} (name) VALUES (:name)"), {"name": migration.__name__})


def _applied(connection: Connection, table: str, place: str) -> set[str]:
    tables = inspect(connection).get_table_names()
    if table in tables:
        return set(connection.execute(text(f"SELECT name FROM {table}")).scalars())
    # A server's database may serve many; a file with other tables in it is somebody's.
    if tables and connection.dialect.name == "sqlite":
        raise UserError(f"{place}: is a database of something else. Choose another file.")
    connection.execute(text(f"CREATE TABLE {table} (name VARCHAR(200) PRIMARY KEY)"))
    return set()
