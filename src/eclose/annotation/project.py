"""A project: its folder, its database and its settings, which are fixed when it is made.

The folder holds the settings and the end of the log as it is known outside the database; the database is a file in the
folder, or a PostgreSQL server for many at once.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from threading import RLock
from typing import TYPE_CHECKING

from sqlalchemy import text

from eclose.annotation import audit_log
from eclose.annotation.forms import PASSES, Kind
from eclose.annotation.schema import MIGRATIONS, MIGRATIONS_TABLE
from eclose.errors import SettingError, UserError
from eclose.protocol.prompts import load_text
from eclose.store.ledger.database import WRITES, engine_of, has_password, is_url, migrate, shown
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.jsonl import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sqlalchemy import Connection, Engine

SETTINGS = "project.json"
DATABASE = "project.sqlite"
HEAD = "audit-head.txt"
LEAD = "lead"
"""Who made the project, in the log."""
CONNECTIONS = 20
"""How many people may be served at the same moment; more wait."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a project decides once."""

    name: str
    seed: int = 42
    hide_evidence: bool = False
    """Take the evidence out of sight after the first pass. The paper leaves it there."""
    labels_to_adjudicator: bool = False
    """Show an adjudicator of responses what the annotators said in the pass at hand. Screeners' records are shown."""
    share_questions: bool = False
    """Let an annotator meet several responses to one question."""

    def shows_labels(self, kind: Kind) -> bool:
        """Whether an adjudicator sees what others said."""
        return kind is Kind.SCREENING or self.labels_to_adjudicator


class Project:
    """An opened project."""

    def __init__(self, folder: Path, settings: Settings, engine: Engine) -> None:
        self.folder, self.settings, self.engine = folder, settings, engine
        # An error goes into a log, and what a statement was given (labels, hashes of passwords) does not.
        engine.hide_parameters = True
        self.head = audit_log.Head(folder / HEAD)
        # SQLite lets one write at a time, and those who wait look in now and then: who is late may never find it free.
        self._turn: AbstractContextManager[object] = RLock() if engine.dialect.name == "sqlite" else nullcontext()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees one state."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection that writes; on disk when it ends without an error, nothing changed when with one."""
        writes = {WRITES: True}
        with self._turn, self.engine.connect().execution_options(**writes) as connection, connection.begin():
            yield connection

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    def note_head(self) -> None:
        """Note outside the database how far the log goes."""
        with self.reading() as connection:
            self.head.advance(audit_log.last(connection))


def create(
    folder: Path,
    settings: Settings,
    database: str | None = None,
    begin: Callable[[Connection], None] = lambda _connection: None,
) -> Project:
    """A new project, begun as the caller says: all of it, or nothing where that fails."""
    if (folder / SETTINGS).exists():
        raise UserError(f"{folder}: holds a project already. Choose another folder, or go on with this one.")
    place = _place(folder, database)
    folder.mkdir(parents=True, exist_ok=True)
    project = Project(folder, settings, engine_of(place, connections=CONNECTIONS))
    with project.writing() as connection:
        migrate(connection, MIGRATIONS, MIGRATIONS_TABLE, shown(place))
        if connection.execute(text("SELECT count(*) FROM annotate_settings")).scalar_one():
            raise UserError(f"{shown(place)}: is the database of another project. Name an empty one.")
        kept = {"settings": asdict(settings), "guidelines": guidelines()}
        for name, value in kept.items():
            row = {"name": name, "value": json.dumps(value)}
            connection.execute(text("INSERT INTO annotate_settings (name, value) VALUES (:name, :value)"), row)
        audit_log.append(connection, LEAD, "created", detail=kept)
        begin(connection)
    project.note_head()
    with AtomicFile(folder / SETTINGS) as file:
        file.write(json.dumps({**asdict(settings), "database": database}, indent=1).encode() + b"\n")
    return project


def _place(folder: Path, database: str | None) -> Path | str:
    if database is None:
        return folder / DATABASE
    if is_url(database) and has_password(database):
        raise SettingError("the database's password would be kept in the folder. Leave it out, and set PGPASSWORD.")
    return database


def open_project(folder: Path) -> Project:
    """A project by its folder. One made with other guidelines is refused: its labels would not be of one kind."""
    if not (folder / SETTINGS).is_file():
        raise UserError(f"{folder}: holds no project. Make one with: eclose annotate init {folder}")
    words = json.loads((folder / SETTINGS).read_text("utf-8"))
    place = _place(folder, words.pop("database"))
    project = Project(folder, parse(Settings, words), engine_of(place, connections=CONNECTIONS))
    with project.writing() as connection:
        migrate(connection, MIGRATIONS, MIGRATIONS_TABLE, shown(place))
        kept = connection.execute(text("SELECT value FROM annotate_settings WHERE name = 'guidelines'")).scalar_one()
    changed = [name for name, known in json.loads(kept).items() if guidelines().get(name) != known]
    if changed:
        raise UserError(
            f"{folder}: was begun with other guidelines ({', '.join(changed)}). Go on with the version of eclose"
            " that it was begun with, or begin a new project."
        )
    return project


def guidelines() -> dict[str, str]:
    """The hashes of the texts that people decide by."""
    names = sorted({one.guideline for kind in Kind for one in PASSES[kind]})
    return {name: load_text(name).hash for name in names}
