"""The last lines of a command that has asked a model about every record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.cli.shared.output import plural, say

if TYPE_CHECKING:
    from eclose.calls.run import RunResult


def say_run(done: RunResult, remark: str | None = None) -> None:
    """Print where every record went, what was set aside, and how many calls, tokens and how much money it took."""
    from eclose.calls.prices import USD, format_money

    manifest, stage = done.manifest, done.stage
    say(f"{stage.out}: {manifest.counts}" + (" (done before, nothing to do)" if done.again else ""))
    for name, counts in manifest.funnel.items():
        say(f"  {name}: {counts}")
    if remark is not None:
        say(f"  {remark}")
    if manifest.counts.rejected:
        say(f"  what was set aside: {stage.rejected_path}")
    if manifest.counts.quarantined:
        say(f"  what failed, and why: {stage.quarantine_path}; --retry tries it again")
    calls = manifest.calls
    cost = f", {format_money(calls['cost'], calls.get('currency', USD))} spent" if calls["cost"] else ""
    unknown = f"; {plural(calls['unsettled'], 'call')} broken off, possibly billed" if calls["unsettled"] else ""
    say(
        f"  {'0 calls now, before: ' if done.again else ''}{plural(calls['replies'], 'call')}, "
        f"{calls['prompt_tokens']:,} tokens read, {calls['completion_tokens']:,} written{cost}{unknown}"
    )
