"""Records of a file, once in order and then by position, as a reader finds them that checks every line in full."""

from __future__ import annotations

import gzip
from collections import Counter
from operator import attrgetter

import pytest

from eclose.errors import RecordError
from eclose.files.jsonl import DUPLICATE, ID_REUSED, scan_records
from eclose.files.record_file import RecordFile, hash_ids
from eclose.values.instance import Instance
from eclose.values.judgment import Judgment
from eclose.values.response import Response
from tests.diagnosis.damaged_runs import write_random_run

KINDS = {
    "instances.jsonl": (Instance, attrgetter("id")),
    "responses.jsonl": (Response, attrgetter("id")),
    "judgments.jsonl": (Judgment, attrgetter("response_id")),
}


def read_in_full(path, kind, id_of, *, first):
    """Read every record through JSON and compare the whole values of repeated ids."""
    values, places, unused, first_error = {}, {}, [], None
    for record in scan_records(path, kind):
        if record.value is None:
            first_error = first_error or record.error
            unused.append((record.where, record.error_kind))
        elif (id_ := id_of(record.value)) not in values:
            values[id_], places[id_] = record.value, record.where
        elif values[id_] == record.value:
            unused.append(("", DUPLICATE))
        elif first:
            unused.append(("", ID_REUSED))
        else:
            raise RecordError(f"{id_} {places[id_]} {record.where}")
    if first_error is not None and not values:
        raise first_error
    return list(values.values()), unused


def read_by_position(path, kind, id_of, *, first):
    file = RecordFile(path, kind, id_of)
    records = list(file.scan())
    positions = [position for position, _ in records]
    used = file.drop_repeats(
        hash_ids([id_of(value) for _, value in records]),
        positions,
        lambda id_, one, two: RecordError(f"{id_} {one} {two}"),
        first=first,
    )
    values = [value for (_, value), use in zip(records, used, strict=True) if use]
    assert file.rejected == Counter(kind for _, kind in (each[1:] for each in file.unused))
    again = file.read_several([position for position, use in zip(positions, used, strict=True) if use])
    assert list(again) == values
    return values, [(each.where, each.kind) for each in file.unused]


def attempt(read, *arguments, **options):
    try:
        return read(*arguments, **options)
    except RecordError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(60))
def test_records_are_those_of_a_full_check(tmp_path, seed):
    run = write_random_run(tmp_path / "run", seed, faults=seed % 9)
    for name, (kind, id_of) in KINDS.items():
        for first in (False, True):
            result = attempt(read_by_position, run / name, kind, id_of, first=first)
            assert result == attempt(read_in_full, run / name, kind, id_of, first=first)


def test_a_file_in_another_format_is_held(tmp_path):
    run = write_random_run(tmp_path / "run", 5, faults=0)
    packed = tmp_path / "responses.jsonl"
    packed.write_bytes(gzip.compress((run / "responses.jsonl").read_bytes() + b"{}\n"))
    values, unused = read_by_position(packed, *KINDS["responses.jsonl"], first=False)
    assert (values, unused) == read_in_full(packed, *KINDS["responses.jsonl"], first=False)
    assert unused[0][1] == "wrong record"


def test_a_file_that_is_vouched_for_is_not_checked_again(tmp_path):
    run = write_random_run(tmp_path / "run", 5, faults=0)
    path = run / "instances.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"text":"Arica."', b'"text":" "'))
    vouched, checked = (RecordFile(path, *KINDS[path.name], vouched=vouched) for vouched in (True, False))
    assert len(list(vouched.scan())) > len(list(checked.scan())) == 0
    # What the types refuse has the message of a full check in either case.
    path.write_bytes(b'{"id": 7}\n')
    for vouch in (True, False):
        file = RecordFile(path, *KINDS[path.name], vouched=vouch)
        assert not list(file.scan())
        with pytest.raises(RecordError, match=r"line 1: looks like|line 1: .*is missing"):
            file.drop_repeats(hash_ids([]), [], lambda *_: RecordError("none"))
