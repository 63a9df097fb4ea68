"""Projection, not a measurement: calls, tokens and machines for the paper's corpus and for a million families.

What a source takes in each part is measured in the world, on good sources of the paper's three profiles, through the
whole of ``eclose construct`` over HTTP; how many sources come to each part is the paper's table. Words
are what the world's server counts; tokens are estimated from them. A call is supposed to take ten seconds.

    python studies/campaigns/construct_projection.py [--sources 40]
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.client import CallSettings
from eclose.calls.forecast import estimate_text_tokens
from eclose.calls.ledger.ledger import Ledger
from eclose.files import jsonl
from eclose.prompts.material_json import disclose_passages
from eclose_train.construction.questions import SourceScreenMaterial, build_construction_prompt
from eclose_train.construction.run import construct_families, resolve_construction_models
from eclose_train.construction.settings import ConstructionStage
from eclose_world.make.instances import make_world_items
from studies.campaigns.judge_http import serving
from studies.perf.result import print_result

SEED = 20_268
PRINTED = Path(__file__).parents[2] / "packages/eclose/tests/fixtures/paper" / "tables.csv"
NAMES = {"2wiki": "2WikiMultiHopQA", "musique": "MuSiQue", "hotpot": "HotpotQA"}
ENTERING = {
    ConstructionStage.SCREEN: "Processed",
    ConstructionStage.TARGET: "Screened",
    ConstructionStage.EVIDENCE: "Target",
    ConstructionStage.QUESTION: "Evidence",
    ConstructionStage.REVERIFY: "Question",
}
"""Column of the paper's table that counts the sources entering a stage."""
SECONDS_A_CALL = 10.0
SIZES = (2_852, 100_000, 1_000_000)
GOAL = 1.0
"""Most hours of our own processor time for the paper's 23,000 sources."""


@dataclass(frozen=True)
class SourceUsage:
    """Mean usage of a source in a stage."""

    calls: float
    read: float
    written: float


@dataclass(frozen=True)
class MeasuredUsage:
    """Usage by profile and stage, and the cost of a call on this machine."""

    parts: dict[tuple[str, ConstructionStage], SourceUsage]
    cpu: float
    """Seconds of our processor for a call."""
    ledger_bytes: float
    """Bytes of the ledger for a call."""
    tokens: float
    """Tokens for a word, estimated."""


async def measure(folder: Path, count: int) -> MeasuredUsage:
    """Run ``count`` good sources of each profile through all stages and measure their usage."""
    sources = [item.instance for profile in NAMES for item in islice(make_world_items(profile, SEED), count)]
    jsonl.write_records(folder / "sources.jsonl", sources)
    profile_of = {source.id: str(source.benchmark).removeprefix("world-") for source in sources}
    with serving("--latency", "0.02") as url:
        models = await resolve_construction_models(url, url)
        start = time.process_time()
        result = await construct_families(
            folder / "sources.jsonl", models, folder / "run", calls=CallSettings(unpriced=True)
        )
        cpu = time.process_time() - start
    entered = {part: counts.received for part, counts in result.manifest.funnel.items()}
    print(f"{entered['screen']:,} sources, {result.manifest.counts.accepted:,} families, "
          f"{result.manifest.calls['replies']:,} calls")  # fmt: skip
    async with Ledger.open(folder / "run" / "ledger.sqlite", run=result.stage.work_id) as ledger:
        usage = await ledger.compute_usage_by(lambda stage, record_id: f"{profile_of[record_id]}/{stage}")
        came: dict[tuple[str, ConstructionStage], int] = {}
        for part in ENTERING:
            async for outcome in ledger.read_outcomes(part):
                key = profile_of[outcome.record_id], part
                came[key] = came.get(key, 0) + 1
    parts = {}
    for (profile, part), number in came.items():
        part_usage = usage[f"{profile}/{part}"]
        parts[profile, part] = SourceUsage(
            part_usage.replies / number, part_usage.prompt_tokens / number, part_usage.completion_tokens / number
        )
    calls = result.manifest.calls["replies"]
    size = (folder / "run" / "ledger.sqlite").stat().st_size
    texts = [
        build_construction_prompt(
            SourceScreenMaterial(source.question, disclose_passages(source.evidence), source.reference_answer or "")
        )
        for source in sources
    ]
    words = sum(len(message["content"].split()) for text in texts for message in text.messages)
    tokens = sum(estimate_text_tokens(message["content"]) for text in texts for message in text.messages)
    return MeasuredUsage(parts, cpu / calls, size / calls, tokens / words)


def printed() -> dict[tuple[str, str], int]:
    """Read the paper's table of construction."""
    with PRINTED.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == "training_construction_flow"]
    return {(row["row"], row["column"]): int(row["printed"]) for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=40, help="sources of each profile")
    count = parser.parse_args().sources
    with tempfile.TemporaryDirectory() as folder:
        measured = asyncio.run(measure(Path(folder), count))
    table = printed()
    print("a source that comes to a part takes so many calls, and tokens read and written (estimated)")
    for (profile, part), usage in measured.parts.items():
        print(f"  {profile:8} {part:9} {usage.calls:5.2f} {usage.read * measured.tokens:9,.0f} "
              f"{usage.written * measured.tokens:7,.0f}")  # fmt: skip

    def total(amount: str) -> float:
        """Sum an amount over the paper's corpus."""
        return sum(
            table[NAMES[profile], ENTERING[part]] * float(getattr(usage, amount))
            for (profile, part), usage in measured.parts.items()
        )

    families, sources = table["Total", "Packed"], table["Total", "Processed"]
    print("\n| families (projection) | sources | calls | tokens read | written | our processor | ledger | "
          f"days at 64 / 1,000 calls of {SECONDS_A_CALL:g} s in flight |\n|{'---|' * 8}")  # fmt: skip
    for size in SIZES:
        times = size / families
        calls = times * total("calls")
        days = calls * SECONDS_A_CALL / 86_400
        read, written = (times * total(amount) * measured.tokens / 1e6 for amount in ("read", "written"))
        print(f"| {size:,} | {times * sources:,.0f} | {calls:,.0f} | {read:,.0f} M | {written:,.0f} M | "
              f"{calls * measured.cpu / 3600:.1f} h | {calls * measured.ledger_bytes / 1e9:.1f} GB | "
              f"{days / 64:.1f} / {days / 1000:.1f} |")  # fmt: skip
    hours = total("calls") * measured.cpu / 3600
    return print_result(
        name=f"projected: our own processor time for the paper's {sources:,} sources",
        value=round(hours, 2),
        unit=f"hours; {total('calls') / families:.0f} calls for each family, {1e3 * measured.cpu:.1f} ms a call",
        goal=f"<= {GOAL:g}",
        holds=hours <= GOAL,
    )


if __name__ == "__main__":
    sys.exit(main())
