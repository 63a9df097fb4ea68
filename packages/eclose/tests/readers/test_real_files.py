"""Every real file loads whole, with the counts its documentation states."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from eclose.files.jsonl import decode_core_value, encode_json_line, unwrap_records
from eclose.readers import benchmarks as multi_hop
from eclose.readers.conversion import ID_DERIVED
from eclose.readers.layouts import RecordLayout
from eclose.readers.load import detect_file_layout, scan_instances
from eclose.values.answers import match_any_answer
from eclose.values.instance import Instance

FIXTURES = {
    "hotpotqa_train_50.json": (RecordLayout.HOTPOT, 50),
    "hotpotqa_validation_hf_50.jsonl": (RecordLayout.HOTPOT, 50),
    "musique_ans_train_50.jsonl": (RecordLayout.MUSIQUE, 50),
    "tiny_2wikimultihopqa.json": (RecordLayout.TWO_WIKI, 4),
    "tiny_hotpotqa.json": (RecordLayout.HOTPOT, 6),
    "tiny_hotpotqa_hf.jsonl": (RecordLayout.HOTPOT, 3),
    "tiny_musique_ans.jsonl": (RecordLayout.MUSIQUE, 6),
}
SHARED = {
    "2wikimultihopqa_dev_10.json": (RecordLayout.TWO_WIKI, 10),
    "hotpotqa_train_100.json.gz": (RecordLayout.HOTPOT, 100),
    "hotpotqa_validation_100_hf.jsonl.gz": (RecordLayout.HOTPOT, 100),
    "hotpotqa_validation_first100_hf.json.gz": (RecordLayout.HOTPOT, 100),
    "musique_ans_train_100.json.gz": (RecordLayout.MUSIQUE, 100),
}


def instances_of(path):
    return list(unwrap_records(scan_instances(path)))


def unpacked(path):
    return json.loads(gzip.decompress(path.read_bytes()))


def as_table(rows, *names):
    """A dict of parallel lists, as Hugging Face stores a list of rows."""
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def assert_loads(path, layout, count):
    assert detect_file_layout(path) is layout
    instances = instances_of(path)
    assert len({instance.id for instance in instances}) == count
    for instance in instances:
        assert decode_core_value(Instance, json.loads(encode_json_line(instance))) == instance
        assert instance.support_ids
        assert instance.reference_answer
        assert instance.hops >= 2


@pytest.mark.parametrize("name", FIXTURES)
def test_fixture_loads(qa, name):
    assert_loads(qa / name, *FIXTURES[name])


@pytest.mark.parametrize("name", SHARED)
def test_shared_slice_loads(shared_data, name):
    assert_loads(shared_data / "qa" / name, *SHARED[name])


def test_records_without_ids_get_ids_from_their_content(shared_data):
    path = shared_data / "qa" / "hotpotqa_validation_first100_hf.json.gz"
    records = list(scan_instances(path))
    assert all(record.repairs == (ID_DERIVED,) for record in records)
    assert all(record.value.id.startswith("HotpotQA-") and len(record.value.id) == 25 for record in records)


def test_hotpot_passages_keep_their_own_blanks(qa):
    raw = json.loads((qa / "tiny_hotpotqa.json").read_bytes())
    for record, instance in zip(raw, instances_of(qa / "tiny_hotpotqa.json"), strict=True):
        assert instance.id == record["_id"]
        assert [passage.text for passage in instance.evidence] == ["".join(parts) for _, parts in record["context"]]
        assert not any("  " in passage.text for passage in instance.evidence[:1])
        titles = {instance.evidence[int(id_)].title for id_ in instance.support_ids}
        assert titles == {title for title, _ in record["supporting_facts"]}


def test_both_hotpot_layouts_give_the_same_instance(qa):
    for record in json.loads((qa / "tiny_hotpotqa.json").read_bytes()):
        table = {
            **{key: record[key] for key in ("question", "answer", "type", "level")},
            "id": record["_id"],
            "context": as_table(record["context"], "title", "sentences"),
            "supporting_facts": as_table(record["supporting_facts"], "title", "sent_id"),
        }
        assert multi_hop.convert_hotpot_record(table) == multi_hop.convert_hotpot_record(record)


def test_two_wiki_passages_equal_the_corpus(shared_data):
    corpus = unpacked(shared_data / "qa" / "2wikimultihopqa_corpus_6119.json.gz")
    passages = {(passage["title"], passage["text"]) for passage in corpus}
    for instance in instances_of(shared_data / "qa" / "2wikimultihopqa_dev_10.json"):
        assert all((passage.title, passage.text) in passages for passage in instance.evidence)


def test_two_wiki_types_and_hops(shared_data):
    instances = instances_of(shared_data / "qa" / "2wikimultihopqa_dev_10.json")
    assert Counter(instance.kind for instance in instances) == {
        "compositional": 3,
        "comparison": 3,
        "bridge_comparison": 3,
        "inference": 1,
    }
    assert Counter(instance.hops for instance in instances) == {2: 7, 4: 3}


def test_musique_shapes_aliases_and_repeated_titles(shared_data):
    instances = instances_of(shared_data / "qa" / "musique_ans_train_100.json.gz")
    assert Counter(instance.hops for instance in instances) == {2: 68, 3: 27, 4: 5}
    assert {instance.kind for instance in instances} == {"2hop", "3hop1", "3hop2", "4hop1", "4hop3"}
    assert sum(bool(instance.aliases) for instance in instances) == 28
    assert sum(len({p.title for p in instance.evidence}) < 20 for instance in instances) == 37
    assert all(len(instance.support_ids) == instance.hops for instance in instances)


def test_alias_lists_of_two_wiki_accept_each_of_their_spellings(shared_data):
    packed = shared_data / "qa" / "2wikimultihopqa_dev_aliases_1000.json.gz"
    lists = [record["answer"] for record in unpacked(packed)]
    several = [answers for answers in lists if isinstance(answers, list)]
    assert len(several) == 876
    # The matcher is made for English: a spelling without an ASCII letter or digit has nothing left to match.
    for answers in several:
        for answer in answers:
            if any(character.isascii() and character.isalnum() for character in answer):
                assert match_any_answer(answer, answers) or answer.lower() in {"a", "an", "the"}
