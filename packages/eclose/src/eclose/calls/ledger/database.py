"""Database engines, writer locks and schemas: a file is SQLite, a ``postgresql://`` URL is PostgreSQL.

A commit is on disk when it returns.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError

from eclose.errors import SettingError, UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from sqlalchemy import Engine, TextClause

_MOUNTS = Path("/proc/self/mounts")
# SQLite's locks are unreliable on these.
_NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "ceph", "cifs", "davfs", "glusterfs", "nfs", "nfs4", "smb3", "smbfs", "fuse.sshfs"}
)

# A reply that a power cut undoes is paid for twice: FULL waits for the disk, and macOS needs fullfsync for that.
_PRAGMAS = ("busy_timeout = 10000", "journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "foreign_keys = ON")
_STATEMENT_SECONDS = 120
"""Time limit of a statement on a server without a limit of its own; the creation of tables has none."""
_TRANSPORT = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Time limits of connections, in seconds; tcp_user_timeout in milliseconds. They detect a server that vanished."""
_LOCK_BYTE = 2**30
"""The byte that is locked on Windows, where locked bytes cannot be read: far behind the holder's name."""
# An arbitrary number that all processes opening one database agree on.
_SCHEMA_LOCK = 0x65636C6F


_NO_URL = "this is not the URL of a database. Write postgresql://user@host/name, or name a file."
# Parameters of a URL that messages may repeat. A list of secret ones would never be complete: pgpassword, options, …
_PUBLIC_PARAMETERS = ("host", "hostaddr", "port", "user", "dbname", "service", "sslmode")


def is_database_url(location: Path | str) -> bool:
    """Return whether a location is a URL and not a file; raise on a mistyped PostgreSQL URL."""
    if isinstance(location, str) and "://" not in location and location.startswith("postgres") and "@" in location:
        raise SettingError(_NO_URL)  # as a path, its password would become the name of a folder
    return isinstance(location, str) and "://" in location


def describe_database_location(location: Path | str) -> str:
    """Return the file or URL for messages, without a password or other secrets."""
    if not is_database_url(location):
        return str(location)
    url = _parse_url(str(location))
    server = url.set(query={}).render_as_string()
    query = "&".join(f"{name}={value}" for name in _PUBLIC_PARAMETERS for value in url.normalized_query.get(name, ()))
    return f"{server}?{query}" if query else server


def url_has_password(location: str) -> bool:
    """Return whether a URL contains a password, before the host or in its query."""
    url = _parse_url(location)
    return bool(url.password) or any("password" in name.lower() for name in url.query)


WRITE_OPTION = "eclose_writes"
"""Execution option of a connection that will write: SQLite refuses one of two readers that both start to write."""


def make_database_engine(location: Path | str, *, connections: int = 1) -> Engine:
    """Return the engine of a file or URL with a pool of connections. Nothing is opened yet."""
    if is_database_url(location):
        return _make_postgresql_engine(_parse_url(str(location)), connections)
    return _make_sqlite_engine(Path(location), connections)


def _parse_url(location: str) -> URL:
    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
        raise SettingError(_NO_URL) from None  # the original error repeats the URL with its password
    if "@" in (url.host or ""):
        raise SettingError("the URL of the database holds @ in its password. Write %40 for it, or set PGPASSWORD.")
    if not all(port.isdigit() for ports in url.normalized_query.get("port", ()) for port in ports.split(",")):
        raise SettingError("the URL of the database has a port that is not a number.")
    if url.get_backend_name() != "postgresql":
        name = url.get_backend_name()
        raise SettingError(
            f"{name}://: is not a supported database. Write postgresql://user@host/name, or name a file."
        )
    return url.set(drivername="postgresql+psycopg")


def _make_postgresql_engine(url: URL, connections: int) -> Engine:
    # Parameters of the URL take precedence.
    transport = {name: value for name, value in _TRANSPORT.items() if name not in url.query}
    try:
        engine = create_engine(url, pool_size=connections, pool_pre_ping=True, connect_args=transport)
    except ImportError as missing:
        raise UserError("a PostgreSQL database needs psycopg. Run: pip install 'eclose[postgres]'") from missing

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # "off" confirms commits before they are on disk. Stricter settings, such as waiting for a replica, are kept.
        if connection.execute("SHOW synchronous_commit").fetchone()[0] == "off":
            connection.execute("SET synchronous_commit = on")
        if connection.execute("SHOW statement_timeout").fetchone()[0] == "0":
            connection.execute(f"SET statement_timeout = '{_STATEMENT_SECONDS}s'")
        connection.commit()

    return engine


def _make_sqlite_engine(path: Path, connections: int) -> Engine:
    engine = create_engine(URL.create("sqlite+pysqlite", database=str(path)), pool_size=connections)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # The sqlite3 module would start transactions by itself, but not before changes of the schema.
        connection.isolation_level = None
        try:
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
        except UnicodeDecodeError as error:
            # SQLite quotes a damaged schema in its message, which sqlite3 then cannot decode.
            raise sqlite3.DatabaseError(f"the schema is damaged ({error})") from error

    # Device and inode of the file at the first transaction.
    opened: list[tuple[int, int]] = []

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        _refuse_replaced_file(path, opened)
        writes = connection.get_execution_options().get(WRITE_OPTION)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def write_row(connection: Connection, statement: TextClause, row: Mapping[str, Any]) -> int:
    """Execute one of the statements of every call; return the number of rows that it changed."""
    if connection.dialect.name == "sqlite":
        return int(_execute_directly(connection, statement, row).rowcount)
    return connection.execute(statement, row).rowcount


def find_row(connection: Connection, statement: TextClause, parameters: Mapping[str, Any]) -> Any:
    """Return the only row of one of the queries of every call, with its columns as attributes; None for no row."""
    if connection.dialect.name != "sqlite":
        return connection.execute(statement, parameters).one_or_none()
    cursor = _execute_directly(connection, statement, parameters)
    values = cursor.fetchone()
    names = [column[0] for column in cursor.description]
    return None if values is None else SimpleNamespace(**dict(zip(names, values, strict=True)))


def _execute_directly(connection: Connection, statement: TextClause, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
    # SQLAlchemy takes longer to prepare such a statement than SQLite to execute it, and each call has five.
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    try:
        return driver.execute(statement.text, parameters)
    except sqlite3.Error as error:
        raise DBAPIError.instance(statement.text, None, error, sqlite3.Error, dialect=connection.dialect) from error


def _refuse_replaced_file(path: Path, opened: list[tuple[int, int]]) -> None:
    """Raise where the file was removed or replaced since it was opened: writes would go to a file without a name."""
    try:
        status = os.stat(path)
    except OSError:
        status = None
    identity = None if status is None else (status.st_dev, status.st_ino)
    if identity is not None and not opened:
        opened.append(identity)
    elif not opened or identity != opened[0]:
        raise UserError(
            f"{path}: was removed or replaced while it was in use, so nothing more can be written to it. Put it back "
            "from a copy before you run the same command again: without it, everything is asked and paid again."
        )


class WriterLock:
    """A lock that gives one writer access to a file. The system releases it when the process ends."""

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
        except OSError as locked:
            holding = self._describe_holder()
            self.release()
            raise UserError(f"{path}: {holding}. Wait until it ends, or choose another file.") from locked
        now = datetime.now(UTC).isoformat(timespec="seconds")
        holder = {"process": os.getpid(), "host": platform.node(), "purpose": purpose, "since": now}
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        os.write(self._file, json.dumps(holder).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock. Its file stays: after a removal, two processes could lock two files of one name."""
        os.close(self._file)

    def _describe_holder(self) -> str:
        """Return the holder of the lock; until it has written its name, the previous one or "another process"."""
        name = "another process"
        with suppress(ValueError, KeyError, TypeError):
            os.lseek(self._file, 0, os.SEEK_SET)
            holder = json.loads(os.read(self._file, 2**16))
            name = f"process {holder['process']} on {holder['host']} ({holder['purpose']}, since {holder['since']})"
        return f"{name} is writing to it"


def _lock(file: int) -> None:
    """Lock an open file; raise OSError where another process has the lock, ImportError on systems without locks."""
    try:
        fcntl: Any = import_module("fcntl")
    except ImportError:
        msvcrt: Any = import_module("msvcrt")
        os.lseek(file, _LOCK_BYTE, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def read_database_time(connection: Connection) -> float:
    """Return the time in seconds since 1970, by the clock that all processes of a database share."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())


def execute_statements(
    connection: Connection, statements: Sequence[str], types: Mapping[str, Mapping[str, str]]
) -> None:
    """Execute statements with type names in braces, replaced by the types of the connection's database."""
    for statement in statements:
        connection.execute(text(statement.format_map(types[connection.dialect.name])))


@dataclass(frozen=True, slots=True)
class DatabaseSchema:
    """The tables of a program in a database, which are created together."""

    table: str
    """Name of the table that holds the version of the tables and the id of the database."""
    version: str
    create: Callable[[Connection], None]


def open_schema(connection: Connection, schema: DatabaseSchema, label: str) -> str:
    """Create the tables where there are none; return the id that the database got with them, which no other one has."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _SCHEMA_LOCK})
    tables = inspect(connection).get_table_names()
    if schema.table not in tables:
        # A server's database may hold tables of several programs; a file with other tables belongs to another program.
        if tables and connection.dialect.name == "sqlite":
            raise UserError(f"{label}: is the database of another program. Choose another file.")
        schema.create(connection)
        row = {"version": schema.version, "id": secrets.token_hex(8)}
        connection.execute(text(f"CREATE TABLE {schema.table} (version VARCHAR(16), id VARCHAR(16))"))
        connection.execute(text(f"INSERT INTO {schema.table} (version, id) VALUES (:version, :id)"), row)
        return row["id"]
    version, database_id = connection.execute(text(f"SELECT version, id FROM {schema.table}")).one()
    if version != schema.version:
        raise UserError(f"{label}: was written by another version of eclose ({version}). Install the newest one.")
    return str(database_id)


def read_database_id(connection: Connection, schema: DatabaseSchema) -> str | None:
    """Return the id that a database got with its tables; None where it does not have them."""
    if schema.table not in inspect(connection).get_table_names():
        return None
    return str(connection.execute(text(f"SELECT id FROM {schema.table}")).scalar_one())


def detect_network_file_system(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the kind of network file system that holds a path; None for a local one or without a list of mounts."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    # The list writes blanks and backslashes in octal.
    kinds = {
        re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount): kind
        for _, mount, kind, *_ in map(str.split, lines)
    }
    path = path.resolve()
    # The longest mount point above the path is the one that holds it.
    nearest = next((kinds[str(folder)] for folder in (path, *path.parents) if str(folder) in kinds), None)
    return nearest if nearest in _NETWORK_FILE_SYSTEMS else None
