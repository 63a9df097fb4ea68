"""Families for an audit: a few real ones, told apart by id and dataset only."""

import json
from dataclasses import asdict, replace
from functools import cache
from itertools import islice

from eclose.files.jsonl import ReadRecord
from eclose.values.family import FamilyFinding, PassageIntervention, TextReplacement
from eclose_annotate.choices import AuditFormFormat
from eclose_annotate.family_audit.forms import encode_audit_forms
from eclose_annotate.family_audit.material import AUDIT_MARKS
from eclose_annotate.family_audit.sample import DEVELOPMENT, TRAINING
from eclose_world.make.families import make_world_families


@cache
def world(count=4):
    return tuple(islice(make_world_families("2wiki", 1), count))


def family(name, dataset, number=0):
    """A family under another name, with all that people must not see."""
    base = world()[number % len(world())]
    reply = {"reason": "SECRET-REASON"}
    return replace(
        base,
        id=f"SECRET-{name}",
        source=replace(base.source, id=f"SECRET-SOURCE-{name}", benchmark=dataset),
        evidence_edits=tuple(
            replace(
                edit, intervention=PassageIntervention("SECRET-CLAIM", (TextReplacement("SECRET-OLD", "SECRET-NEW"),))
            )
            for edit in base.evidence_edits
        ),
        question_edit=replace(base.question_edit, component="SECRET-COMPONENT"),
        findings=(FamilyFinding("SECRET-ROLE", "SECRET-JUDGE", reply, ("SECRET-OBJECTION",)),),
    )


def corpus(sizes):
    """So many families of each dataset, for training and for development."""
    for dataset, parts in sizes.items():
        for split, size in zip((TRAINING, DEVELOPMENT), parts, strict=True):
            for number in range(size):
                base = family(f"{dataset}-{split}-{number}", dataset, number)
                yield split, ReadRecord(f"line {number}", value=base)


def filled(form, failing=(), note=""):
    """A form as a line of JSON, all answered with yes but for some."""
    answers = asdict(form) | {"note": note}
    for name in (name for names in AUDIT_MARKS.values() for name in names):
        part, mark = name.split(".")
        answers[part][mark] = name not in failing
    return json.dumps(answers)


def fill(path, forms, failing=None):
    """A file of filled forms; what fails is given by the id of the form."""
    path.write_text("".join(filled(form, (failing or {}).get(form.id, ())) + "\n" for form in forms))
    return path


def blank(path, forms, layout=AuditFormFormat.JSONL):
    path.write_bytes(encode_audit_forms(forms, layout))
    return path
