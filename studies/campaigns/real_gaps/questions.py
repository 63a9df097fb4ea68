"""Questions and passages of the traces, read from the data folder with the converters of the package."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.errors import RecordError
from eclose.files.json_reader import read_json_objects
from eclose.readers.benchmarks import convert_hotpot_record, convert_musique_record, convert_two_wiki_record

if TYPE_CHECKING:
    from pathlib import Path

    from eclose.files.json_reader import JsonObject
    from eclose.readers.conversion import ConvertedRecord
    from eclose.values.instance import Instance


class QuestionSource(StrEnum):
    """Collection from which a trace was written."""

    MUSIQUE = "MuSiQue"
    R4C = "R4C"
    TWO_WIKI = "2WikiMultiHopQA"


FILES = {
    QuestionSource.MUSIQUE: "qa/musique_ans_train_100.json.gz",
    QuestionSource.R4C: "traces/r4c_joined_hotpotqa_97.jsonl.gz",
    QuestionSource.TWO_WIKI: "qa/2wikimultihopqa_dev_10.json",
}


def read_questions(data: Path) -> dict[str, Instance]:
    """Read the questions of all sources by their ids."""
    questions = {}
    for source, file in FILES.items():
        for raw in read_json_objects(data / file):
            if raw.value is None:
                raise raw.error or RecordError("cannot be read.", path=data / file, record=raw.where)
            instance = _convert_record(source, raw.value).instance
            questions[instance.id] = instance
    return questions


def _convert_record(source: QuestionSource, record: JsonObject) -> ConvertedRecord:
    if source is QuestionSource.MUSIQUE:
        return convert_musique_record(record)
    if source is QuestionSource.TWO_WIKI:
        return convert_two_wiki_record(record)
    # The derivations of R4C are joined to records of HotpotQA under a column of their own for the id.
    return convert_hotpot_record({**record, "_id": record["hotpot_id"]})
