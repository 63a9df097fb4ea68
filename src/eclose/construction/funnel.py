"""Count the sources of each dataset that passed each part: the columns of the paper's table of construction.

=========  ================================================================================
Sampled    sources in the input file, each id once
Processed  those that entered construction: within ``--limit``, and not asking the same as another
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

from eclose.construction.settings import Part
from eclose.construction.split import UNKNOWN, dataset_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eclose.core.instance import Instance
    from eclose.store.ledger.ledger import Ledger
    from eclose.store.records.jsonl import ReadRecord

SAMPLED, PROCESSED, PACKED = "Sampled", "Processed", "Packed"
_FORMERLY_PROCESSED = "Sources"
COLUMNS: Mapping[Part, str] = {
    Part.SCREEN: "Screened",
    Part.TARGET: "y*",
    Part.EVIDENCE: "Evidence",
    Part.QUESTION: "Question",
}
"""What a part is called once it is passed. The last part of a run, whichever it is, gives ``Packed``."""


async def by_dataset(
    ledger: Ledger,
    sampled: Iterable[ReadRecord[Instance]],
    processed: Iterable[ReadRecord[Instance]],
    parts: Sequence[Part],
) -> dict[str, dict[str, Any]]:
    """Return for each dataset the funnel, and the calls and tokens that it took."""
    names = Counter(dataset_of(source.benchmark) for record in sampled if (source := record.value) is not None)
    dataset = {source.id: dataset_of(source.benchmark) for record in processed if (source := record.value) is not None}
    usage = await ledger.usage_by(lambda _, record_id: dataset.get(record_id, UNKNOWN))
    return {
        "funnel": await _funnel(ledger, names, dataset, parts),
        "usage": {name: usage[name]._asdict() for name in sorted(usage)},
    }


async def _funnel(
    ledger: Ledger, sampled: Counter[str], dataset: Mapping[str, str], parts: Sequence[Part]
) -> dict[str, dict[str, int]]:
    counts = {SAMPLED: sampled, PROCESSED: Counter(dataset.values())}
    for part in parts:
        column = PACKED if part is parts[-1] else COLUMNS.get(part)
        if column is not None:
            counts[column] = Counter(
                [dataset[outcome.record_id] async for outcome in ledger.outcomes(part) if outcome.kind == "accepted"]
            )
    return {name: {column: found[name] for column, found in counts.items()} for name in sorted(sampled)}


def processed_of(counts: Mapping[str, int]) -> int:
    """Return how many sources entered construction, also from manifests with the former name of the column."""
    return counts.get(PROCESSED, counts.get(_FORMERLY_PROCESSED, 0))


def total(funnel: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return the counts of all datasets together."""
    columns = next(iter(funnel.values()), {})
    return {column: sum(counts[column] for counts in funnel.values()) for column in columns}
