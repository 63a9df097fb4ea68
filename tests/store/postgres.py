"""A PostgreSQL server of the tests' own, in a temporary folder, without a network; skipped where none is installed."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path

import pytest

NO_POSTGRES = "PostgreSQL is not installed here, or psycopg is not"

_numbers = count()


def fresh_database() -> str:
    """The URL of an empty database; skips the test where there is no server."""
    server = _server()
    if server is None:
        pytest.skip(NO_POSTGRES)
    import psycopg

    name = f"test_{next(_numbers)}"
    with psycopg.connect(f"{server}&dbname=postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{server}&dbname={name}"


@cache
def _server() -> str | None:
    """Started once and stopped at exit."""
    programs = _programs()
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return None
    if programs is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    user = _ordinary_user()
    if user is not None:
        shutil.chown(folder, user)
    setup: list[str | Path] = [
        programs / "initdb",
        "-D",
        folder / "data",
        "-U",
        "tester",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    subprocess.run(setup, check=True, capture_output=True, user=user, cwd=folder)
    options: list[str | Path] = ["-k", folder, "-c", "listen_addresses=", "-c", "max_connections=40"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", *options], user=user, cwd=folder, stdout=log, stderr=log
        )
    atexit.register(_stop, process, folder)
    url = f"postgresql://tester@/?host={folder}"
    _wait_for(f"{url}&dbname=postgres")
    return url


def _programs() -> Path | None:
    found = [Path(initdb).parent for initdb in [shutil.which("initdb")] if initdb]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in found if (folder / "postgres").exists()), None)


def _ordinary_user() -> str | None:
    """The server refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _wait_for(url: str) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
