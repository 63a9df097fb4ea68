"""Settings and keys from a ``.env`` file, and the limits on what such a file may decide.

A ``.env`` file comes with the current folder, which others may have written. It may set how calls are made and bring
its own keys. It may redirect calls, data or keys only together with its own secret, and a key from the user's
environment is never sent to an address from the file (decision 0033). ``--env-file PATH`` trusts a file.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eclose.calls.http.providers import MODEL_PROVIDERS
from eclose.cli.shared.output import escape_invisible
from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

ENV_FILE = ".env"
# Shell syntax is accepted as far as people use it: `export`, quotes and trailing comments.
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")
_QUOTED = re.compile(r"""(["'])(.*)\1(?:\s+#.*)?""")
_COMMENT = re.compile(r"(?:^|\s+)#.*")

_KEY = "ECLOSE_API_KEY"
_PROVIDERS = MODEL_PROVIDERS.values()
_TOKENS = {name for provider in _PROVIDERS for name in (provider.key_variable, provider.token_variable) if name}
_STORE_SECRETS = ("LANGFUSE_(?:PUBLIC|SECRET)_KEY", "MLFLOW_TRACKING_(?:TOKEN|USERNAME|PASSWORD)")
_SECRETS = re.compile("|".join(["[A-Z0-9_]+_API_KEY", *_STORE_SECRETS, *sorted(_TOKENS)]))
# Each address with the variable whose key is sent there. A region or project counts as an address: it decides whose
# account sees the requests.
_ADDRESSES = {
    "ECLOSE_BASE_URL": _KEY,
    "OPENAI_BASE_URL": "OPENAI_API_KEY",
    # Trace stores that verdicts are exported to. The texts of a run go there too, so the same rule holds.
    "LANGFUSE_BASE_URL": "LANGFUSE_SECRET_KEY",
    "LANGFUSE_HOST": "LANGFUSE_SECRET_KEY",
    "LANGSMITH_ENDPOINT": "LANGSMITH_API_KEY",
    "MLFLOW_TRACKING_URI": "MLFLOW_TRACKING_TOKEN",
    "PHOENIX_COLLECTOR_ENDPOINT": "PHOENIX_API_KEY",
} | {variable: key for provider in _PROVIDERS for variable, key in provider.variables.items()}
_VERSIONS = {name for provider in _PROVIDERS for name in provider.version_variables}
_ROLES = ("MODEL", "JUDGE", "CONSTRUCTOR", "VERIFIER", "REVERIFIER", "DETECTOR_MODEL")
_MODELS = frozenset(f"ECLOSE_{role}" for role in _ROLES)
_LEDGER = "ECLOSE_LEDGER"
# Ray runs our code on the cluster it is given. A price of zero would lift the user's own budget. A server's name would
# let replies of one server be taken for another's.
_NOT_FROM_FILES = frozenset({"ECLOSE_ENGINE", "ECLOSE_RAY_ADDRESS", "ECLOSE_PRICES", "ECLOSE_SERVER_NAME"})
_SETTINGS = frozenset(
    f"ECLOSE_{name}"
    for name in (
        "BREAKER_FAILURES",
        "BATCH_POLL",
        "BATCH_WAIT",
        "BREAKER_SECONDS",
        "BUDGET",
        "CONCURRENCY",
        "DEADLINE",
        "NO_PRICE",
        "REQUESTS_PER_MINUTE",
        "TOKENS_PER_MINUTE",
        "WORKERS",
    )
)
# Other variables are not read: proxies, PG*, INSPECT_* and the like change how other programs and libraries behave.
_KNOWN = _SETTINGS | _MODELS | _NOT_FROM_FILES | _VERSIONS | {*_ADDRESSES, _LEDGER}
_REMOTE = re.compile(r".*://|[/\\]{2}", re.DOTALL)
# Stricter than any parser of URLs, so that none can read a URL without a password where this one reads a password.
_LEDGER_WITH_PASSWORD = re.compile(
    r"postgresql(?:\+psycopg)?://[^:/@?#,\s]+:[^:/@?#,\s]+@[^/@?#\s]+/[^/@?#\s]*"
    r"(?:\?(?:(?:sslmode|application_name|connect_timeout)=[\w-]+&?)*)?"
)

_addresses_from_file: set[str] = set()


def is_address_from_env_file(variable: str) -> bool:
    """Return whether an untrusted ``.env`` file set this variable to an address in this process."""
    return variable in _addresses_from_file


def parse_env_file(text: str) -> dict[str, str]:
    """Return the ``NAME=value`` lines of a file. Quotes and comments are removed; nothing is expanded."""
    variables = {}
    for line in text.splitlines():
        if line.lstrip().startswith("#") or (match := _LINE.fullmatch(line)) is None:
            continue
        name, value = match.groups()
        quoted = _QUOTED.fullmatch(value)
        variables[name] = quoted[2] if quoted else _COMMENT.sub("", value)
    return variables


def load_env_file(
    path: Path | None = None, environ: MutableMapping[str, str] | None = None, *, trusted: bool = False
) -> None:
    """Set the variables of a file that the environment does not have, and name the ignored ones on stderr.

    ``path`` is a file, or a folder that holds ``.env``; by default the current folder. A ``trusted`` file, named by the
    user, may set every variable read here and must be readable. Where it gives both an address and the key for it, its
    key replaces that of the environment.
    """
    environ = os.environ if environ is None else environ
    path = Path() if path is None else path
    # Only --env-file names a file. Otherwise the path is a folder, and its .env is read.
    file = path / ENV_FILE if path.is_dir() or not trusted else path
    variables = _read(file, trusted=trusted)
    # Each address of the file that the environment does not have, with the secret that the file gives for it.
    pairs = {
        name: secret
        for name, value in variables.items()
        if name not in environ and (secret := _secret_of(name, value)) and variables.get(secret, "").strip()
    }
    for name, value in variables.items():
        # The environment is the user's own and comes before any file.
        if name in environ:
            continue
        if not trusted and (reason := _refusal(name, value, variables, environ, file.parent)) is not None:
            _write(f"{file.name}: {name} is ignored because {reason}; {_remedy(name, file)}.")
            continue
        # An address that is used is named on standard error, so that a folder cannot redirect calls unnoticed.
        if not trusted and _REMOTE.match(value):
            _addresses_from_file.add(name)
            _write(f"{file.name}: {_destination(name, value)} ({name}).")
        environ[name] = value
        # The key comes with the address, even where the environment holds another: the address gets the file's key.
        if name in pairs:
            environ[pairs[name]] = variables[pairs[name]]


def _read(file: Path, *, trusted: bool) -> dict[str, str]:
    """Return the variables of a file that concern this program; none where an untrusted file cannot be read."""
    if not file.is_file():
        if trusted:
            raise UserError(f"--env-file {file}: there is no such file. Check the path.")
        return {}
    try:
        variables = parse_env_file(file.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        problem = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else f"cannot be read ({error.strerror})"
        if trusted:
            raise UserError(f"--env-file {file}: {problem}. Correct the file, or leave the flag out.") from None
        _write(f"{file.name}: is ignored because it {problem}.")
        return {}
    return {name: value for name, value in variables.items() if name in _KNOWN or _SECRETS.fullmatch(name)}


def _secret_of(name: str, value: str) -> str | None:
    if name in _MODELS:
        return _KEY if _REMOTE.match(value) else None
    return _ADDRESSES.get(name)


def _refusal(
    name: str, value: str, variables: Mapping[str, str], environ: Mapping[str, str], folder: Path
) -> str | None:
    """Return why an untrusted file may not set this variable; None where it may."""
    if name in _NOT_FROM_FILES:
        return "a folder may not decide it"
    if name == _LEDGER:
        return _ledger_refusal(value, folder)
    if (secret := _secret_of(name, value)) is None:
        return None
    if not variables.get(secret, "").strip():
        return f"the file gives an address without its own {secret}"
    if environ.get(secret) and environ[secret] != variables[secret]:
        return f"{secret} is set in the environment and would be sent to the file's address"
    return None


def _ledger_refusal(value: str, folder: Path) -> str | None:
    if "://" in value:
        if _LEDGER_WITH_PASSWORD.fullmatch(value):
            return None
        return "the file gives a database without its own password in the URL (postgresql://user:password@host/name)"
    # The spelling is checked before the file system: on Windows, a look at \\host\share already logs in there.
    windows = PureWindowsPath(value)
    if windows.drive or windows.root or ".." in windows.parts:
        return "it names a file outside this folder"
    # Resolved, because a link inside the folder may lead out of it.
    return None if (folder / value).resolve().is_relative_to(folder.resolve()) else "it leads outside this folder"


def _remedy(name: str, file: Path) -> str:
    flag = f"pass {'--' + name.removeprefix('ECLOSE_').replace('_', '-').lower()}"
    if not name.startswith("ECLOSE_") or name in _NOT_FROM_FILES:
        flag = "set it in the environment"
    return f"{flag}, or run eclose --env-file {file.name} … if you trust the file"


def _destination(name: str, value: str) -> str:
    """Return where the file sends data; user names, passwords and queries are left out."""
    parts = urlsplit(value)
    host = parts.netloc.rpartition("@")[2]
    return f"{'calls are stored at' if name == _LEDGER else 'calls go to'} {parts.scheme}://{host}{parts.path}"


def _write(message: str) -> None:
    sys.stderr.write(f"eclose: {escape_invisible(message)}\n")
