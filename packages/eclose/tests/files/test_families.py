"""Families at the door: whatever is in the file comes out as a family, a reason or an error."""

import json
from itertools import islice

from eclose.files.families import scan_families
from eclose.files.jsonl import encode_json_line
from eclose.files.outcome_counts import RecordCounter
from eclose.values.family import Family
from eclose_world.make.families import make_world_families


def test_every_record_is_a_family_a_reason_or_an_error(tmp_path):
    first, second, third = (
        json.loads(encode_json_line(family)) for family in islice(make_world_families("2wiki", 4), 3)
    )
    same_id = {**second, "id": first["id"]}
    without_edits = {**third, "evidence_edits": []}
    lines = [first, second, first, same_id, without_edits, {"id": "x"}]
    path = tmp_path / "families.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "no JSON\n")
    tally = RecordCounter()
    records = list(scan_families(path))
    for record in records:
        tally.add(record)
    counts = tally.counts()
    assert counts.conserved
    assert (counts.received, counts.accepted) == (7, 2)
    assert counts.rejected == {"duplicate": 1, "fails well_formed": 1}
    assert counts.quarantined == {"wrong record": 2, "not JSON": 1}
    assert [isinstance(record.value, Family) for record in records[:2]] == [True, True]
    assert str(records[3].error) == (
        f"{path} line 4: the id {first['id']!r} was used by record 1 for other content. Give it another id."
    )


def test_the_order_of_fields_makes_no_other_family(tmp_path):
    (family,) = islice(make_world_families("2wiki", 4), 1)
    line = json.loads(encode_json_line(family))
    path = tmp_path / "families.jsonl"
    path.write_text(json.dumps(line) + "\n" + json.dumps(dict(reversed(line.items()))) + "\n")
    assert [record.rejected for record in scan_families(path)] == [None, "duplicate"]
