"""``.env`` in the current folder: settings and keys that one does not want to type, or to have in a shell's history."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from eclosure.cli.output import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

FILE = ".env"
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")
_QUOTED = re.compile(r"""(["'])(.*)\1(?:\s+#.*)?""")
_COMMENT = re.compile(r"(?:^|\s+)#.*")
# Nothing else is ours to set: a folder's file must not be able to change how programs run.
_OURS = re.compile(r"ECLOSURE_[A-Z0-9_]+|[A-Z0-9_]+_API_KEY|OPENAI_BASE_URL")
_ADDRESSES = {"ECLOSURE_BASE_URL": "ECLOSURE_API_KEY", "OPENAI_BASE_URL": "OPENAI_API_KEY"}


def read_variables(text: str) -> dict[str, str]:
    """``NAME=value`` lines. Quotes are taken off, comments left out; nothing is expanded."""
    found = {}
    for line in text.splitlines():
        if line.lstrip().startswith("#") or (match := _LINE.fullmatch(line)) is None:
            continue
        name, value = match.groups()
        quoted = _QUOTED.fullmatch(value)
        found[name] = quoted[2] if quoted else _COMMENT.sub("", value)
    return found


def load_file(folder: Path | None = None, environ: MutableMapping[str, str] | None = None) -> None:
    """Take over what the environment does not say already."""
    path = (folder or Path()) / FILE
    environ = os.environ if environ is None else environ
    if not path.is_file():
        return
    found = {name: value for name, value in read_variables(path.read_text("utf-8")).items() if _OURS.fullmatch(name)}
    for address in _stolen(found, environ):
        told = f"{FILE}: {address} is not taken, since {_ADDRESSES[address]} comes from the environment"
        sys.stderr.write(f"eclosure: {printable(told)}. Put both in one place.\n")
        del found[address]
    for name, value in found.items():
        environ.setdefault(name, value)


def _stolen(found: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """Addresses to which a key of the user's own would go because a folder's file says so."""
    return [
        address
        for address, key in _ADDRESSES.items()
        if address in found and address not in environ and key in environ and key not in found
    ]
