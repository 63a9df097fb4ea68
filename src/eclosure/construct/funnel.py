"""Where the sources of each dataset went, part by part: the columns of the paper's table of construction."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from eclosure.construct.settings import Part
from eclosure.construct.split import UNKNOWN, dataset_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eclosure.core.instance import Instance
    from eclosure.store.ledger import Ledger
    from eclosure.store.records import ReadRecord

SOURCES = "Sources"
"""Those that went in: read, and asking something of their own."""
COLUMNS: Mapping[Part, str] = {
    Part.SCREEN: "Screened",
    Part.TARGET: "Target",
    Part.EVIDENCE: "Evidence",
    Part.QUESTION: "Question",
    Part.PACK: "Packed",
    Part.REVERIFY: "Re-verified",
}
"""What a part is called once it is passed."""


async def by_dataset(
    ledger: Ledger, sources: Iterable[ReadRecord[Instance]], parts: Sequence[Part]
) -> dict[str, dict[str, Any]]:
    """For each dataset how many sources went in, how many passed each part, and what that took of calls and tokens."""
    read = (record.value for record in sources)
    dataset = {source.id: dataset_of(source.benchmark) for source in read if source is not None}
    usage = await ledger.usage_by(lambda _, record_id: dataset.get(record_id, UNKNOWN))
    return {
        "funnel": await _funnel(ledger, dataset, parts),
        "usage": {name: usage[name]._asdict() for name in sorted(usage)},
    }


async def _funnel(ledger: Ledger, dataset: Mapping[str, str], parts: Sequence[Part]) -> dict[str, dict[str, int]]:
    counts = {SOURCES: Counter(dataset.values())}
    for part in parts:
        counts[COLUMNS[part]] = Counter(
            [dataset[one.record_id] async for one in ledger.outcomes(part) if one.kind == "accepted"]
        )
    return {name: {column: found[name] for column, found in counts.items()} for name in sorted(counts[SOURCES])}


def total(funnel: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """All datasets together."""
    columns = next(iter(funnel.values()), {})
    return {column: sum(counts[column] for counts in funnel.values()) for column in columns}
