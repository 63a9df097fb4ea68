"""The audit of counterfactual families (appendix B.6) on the annotation server.

``eclose annotate audit`` draws the sample and reports on it; here its forms are filled in. Every auditor sees every
family, in an individual order, and disagreements go to a third person.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from eclose.files.jsonl import parse_dataclass
from eclose_annotate.events import LEAD_NAME, append_audit_event
from eclose_annotate.family_audit.material import AUDIT_MARKS, AUDIT_PARTS, AuditorMaterial, FamilyAuditForm
from eclose_annotate.forms import YES
from eclose_annotate.read import read_family_audits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from eclose_annotate.forms import FormEntry

FormIds = tuple[str, ...]
"""Ids of the forms of one family, one per auditor, the adjudicator's last."""


def add_audit_families(connection: Connection, families: Iterable[tuple[FormIds, AuditorMaterial]]) -> int:
    """Add families as auditors see them; return their number."""
    rows = [{"key": json.dumps(ids), "shown": json.dumps(asdict(family))} for ids, family in families]
    if rows:
        connection.execute(_ADD, rows)
    append_audit_event(connection, LEAD_NAME, "filled", detail={"families": len(rows)})
    return len(rows)


def read_project_audit_forms(connection: Connection) -> dict[int, list[FamilyAuditForm]]:
    """Return the finished forms by the number of their auditor: 1, 2, ... in the order of invitation.

    The adjudicator has the number after the last auditor. A person who took over families of another has the number
    that is free in each of them.
    """
    families = {row.key: parse_dataclass(AuditorMaterial, json.loads(row.shown)) for row in connection.execute(_SHOWN)}
    forms: dict[int, list[FamilyAuditForm]] = {}
    for ids, auditors, audits in read_family_audits(connection):
        for number in range(1, len(auditors) + 1):
            forms.setdefault(number, [])  # an auditor without a finished form gets an empty file
        for name, task in audits.items():
            number = len(ids) if name is None else auditors.index(name) + 1
            form = _form(ids[number - 1], families[json.dumps(ids)], task.entries["F"][0])
            forms.setdefault(number, []).append(form)
    return {number: sorted(group, key=lambda form: form.id) for number, group in sorted(forms.items())}


def _form(form_id: str, family: AuditorMaterial, entry: FormEntry) -> FamilyAuditForm:
    marks_by_part: dict[str, Any] = {}
    for view, (part, marks) in AUDIT_PARTS.items():
        names = {name: name.removeprefix(f"{part}.") for name in AUDIT_MARKS[view]}
        marks_by_part[part] = marks(**{short: entry[name] == YES for name, short in names.items()})
    return FamilyAuditForm(form_id, family, **marks_by_part)


_ADD = text("INSERT INTO annotate_families (key, shown) VALUES (:key, :shown)")
_SHOWN = text("SELECT key, shown FROM annotate_families")
