"""``eclose judge show``: how one response was judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import format_count, print_line, print_table, print_text_block

if TYPE_CHECKING:
    from eclose.judging.show import JudgeCall, JudgmentTrail


def show(
    run: Annotated[Path, typer.Argument(help="Folder of a judged run.")],
    response: Annotated[str, typer.Argument(help="Id of a response.")],
    *,
    ledger: Annotated[
        str | None, typer.Option(help="Ledger of the judge's calls.  [default: ledger.sqlite in the run]")
    ] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Leave out prompts and replies.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print how one response was judged: its labels and steps, and for every call the prompt, the reply, the checks,
    and why a reply was refused.

    Nothing is asked or changed. Without a ledger, as for files of another tool, the prompts are built again and there
    are no replies.
    """
    import json

    from eclose.judging.show import show_judgment

    trail = show_judgment(run, response, ledger=ledger)
    if as_json:
        typer.echo(json.dumps(trail.as_json()))
        return
    _print_labels(trail)
    _print_steps(trail)
    for call in trail.calls:
        _print_judge_call(call, brief=brief)
    if not trail.recorded:
        print_line("There is no ledger beside these judgments: the prompts are built again, and no reply is recorded.")
        return
    refused = len(trail.refusals)
    print_line(f"{format_count(len(trail.calls), 'call')}, {refused:,} without a usable reply")


def _print_labels(trail: JudgmentTrail) -> None:
    from eclose.report.wording import LABEL_WORDS, explain_missing_label
    from eclose.values.judgment import missing_reason_kind

    judgment = trail.judgment
    print_line(f"response  {trail.response.id}")
    print_line(f"judge     {'not judged yet' if judgment is None else judgment.judge}")
    print_line(f"question  {trail.instance.question}")
    print_line(f"answer    {'none' if trail.response.answer is None else trail.response.answer}")
    print_line("")
    rows = []
    for name, label in trail.labels.items():
        reason = ""
        if judgment is not None:
            missing = judgment.missing_reasons.get(name, "")
            explanation = explain_missing_label(missing_reason_kind(missing))
            detail = missing.removeprefix(missing_reason_kind(missing)).lstrip(": ")
            reason = f"{explanation}: {detail}" if missing and detail else explanation
            reason = reason or {str(criterion): text for criterion, text in judgment.reasons.items()}.get(name, "")
        words = {True: "yes", False: "no", None: "not judged"}[label]
        rows.append((name, LABEL_WORDS[name], words, reason))
    print_table("Labels", ("label", "meaning", "judged", "why"), rows)
    print_line("")


def _print_steps(trail: JudgmentTrail) -> None:
    from eclose.report.wording import CODE_WORDS

    rows = []
    for number, (text, step) in enumerate(trail.steps, start=1):
        if step is None or step.substantive is None:
            words = "not judged"
        elif not step.substantive:
            words = "not substantive"
        else:
            words = {True: "yes", False: "no", None: "not judged"}[step.sound]
        failure = "" if step is None or step.failure is None else CODE_WORDS[step.failure][0]
        reason = "" if step is None or step.reason is None else step.reason
        rows.append((str(number), words, ": ".join(filter(None, (failure, reason))), text))
    if rows:
        print_table("Steps", ("step", "holds", "why", "text"), rows)
        print_line("")


def _print_judge_call(call: JudgeCall, *, brief: bool) -> None:
    numbers = f", repetition {call.replica + 1}" if call.replica else ""
    numbers += f", attempt {call.attempt + 1}" if call.attempt else ""
    print_line(f"{call.question}{numbers}: {call.state if call.cause is None else 'not used'}")
    if call.cause is not None:
        print_line(f"  cause: {call.cause}")
    for check in call.checks:
        mark = {True: "ok  ", False: "FAIL", None: "-   "}[check.passed]
        print_line(f"  {mark} {check.text}")
    if not brief:
        for role, content in call.messages:
            print_text_block(role, content)
        if call.reply is not None:
            print_text_block("reply", call.reply)
    print_line("")
