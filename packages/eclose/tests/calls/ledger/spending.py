"""What a run has spent, for tests of ledgers."""

from __future__ import annotations


async def compute_spending(ledger):
    """Return the cost of a run's replies, and the amount that its open sends take from the budget."""
    account = await ledger.compute_account()
    return account.spent, account.reserved + account.assumed
