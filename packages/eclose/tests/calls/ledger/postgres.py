"""A PostgreSQL server of the tests' own, in a temporary folder, without a network; skipped where none is installed."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

NO_POSTGRES = "PostgreSQL is not installed here, or psycopg is not"

DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.database)]
"""Parameters of tests that run on both: the cases on SQLite are in the fast lane."""

_numbers = count()


def fresh_database() -> str:
    """The URL of an empty database; skips the test where there is no server."""
    return _server().fresh_database()


class Server:
    """A server that can be stopped, started again and frozen. Use it in a ``with``."""

    def __init__(self) -> None:
        programs = _programs()
        if programs is None or not _has_driver():
            pytest.skip(NO_POSTGRES)
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="pg"))
        self._user = _ordinary_user()
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        setup: list[str | Path] = [programs / "initdb", "-D", self._folder / "data", "-U", "tester", "-A", "trust"]
        setup += ["-E", "UTF8", "--no-sync"]
        subprocess.run(setup, check=True, capture_output=True, user=self._user, cwd=self._folder)
        self.url = f"postgresql://tester@/?host={self._folder}"
        self.start()

    def start(self) -> None:
        """Start, and wait until it answers."""
        options: list[str | Path] = ["-k", self._folder, "-c", "listen_addresses=", "-c", "max_connections=40"]
        options += ["-c", "fsync=off"]  # processes are killed here, and no machine: its caches outlive them
        command = [self._programs / "postgres", "-D", self._folder / "data", *options]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, user=self._user, cwd=self._folder, stdout=log, stderr=log)
        _wait_for(f"{self.url}&dbname=postgres")

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop at once: SIGINT ends all connections in order, SIGQUIT as a crash does."""
        self._process.send_signal(number)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def request_stop(self) -> None:
        """Ask the server to stop once its last connection has ended; it refuses new ones at once."""
        self._process.send_signal(signal.SIGTERM)

    def signal_all(self, number: int) -> None:
        """Send a signal to the server and all its processes: SIGSTOP freezes it, SIGCONT lets it go on."""
        process = psutil.Process(self._process.pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def fresh_database(self) -> str:
        """Return the URL of an empty database."""
        import psycopg

        name = f"test_{next(_numbers)}"
        with psycopg.connect(f"{self.url}&dbname=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"{self.url}&dbname={name}"

    def close(self) -> None:
        """Stop, and remove everything."""
        with suppress(psutil.NoSuchProcess):
            self.signal_all(signal.SIGCONT)
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def _server() -> Server:
    """Started once and stopped at exit."""
    server = Server()
    atexit.register(server.close)
    return server


def _has_driver() -> bool:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return False
    return True


def _programs() -> Path | None:
    parents = [Path(initdb).parent for initdb in [shutil.which("initdb")] if initdb]
    parents += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in parents if (folder / "postgres").exists()), None)


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
