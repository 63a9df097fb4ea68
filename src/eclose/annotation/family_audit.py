"""The audit of counterfactual families (appendix B.6) on the annotation server.

``eclose families audit`` draws the sample and reports on it; here its forms are filled in. Every auditor sees every
family, in an individual order, and disagreements go to a third person.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from eclose.annotation import collect
from eclose.annotation.accounts.people import PersonRole
from eclose.annotation.forms import YES
from eclose.protocol.auditing import MARKS, PARTS, Form, ShownFamily
from eclose.store.records.jsonl import parse_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Connection

    from eclose.annotation.collect import Said
    from eclose.annotation.forms import Entry

FormIds = tuple[str, ...]
"""Ids of the forms of one family, one per auditor, the adjudicator's last."""


def add_families(connection: Connection, families: Iterable[tuple[FormIds, ShownFamily]]) -> int:
    """Add families as auditors see them; return their number."""
    rows = [{"key": json.dumps(ids), "shown": json.dumps(asdict(shown))} for ids, shown in families]
    if rows:
        connection.execute(_ADD, rows)
    return len(rows)


def read_filled_forms(connection: Connection) -> dict[int, list[Form]]:
    """Return the finished forms by the number of their auditor: 1, 2, ... in the order of invitation.

    The adjudicator has the number after the last auditor.
    """
    people = {name: number for number, name in enumerate(connection.execute(_AUDITORS).scalars(), start=1)}
    shown = {row.key: parse_record(ShownFamily, json.loads(row.shown)) for row in connection.execute(_SHOWN)}
    found: dict[int, list[Form]] = {number: [] for number in people.values()}
    for ids, said, last in collect.families(connection):
        family = shown[json.dumps(ids)]
        for number, one in _numbered(people, said, last):
            found.setdefault(number, []).append(_form(ids[number - 1], family, one.final["F"][0]))
    return {number: sorted(forms, key=lambda form: form.id) for number, forms in found.items()}


def _numbered(people: dict[str, int], said: Sequence[Said], last: Said | None) -> Iterator[tuple[int, Said]]:
    yield from ((people[one.person], one) for one in said)
    if last is not None:
        yield len(people) + 1, last


def _form(form_id: str, shown: ShownFamily, entry: Entry) -> Form:
    filled: dict[str, Any] = {}
    for view, (part, marks) in PARTS.items():
        names = {name: name.removeprefix(f"{part}.") for name in MARKS[view]}
        filled[part] = marks(**{short: entry[name] == YES for name, short in names.items()})
    return Form(form_id, shown, **filled)


_ADD = text("INSERT INTO annotate_families (key, shown) VALUES (:key, :shown)")
_SHOWN = text("SELECT key, shown FROM annotate_families")
_AUDITORS = text(
    f"SELECT name FROM annotate_people WHERE pool = 'families' AND role = '{PersonRole.ANNOTATOR}' ORDER BY id"
)
