"""Random folders of judged runs for tests: well-formed, edited, repeated, incomplete, with and without manifests."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

from eclose.files.jsonl import encode_json_line
from eclose.files.manifest import Manifest, hash_files
from eclose.files.outcome_counts import RecordCounts
from tests.diagnosis.judged_responses import random_cases

FILES = ("instances.jsonl", "responses.jsonl", "judgments.jsonl")


def repeat_key(draw, line):
    record = json.loads(line)
    name = draw.choice(list(record))
    return json.dumps(record)[:-1].encode() + b", " + json.dumps({name: record[name]})[1:].encode()


def change(draw, line):
    record = json.loads(line)
    name = draw.choice(list(record))
    record[name] = draw.choice([record[name], None, 7, "", "\ud800", "x\x00", [], {"a": 1}, True])
    return json.dumps(record).encode()


def shorten(draw, line):
    record = json.loads(line)
    del record[draw.choice(list(record))]
    return json.dumps(record).encode()


DAMAGES = (
    repeat_key,
    change,
    change,
    shorten,
    lambda _, line: line[:-1] + b', "unknown": 1}',
    lambda _, line: line[: len(line) // 2],
    lambda _, line: line.replace(b'":', b'" : '),
    lambda *_: b"",
    lambda *_: b" \t ",
    lambda *_: b"[]",
    lambda *_: b'[{"role": "user", "content": "x"}]',
    lambda *_: b'{"id": NaN}',
    lambda _, line: line + b"\r",
)


def write_random_run(folder, seed, *, faults=None):
    """Write a run; most faults leave some of it readable.

    Args:
        folder: The folder, which is created.
        seed: Seed of the responses, the faults, and whether there are manifests.
        faults: Number of faults; a random one by default.
    """
    draw = Random(seed)
    cases = random_cases(seed, count=draw.choice([3, 20, 60]), questions=draw.choice([4, 30]))
    questions, responses = {}, []
    for case in cases:
        # One file holds one question under an id.
        instance = replace(case.instance, id=f"{case.instance.benchmark}-{case.instance.id}")
        questions[instance.id] = instance
        responses.append(replace(case.response, instance_id=instance.id))
    judgments = [case.judgment for case in cases]
    draw.shuffle(judgments)
    lines = [[encode_json_line(record) for record in part] for part in (questions.values(), responses, judgments)]
    intact = [list(part) for part in lines]
    faults = draw.choice([0, 0, 1, 3, 8]) if faults is None else faults
    for _ in range(faults):
        number = draw.randrange(3)
        part, line = lines[number], draw.choice(intact[number])
        index = draw.randrange(len(part) + 1)
        action = draw.choice(["damage", "damage", "drop", "copy", "other"])
        if action == "drop":
            del part[index : index + 1]
        elif action == "copy":
            part.insert(index, line)
        elif action == "other" and seed % 3 == 0:
            part.append(change(draw, line))
        else:
            part[index : index + 1] = [draw.choice(DAMAGES)(draw, line)]
    folder.mkdir(parents=True)
    for name, part in zip(FILES, lines, strict=True):
        mark = b"\xef\xbb\xbf" if draw.random() < 0.05 else b""
        (folder / name).write_bytes(mark + b"".join(line + b"\n" for line in part))
    if draw.random() < 0.6:
        write_manifests(folder, faults)
        if draw.random() < 0.1:
            name = draw.choice(FILES)
            (folder / name).write_bytes((folder / name).read_bytes() + b"\n")
    return folder


def write_manifests(folder, faults=0):
    """Write the manifests of a run whose judge found some faults."""
    files = [folder / name for name in FILES]
    Manifest("data convert", {}, {}, hash_files(files[:1]), RecordCounts(1, 1)).write(f"{files[0]}.manifest.json")
    counts = RecordCounts(1 + faults, 1, quarantined={"faults": faults} if faults else {})
    Manifest("judge", {}, hash_files(files[:2]), hash_files(files[2:]), counts).write(f"{files[2]}.manifest.json")
