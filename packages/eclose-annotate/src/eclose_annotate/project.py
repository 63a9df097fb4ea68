"""An annotation project: a folder, a database, and settings that are fixed when the project is created.

The folder holds the location of the database, a copy of the settings and the last event of the audit log. The
settings in force are those of the database. The database is an SQLite file in the folder, or a PostgreSQL server for
many simultaneous users.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import rmtree
from threading import RLock
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from eclose.calls.ledger.database import (
    WRITE_OPTION,
    describe_database_location,
    is_database_url,
    make_database_engine,
    open_schema,
    url_has_password,
)
from eclose.errors import SettingError, UserError
from eclose.files.atomic import AtomicFile, make_private_file, make_private_folder, owner_only
from eclose.files.jsonl import parse_dataclass
from eclose.prompts.locked_texts import load_prompt_text
from eclose_annotate import events
from eclose_annotate.choices import PracticeMode, ScreeningMode
from eclose_annotate.forms import PASSES_BY_TASK_KIND, AnnotationTaskKind
from eclose_annotate.schema import ANNOTATION_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection, Engine

SETTINGS_FILE = "project.json"
DATABASE_FILE = "project.sqlite"
AUDIT_HEAD_FILE = "audit-head.txt"
MATERIAL_FOLDER = "material"
"""Folder in the project's for the questions and responses that were split from the file of another tool."""
LEAD_NAME = events.LEAD_NAME
"""The actor of events that the command line causes, as the audit log names it."""
MAX_CONNECTIONS = 20
"""Size of the connection pool: requests served at the same moment; further ones wait."""


@dataclass(frozen=True, slots=True)
class AnnotationProjectSettings:
    """Settings of a project, fixed when it is created."""

    name: str
    seed: int = 42
    hide_evidence: bool = False
    """Hide the evidence after the first pass. The paper leaves it visible."""
    labels_to_adjudicator: bool = False
    """Show adjudicators of responses the annotators' labels of the current pass. Screeners' labels are always shown."""
    share_questions: bool = False
    """Let an annotator label several responses to one question. They know its reference from the second one on."""
    screening: ScreeningMode = ScreeningMode.REQUIRED
    """Effect of screening, in a project with screeners."""
    practice: PracticeMode = PracticeMode.OPTIONAL
    """Whether people answer practice examples before their first task."""
    audit_head: str | None = None
    """File that records the end of the audit log; None for a file in the folder of the project."""

    def shows_labels(self, kind: AnnotationTaskKind) -> bool:
        """Return whether an adjudicator sees the labels of the others."""
        return kind is AnnotationTaskKind.SCREENING or self.labels_to_adjudicator


class AnnotationProject:
    """An open project. Close it after use."""

    def __init__(self, folder: Path, settings: AnnotationProjectSettings, engine: Engine) -> None:
        self.folder, self.settings, self.engine = folder, settings, engine
        # Errors are logged with their statement; its parameters (labels, password hashes) must not be.
        engine.hide_parameters = True
        self.head = events.AuditLogHead(Path(settings.audit_head or folder / AUDIT_HEAD_FILE))
        # SQLite allows a single writer and its waiting ones poll without a queue, so some could starve. A lock is fair.
        self._write_lock: AbstractContextManager[object] = RLock() if engine.dialect.name == "sqlite" else nullcontext()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection that sees one consistent state of the database."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a writing connection; commit to disk at the end, roll back after an error."""
        writes = {WRITE_OPTION: True}
        with self._write_lock, self.engine.connect().execution_options(**writes) as connection:
            connection.info.pop(events.LAST_EVENT, None)
            with connection.begin():
                yield connection
            event = connection.info.pop(events.LAST_EVENT, None)
        # After the commit: the file outside may be behind the log, but must not name an event that was rolled back.
        if event is not None:
            self.head.advance(event)

    def close(self) -> None:
        """Close the database, and take the access of others away from files that were added to the folder."""
        self.engine.dispose()
        make_private_folder(self.folder)


def create_annotation_project(
    folder: Path,
    settings: AnnotationProjectSettings,
    database: str | None = None,
    begin: Callable[[Connection], None] = lambda _connection: None,
) -> AnnotationProject:
    """Create a project, filled by ``begin`` in the same transaction: an error leaves no project and no new folder."""
    if (folder / SETTINGS_FILE).exists():
        raise UserError(
            f"{folder}: holds a project already. Choose another folder, or run: eclose annotate serve {folder}"
        )
    location = _database_location(folder, database)
    with remove_new_folder_on_error(folder):
        make_private_folder(folder)
        # Before the first connection: SQLite gives its -wal and -shm files the mode of the database.
        is_new = isinstance(location, Path) and make_private_file(location)
        project = AnnotationProject(folder, settings, make_database_engine(location, connections=MAX_CONNECTIONS))
        try:
            _store_new_project(project, location, begin)
            # Last: a folder without this file holds no project, so an interrupted creation can be repeated.
            with owner_only(), AtomicFile(folder / SETTINGS_FILE) as file:
                file.write(json.dumps({**asdict(settings), "database": database}, indent=1).encode() + b"\n")
        except BaseException:
            project.engine.dispose()
            # A database that another process created is being filled there.
            if is_new:
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{location}{suffix}").unlink(missing_ok=True)
            raise
    return project


def _store_new_project(project: AnnotationProject, location: Path | str, begin: Callable[[Connection], None]) -> None:
    """Write the settings, the guidelines and what ``begin`` adds in one transaction, and start the audit log."""
    with project.writing() as connection:
        open_schema(connection, ANNOTATION_SCHEMA, describe_database_location(location))
        # An SQLite file is new here; a PostgreSQL URL may name the database of another project.
        if connection.execute(text("SELECT count(*) FROM annotate_settings")).scalar_one():
            raise UserError(
                f"{describe_database_location(location)}: is the database of another project. "
                "Name an empty one: database in the recipe."
            )
        stored = {"settings": asdict(project.settings), "guidelines": guideline_hashes()}
        for name, value in stored.items():
            row = {"name": name, "value": json.dumps(value)}
            connection.execute(text("INSERT INTO annotate_settings (name, value) VALUES (:name, :value)"), row)
        events.append_audit_event(connection, LEAD_NAME, "created", detail=stored)
        begin(connection)
    with project.reading() as connection:
        project.head.start(events.last_audit_event(connection))


@contextmanager
def remove_new_folder_on_error(folder: Path, *parts: Path) -> Iterator[None]:
    """Remove after an error the parts that did not exist before, and the folder and its parents where new and empty."""
    new_parts = [part for part in parts if not part.exists()]
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        for part in new_parts:
            rmtree(part, ignore_errors=True)
        for path in new_folders:
            # A folder that is not empty holds files of others.
            with suppress(OSError):
                path.rmdir()
        raise


def _database_location(folder: Path, database: str | None) -> Path | str:
    if database is None:
        return folder / DATABASE_FILE
    # project.json is an ordinary file that people copy and share.
    if is_database_url(database) and url_has_password(database):
        raise SettingError(
            "database: the password would be written to the project's folder. Leave it out, and set PGPASSWORD."
        )
    return database


def open_annotation_project(folder: Path) -> AnnotationProject:
    """Open the project of a folder; raise where it has other guidelines, or its database lacks recorded events."""
    # Labels under different guidelines are not comparable, so a project never mixes them.
    if not (folder / SETTINGS_FILE).is_file():
        raise UserError(f"{folder}: holds no project. Create one with: eclose annotate init {folder}")
    fields = json.loads((folder / SETTINGS_FILE).read_text("utf-8"))
    location = _database_location(folder, fields.pop("database"))
    make_private_folder(folder)
    engine = make_database_engine(location, connections=MAX_CONNECTIONS)
    with AnnotationProject(folder, AnnotationProjectSettings(""), engine).writing() as connection:
        open_schema(connection, ANNOTATION_SCHEMA, describe_database_location(location))
        rows = connection.execute(text("SELECT name, value FROM annotate_settings"))
        stored = {row.name: json.loads(row.value) for row in rows}
    _check_copied_settings(folder, fields, stored["settings"])
    project = AnnotationProject(folder, parse_dataclass(AnnotationProjectSettings, stored["settings"]), engine)
    current = guideline_hashes()
    changed = [name for name, text_hash in stored["guidelines"].items() if current.get(name) != text_hash]
    if changed:
        raise UserError(
            f"{folder}: was created with other guidelines ({', '.join(changed)}). Continue with the version of eclose"
            " that created it, or create a new project."
        )
    _refuse_lost_events(project)
    return project


def _refuse_lost_events(project: AnnotationProject) -> None:
    """Raise where the database lacks events up to the one that the file outside it records."""
    try:
        recorded = project.head.read()
    except ValueError:
        return  # the status of the project reports it
    with project.reading() as connection:
        row = connection.execute(_EVENTS, {"seq": recorded.seq}).one()
    lost = None if row.id == recorded.id else f"event {recorded.seq:,}, which {project.head.path.name} records"
    if lost is None and row.events != recorded.seq:
        lost = f"{recorded.seq - row.events:,} of the events up to number {recorded.seq:,}"
    if lost is not None:
        project.close()
        raise UserError(
            f"{project.folder}: its database lacks {lost}, so submissions are missing. Stop the server and copy the"
            f" folder again, with {DATABASE_FILE}-wal where there is one."
        )


# The id of an event, and the number of events up to it.
_EVENTS = text(
    "SELECT max(CASE WHEN seq = :seq THEN id END) AS id, count(*) AS events FROM annotate_events WHERE seq <= :seq"
)


def _check_copied_settings(folder: Path, copied: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    """Raise where the copy of the settings in the folder was edited: they are fixed when the project is created."""
    edited = sorted(name for name in {*copied, *stored} if copied.get(name) != stored.get(name))
    if edited:
        values = ", ".join(f"{name} is {json.dumps(stored.get(name))}" for name in edited)
        raise UserError(
            f"{folder / SETTINGS_FILE}: was edited, but the settings of a project are fixed: {values}. Restore these"
            " values in the file, or create a new project."
        )


def guideline_hashes() -> dict[str, str]:
    """Return the hashes of the guidelines that people follow, by file name."""
    # Each guideline once; several passes share a text.
    names = sorted({form.guideline for kind in AnnotationTaskKind for form in PASSES_BY_TASK_KIND[kind]})
    return {name: load_prompt_text(name).hash for name in names}
