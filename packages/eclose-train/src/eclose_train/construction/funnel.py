"""Counts of the sources of each dataset that passed each stage: the columns of the paper's table of construction.

=========  ================================================================================
Sampled    sources in the input file, each id once
Processed  those that entered construction: within ``--limit``, and not repeating another's question
Screened   passed the seed screen
y*         have a verified original response
Evidence   have a verified evidence intervention as well
Question   have a verified question intervention as well
Packed     families in the end: after the gates, and after the final re-verification where there is one
=========  ================================================================================
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from eclose.values.instance import UNKNOWN_DATASET, dataset_of_benchmark
from eclose_train.construction.settings import ConstructionStage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eclose.calls.ledger.ledger import Ledger
    from eclose.files.jsonl import ReadRecord
    from eclose.values.instance import Instance

SAMPLED, PROCESSED, PACKED = "Sampled", "Processed", "Packed"
# Name of the column in manifests of earlier versions; pilots of them can still be scaled up.
_FORMERLY_PROCESSED = "Sources"
FUNNEL_COLUMNS: Mapping[ConstructionStage, str] = {
    ConstructionStage.SCREEN: "Screened",
    ConstructionStage.TARGET: "y*",
    ConstructionStage.EVIDENCE: "Evidence",
    ConstructionStage.QUESTION: "Question",
}
"""Column of a stage. The last stage of a run gives ``Packed``, with or without re-verification."""


async def count_funnel_by_dataset(
    ledger: Ledger,
    sampled: Iterable[ReadRecord[Instance]],
    processed: Iterable[ReadRecord[Instance]],
    parts: Sequence[ConstructionStage],
) -> dict[str, dict[str, Any]]:
    """Return the funnel, and the calls and tokens, of each dataset."""
    names = Counter(
        dataset_of_benchmark(source.benchmark) for record in sampled if (source := record.value) is not None
    )
    dataset = {
        source.id: dataset_of_benchmark(source.benchmark)
        for record in processed
        if (source := record.value) is not None
    }
    # Replies about records that are not among the sources count as unknown.
    usage = await ledger.compute_usage_by(lambda _, record_id: dataset.get(record_id, UNKNOWN_DATASET))
    return {
        "funnel": await _funnel(ledger, names, dataset, parts),
        "usage": {name: usage[name]._asdict() for name in sorted(usage)},
    }


async def _funnel(
    ledger: Ledger, sampled: Counter[str], dataset: Mapping[str, str], parts: Sequence[ConstructionStage]
) -> dict[str, dict[str, int]]:
    counts = {SAMPLED: sampled, PROCESSED: Counter(dataset.values())}
    for part in parts:
        column = PACKED if part is parts[-1] else FUNNEL_COLUMNS.get(part)
        if column is not None:
            counts[column] = Counter(
                [
                    dataset[outcome.record_id]
                    async for outcome in ledger.read_outcomes(part)
                    if outcome.kind == "accepted"
                ]
            )
    return {name: {column: datasets[name] for column, datasets in counts.items()} for name in sorted(sampled)}


def count_processed_sources(counts: Mapping[str, int]) -> int:
    """Return the number of sources that entered construction, also from manifests with the former column name."""
    return counts.get(PROCESSED, counts.get(_FORMERLY_PROCESSED, 0))


def sum_funnel_over_datasets(funnel: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return the counts of a funnel over all datasets."""
    columns = next(iter(funnel.values()), {})
    return {column: sum(counts[column] for counts in funnel.values()) for column in columns}
