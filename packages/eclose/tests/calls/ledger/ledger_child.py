"""A run in a process of its own, to be killed: every record is asked for and settled, and what happened is logged.

``python ledger_child.py place folder records concurrency``. A line of ``sent`` stands for a billed call, a line of
``acked`` for what the ledger said is safe. Lines are written at once, so that they outlive the process.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from pathlib import Path

from eclose.calls.ledger import accounts
from eclose.calls.ledger import ledger as ledger_module
from eclose.calls.ledger.ledger import CallInFlightError, CallIntent, Ledger, LedgerReply, RecordOutcome
from eclose.values.identity import content_hash


def call(number: int) -> CallIntent:
    request = {"messages": [{"role": "user", "content": f"question {number} " * 20}]}
    return CallIntent(content_hash(request), request, "judge", f"r{number:06}", 7)


def reply(number: int) -> LedgerReply:
    return LedgerReply(call(number).key, f'{{"text": "answer {number}"}}'.encode() * 30, (number, 1), number % 10, 1)


def outcome(number: int) -> RecordOutcome:
    return RecordOutcome("judge", f"r{number:06}", "accepted", None, f'{{"answer": {number}}}'.encode())


async def main(place: str, folder: Path, records: int, concurrency: int) -> None:
    sent, acked = (os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("sent", "acked"))
    async with Ledger.open(place, run="a") as ledger:
        record_ids = {outcome.record_id async for outcome in ledger.read_outcomes("judge")}
        todo = deque(number for number in range(records) if f"r{number:06}" not in record_ids)

        async def work() -> None:
            while todo:
                number = todo.popleft()
                try:
                    await ledger.intend(call(number))
                except CallInFlightError:
                    # On a server: sent by a process that was killed, whose lease still runs.
                    todo.append(number)
                    await asyncio.sleep(0.05)
                    continue
                os.write(sent, b"%d\n" % number)
                await asyncio.sleep(0.001)
                await ledger.settle(reply(number), outcome(number))
                os.write(acked, b"%d\n" % number)

        await asyncio.gather(*(work() for _ in range(concurrency)))


if __name__ == "__main__":
    for module in (accounts, ledger_module):
        module.LEASE_SECONDS = 1.0  # for a test that kills every second
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
