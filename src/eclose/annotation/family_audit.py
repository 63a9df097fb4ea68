"""The audit of counterfactual families (appendix B.6) on the server: its forms put in, and given back filled in.

A sample is drawn and reported on by ``eclose families audit``; this is where people look at it. Everybody sees every
family, in an order of their own, and what they disagree about goes to a third person.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from eclose.annotation import collect
from eclose.annotation.accounts.people import Role
from eclose.annotation.forms import YES
from eclose.protocol.auditing import MARKS, PARTS, Form, ShownFamily
from eclose.store.records.jsonl import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Connection

    from eclose.annotation.collect import Said
    from eclose.annotation.forms import Entry

FormIds = tuple[str, ...]
"""Of one family: the id of the form of each person, the third one's last."""


def add_families(connection: Connection, families: Iterable[tuple[FormIds, ShownFamily]]) -> int:
    """Put families in, as far as they may be seen; how many."""
    rows = [{"key": json.dumps(ids), "shown": json.dumps(asdict(shown))} for ids, shown in families]
    if rows:
        connection.execute(_ADD, rows)
    return len(rows)


def filled_forms(connection: Connection) -> dict[int, list[Form]]:
    """The forms that were finished, by the number of their person: 1, 2, ... in the order in which people came.

    The third person, who settles, has the number after the others.
    """
    people = {name: number for number, name in enumerate(connection.execute(_AUDITORS).scalars(), start=1)}
    shown = {row.key: parse(ShownFamily, json.loads(row.shown)) for row in connection.execute(_SHOWN)}
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
_AUDITORS = text(f"SELECT name FROM annotate_people WHERE pool = 'families' AND role = '{Role.ANNOTATOR}' ORDER BY id")
