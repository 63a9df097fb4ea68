"""The tables of an annotation project.

Constraints enforce the protocol independently of the code: passes in order and once each, at most one response of a
question per annotator, screeners separate from annotators, submissions that are never changed or deleted.
Answers, references and origins have their own tables, so that a query discloses only what its tables hold.
Texts are stored as ASCII JSON, which can represent every text of a user's file in both databases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from eclose.calls.ledger.database import DatabaseSchema, execute_statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

_TYPES = {
    "sqlite": {"number": "INTEGER PRIMARY KEY", "reference": "INTEGER"},
    "postgresql": {"number": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "reference": "BIGINT"},
}

_TABLES = (
    "CREATE TABLE annotate_settings (name VARCHAR(64) PRIMARY KEY, value TEXT NOT NULL)",
    # A person has one role and one pool. Tasks refer to all three columns, so neither can change once tasks exist.
    """
    CREATE TABLE annotate_people (
        id {number},
        name VARCHAR(64) NOT NULL UNIQUE,
        role VARCHAR(16) NOT NULL,
        pool VARCHAR(16) NOT NULL,
        password TEXT NOT NULL,
        active INTEGER NOT NULL DEFAULT 1 CHECK (active IN (0, 1)),
        since VARCHAR(32) NOT NULL,
        UNIQUE (id, role, pool),
        CHECK (
            (role = 'lead' AND pool = 'none') OR (role = 'screener' AND pool = 'questions')
            OR (role = 'annotator' AND pool IN ('responses', 'families'))
            OR (role = 'adjudicator' AND pool IN ('questions', 'responses', 'families'))
        )
    )
    """,
    # Names that differ only in case count as one.
    "CREATE UNIQUE INDEX annotate_people_by_name ON annotate_people (lower(name))",
    # Tokens are stored as SHA-256: reading the database is not enough to log in.
    """
    CREATE TABLE annotate_invitations (
        person {reference} PRIMARY KEY REFERENCES annotate_people (id),
        token VARCHAR(64) NOT NULL UNIQUE,
        until VARCHAR(32) NOT NULL
    )
    """,
    """
    CREATE TABLE annotate_sessions (
        token VARCHAR(64) PRIMARY KEY,
        person {reference} NOT NULL REFERENCES annotate_people (id),
        csrf VARCHAR(64) NOT NULL,
        started VARCHAR(32) NOT NULL,
        seen VARCHAR(32) NOT NULL,
        until VARCHAR(32) NOT NULL
    )
    """,
    "CREATE INDEX annotate_sessions_by_person ON annotate_sessions (person)",
    """
    CREATE TABLE annotate_questions (
        id {number},
        key TEXT NOT NULL UNIQUE,
        question TEXT NOT NULL,
        evidence TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE annotate_references (
        question {reference} PRIMARY KEY REFERENCES annotate_questions (id),
        reference TEXT NOT NULL,
        aliases TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE annotate_responses (
        id {number},
        key TEXT NOT NULL UNIQUE,
        question {reference} NOT NULL REFERENCES annotate_questions (id),
        steps TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE annotate_answers (
        response {reference} PRIMARY KEY REFERENCES annotate_responses (id),
        answer TEXT NOT NULL
    )
    """,
    # Never shown to annotators: benchmark, model, method, seed.
    """
    CREATE TABLE annotate_question_origins (
        question {reference} PRIMARY KEY REFERENCES annotate_questions (id),
        origin TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE annotate_response_origins (
        response {reference} PRIMARY KEY REFERENCES annotate_responses (id),
        origin TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE annotate_families (
        id {number},
        key TEXT NOT NULL UNIQUE,
        shown TEXT NOT NULL
    )
    """,
    # Before submissions, each of which refers to its event.
    """
    CREATE TABLE annotate_events (
        seq BIGINT PRIMARY KEY,
        id VARCHAR(16) NOT NULL UNIQUE,
        at VARCHAR(32) NOT NULL,
        actor VARCHAR(64) NOT NULL,
        action VARCHAR(32) NOT NULL,
        task VARCHAR(32),
        detail TEXT NOT NULL
    )
    """,
    # A single row, updated with every event, so that numbers have no gap and writers wait for one another.
    "CREATE TABLE annotate_head (id INTEGER PRIMARY KEY CHECK (id = 1), count BIGINT NOT NULL)",
    # "subject" names the labelled item, once for each person. "apart" is its question, if a person may see it once.
    # "passes" and "unasked" adapt the form: a response without an answer is not asked for correctness.
    # "withdrawn" is the time at which a task was taken from its person. Its drafts and submissions stay.
    """
    CREATE TABLE annotate_tasks (
        id VARCHAR(32) PRIMARY KEY,
        kind VARCHAR(16) NOT NULL,
        subject VARCHAR(40) NOT NULL,
        question {reference} REFERENCES annotate_questions (id),
        response {reference} REFERENCES annotate_responses (id),
        family {reference} REFERENCES annotate_families (id),
        person {reference} NOT NULL,
        role VARCHAR(16) NOT NULL CHECK (role <> 'lead'),
        pool VARCHAR(16) NOT NULL,
        place INTEGER NOT NULL,
        apart {reference},
        passes VARCHAR(8) NOT NULL,
        unasked VARCHAR(64) NOT NULL DEFAULT '',
        withdrawn VARCHAR(32),
        FOREIGN KEY (person, role, pool) REFERENCES annotate_people (id, role, pool),
        UNIQUE (subject, person),
        UNIQUE (person, place),
        UNIQUE (person, apart),
        CHECK (
            (kind = 'screening' AND pool = 'questions') OR (kind = 'family' AND pool = 'families')
            OR (kind IN ('response', 'short') AND pool = 'responses')
        )
    )
    """,
    "CREATE INDEX annotate_tasks_by_question ON annotate_tasks (question)",
    # Two adjudicators who ask at once: the index lets one of them have the subject.
    """
    CREATE UNIQUE INDEX annotate_one_adjudicator ON annotate_tasks (subject)
    WHERE role = 'adjudicator' AND withdrawn IS NULL
    """,
    # The foreign key on the pass before makes it impossible to insert passes out of order.
    """
    CREATE TABLE annotate_submissions (
        task VARCHAR(32) NOT NULL REFERENCES annotate_tasks (id),
        number INTEGER NOT NULL CHECK (number >= 1),
        follows INTEGER,
        pass VARCHAR(4) NOT NULL,
        entries TEXT NOT NULL,
        key VARCHAR(64) NOT NULL,
        event BIGINT NOT NULL UNIQUE REFERENCES annotate_events (seq),
        at VARCHAR(32) NOT NULL,
        PRIMARY KEY (task, number),
        UNIQUE (task, pass),
        FOREIGN KEY (task, follows) REFERENCES annotate_submissions (task, number),
        CHECK ((number = 1 AND follows IS NULL) OR (follows IS NOT NULL AND follows = number - 1))
    )
    """,
    """
    CREATE TABLE annotate_drafts (
        task VARCHAR(32) NOT NULL REFERENCES annotate_tasks (id),
        number INTEGER NOT NULL,
        entries TEXT NOT NULL,
        at VARCHAR(32) NOT NULL,
        PRIMARY KEY (task, number)
    )
    """,
    # Why a subject goes to adjudication. No page reads this table.
    """
    CREATE TABLE annotate_adjudications (
        subject VARCHAR(40) PRIMARY KEY,
        kind VARCHAR(16) NOT NULL,
        question {reference} REFERENCES annotate_questions (id),
        response {reference} REFERENCES annotate_responses (id),
        family {reference} REFERENCES annotate_families (id),
        triggers TEXT NOT NULL,
        rank VARCHAR(64) NOT NULL,
        at VARCHAR(32) NOT NULL
    )
    """,
    "CREATE INDEX annotate_adjudications_in_order ON annotate_adjudications (rank)",
    # Number of finished tasks of a person. Tasks are done in order, so this is the place of the last one.
    """
    CREATE TABLE annotate_cursors (
        person {reference} PRIMARY KEY REFERENCES annotate_people (id),
        done INTEGER NOT NULL
    )
    """,
    # Submitted passes that their person opened again, once each. The submission itself stays.
    """
    CREATE TABLE annotate_reopenings (
        id VARCHAR(32) PRIMARY KEY,
        task VARCHAR(32) NOT NULL,
        number INTEGER NOT NULL,
        at VARCHAR(32) NOT NULL,
        FOREIGN KEY (task, number) REFERENCES annotate_submissions (task, number)
    )
    """,
    """
    CREATE TABLE annotate_amendments (
        reopening VARCHAR(32) PRIMARY KEY REFERENCES annotate_reopenings (id),
        entries TEXT NOT NULL,
        event BIGINT NOT NULL UNIQUE REFERENCES annotate_events (seq),
        at VARCHAR(32) NOT NULL
    )
    """,
    # Questions whose screening decides on the tasks of their responses; "eligible" is NULL until it is settled.
    """
    CREATE TABLE annotate_eligibility (
        question {reference} PRIMARY KEY REFERENCES annotate_questions (id),
        eligible INTEGER CHECK (eligible IN (0, 1)),
        code VARCHAR(4)
    )
    """,
    # Tasks in force: neither withdrawn nor of an ineligible question. "ready" is 0 while screening is not settled.
    """
    CREATE VIEW annotate_current_tasks AS
    SELECT t.id, t.kind, t.subject, t.question, t.response, t.family, t.person, t.role, t.pool, t.place, t.apart,
        t.passes, t.unasked, CASE WHEN e.question IS NULL OR e.eligible = 1 THEN 1 ELSE 0 END AS ready
    FROM annotate_tasks t
    LEFT JOIN annotate_eligibility e ON e.question = t.question AND t.kind IN ('response', 'short')
    WHERE t.withdrawn IS NULL AND (e.eligible IS NULL OR e.eligible = 1)
    """,
    # First answers to the practice examples; they are no labels of the study.
    """
    CREATE TABLE annotate_training (
        person {reference} NOT NULL REFERENCES annotate_people (id),
        item VARCHAR(32) NOT NULL,
        label VARCHAR(16) NOT NULL,
        correct INTEGER NOT NULL CHECK (correct IN (0, 1)),
        at VARCHAR(32) NOT NULL,
        PRIMARY KEY (person, item)
    )
    """,
    # The first time that a person was shown a pass, and the key of its form: without it, the pass cannot be submitted.
    """
    CREATE TABLE annotate_openings (
        task VARCHAR(32) NOT NULL REFERENCES annotate_tasks (id),
        number INTEGER NOT NULL,
        key VARCHAR(64) NOT NULL,
        at VARCHAR(32) NOT NULL,
        PRIMARY KEY (task, number)
    )
    """,
)

APPEND_ONLY = ("annotate_events", "annotate_submissions", "annotate_amendments")
"""Tables whose rows are never changed or deleted."""


_REFUSE = """
    CREATE FUNCTION annotate_refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'rows of % are kept for good', TG_TABLE_NAME; END $$
"""
_GUARD = {
    "sqlite": """
        CREATE TRIGGER {table}_no_{verb} BEFORE {verb} ON {table}
        BEGIN SELECT RAISE(ABORT, 'rows of {table} are kept for good'); END
    """,
    "postgresql": """
        CREATE TRIGGER {table}_no_{verb} BEFORE {verb} ON {table}
        FOR EACH ROW EXECUTE FUNCTION annotate_refuse()
    """,
}


def _create_tables(connection: Connection) -> None:
    execute_statements(connection, _TABLES, _TYPES)
    # Updates and deletions in the append-only tables are refused by triggers. One of PostgreSQL calls a function;
    # SQLite has the action in the trigger itself.
    if connection.dialect.name == "postgresql":
        connection.execute(text(_REFUSE))
    for table in APPEND_ONLY:
        for verb in ("UPDATE", "DELETE"):
            connection.execute(text(_GUARD[connection.dialect.name].format(table=table, verb=verb)))


ANNOTATION_SCHEMA = DatabaseSchema("annotate_schema", "2", _create_tables)
