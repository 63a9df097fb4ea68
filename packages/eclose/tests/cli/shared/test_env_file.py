"""What a folder's ``.env`` may decide: never where a key or the data of its user go.

The thefts are tried with the real command against real listeners on loopback, which record what reaches them.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import typer
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.cli.shared import env_file as dotenv
from eclose.cli.shared.env_file import _KNOWN, load_env_file, parse_env_file
from eclose.errors import UserError
from eclose.files.jsonl import read_records
from eclose.values.response import Response
from tests.calls.ledger.postgres import fresh_database
from tests.generating import questions, server

CANARY = "sk-canary-0123456789abcdef0123456789"
OURS = ("ECLOSE_", "OPENAI_", "PG", "INSPECT_", "RAY_")


@pytest.fixture(autouse=True)
def no_addresses(monkeypatch):
    """Forget which addresses came from files: in one process, they would hold for all tests that follow."""
    monkeypatch.setattr(dotenv, "_addresses_from_file", set())


@pytest.fixture
def folder(tmp_path):
    """An untrusted folder with questions; its ``.env`` is written by the test."""
    questions(tmp_path / "instances.jsonl", 3)
    return tmp_path


def write_env(folder, **variables):
    text = "".join(f"{name}={value}\n" for name, value in variables.items())
    (folder / ".env").write_text(text, "utf-8")


class Recorder(ThreadingHTTPServer):
    """A model server that records the headers and bodies it is sent and refuses every request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Recording)
        self.requests: list[str] = []

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Recording(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.requests.append(f"{self.requestline}\n{self.headers}{body.decode('utf-8', 'replace')}")
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815 - as the base class calls it

    def log_message(self, *_):
        pass


@contextmanager
def recorder():
    with Recorder() as listener:
        thread = threading.Thread(target=listener.serve_forever, daemon=True)
        thread.start()
        try:
            yield listener
        finally:
            listener.shutdown()
            thread.join()


class TcpRecorder:
    """A TCP listener that records every byte; ``talk`` answers as the protocol wants it."""

    def __init__(self, talk):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._talk = talk
        self.port = self._socket.getsockname()[1]
        self.connections = 0
        self.received = b""

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._socket.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, suppress(OSError):
            connection.settimeout(5)
            self._talk(self, connection)

    def record(self, connection):
        chunk = connection.recv(65_536)
        self.received += chunk
        return chunk


def ask_for_password(listener, connection):
    """Refuse encryption, then ask for the password in clear text, as a PostgreSQL server may."""
    while True:
        message = listener.record(connection)
        if len(message) == 8 and struct.unpack("!I", message[4:])[0] in (80877103, 80877104):
            connection.sendall(b"N")
            continue
        connection.sendall(b"R" + struct.pack("!II", 8, 3))
        listener.record(connection)
        return


def listen_only(listener, connection):
    while listener.record(connection):
        pass


def run(folder, *words, until=lambda: False, seconds=60.0, **environment):
    """Run the command in the folder with keys in its environment; end it once ``until`` holds."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    arguments = [sys.executable, "-m", "eclose.cli.main", *map(str, words)]
    with subprocess.Popen(
        arguments,
        env={"ECLOSE_DEADLINE": "2", **env, **environment},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        end = time.monotonic() + seconds
        while process.poll() is None and not until() and time.monotonic() < end:
            time.sleep(0.05)
        if process.poll() is None:
            process.kill()
        _, stderr = process.communicate()
    return process.returncode, stderr


GENERATE = ("generate", "instances.jsonl", "--no-price", "--out", "run")


# The five thefts, and their siblings.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "words", "secrets", "named"),
    [
        pytest.param(
            {"ECLOSE_BASE_URL": "{url}", "ECLOSE_API_KEY": "dummy"},
            ("--model", "m"),
            {"ECLOSE_API_KEY": CANARY},
            "ECLOSE_BASE_URL",
            id="B-dummy-key-beside-the-address",
        ),
        pytest.param(
            {"OPENAI_BASE_URL": "{url}"},
            ("--model", "m"),
            {"ECLOSE_API_KEY": CANARY},
            "OPENAI_BASE_URL",
            id="C-key-found-by-fallback",
        ),
        pytest.param(
            {"OPENAI_BASE_URL": "{url}", "OPENAI_API_KEY": ""},
            ("--model", "m"),
            {"ECLOSE_API_KEY": CANARY},
            "OPENAI_BASE_URL",
            id="C-empty-key-beside-the-address",
        ),
        pytest.param(
            {"ECLOSE_MODEL": "{url}"},
            (),
            {"ECLOSE_API_KEY": CANARY},
            "ECLOSE_MODEL",
            id="D-model-is-a-URL",
        ),
        pytest.param(
            {"ECLOSE_MODEL": "{url}", "ECLOSE_API_KEY": "dummy"},
            (),
            {"ECLOSE_API_KEY": CANARY},
            "ECLOSE_MODEL",
            id="D-model-is-a-URL-beside-a-dummy-key",
        ),
        pytest.param(
            {"OPENAI_BASE_URL": "{url}", "OPENAI_API_KEY": "dummy"},
            ("--model", "gpt-x"),
            {"OPENAI_API_KEY": CANARY, "HTTPS_PROXY": "http://127.0.0.1:9"},
            "OPENAI_BASE_URL",
            id="E-dummy-key-of-openai",
        ),
    ],
)
def test_a_key_of_the_environment_never_reaches_an_address_of_the_file(folder, variables, words, secrets, named):
    with recorder() as listener:
        write_env(folder, **{name: value.format(url=listener.base_url) for name, value in variables.items()})
        _, stderr = run(folder, *GENERATE, *words, until=lambda: listener.requests, seconds=8, **secrets)
    assert listener.requests == []
    assert f".env: {named} is ignored" in stderr
    assert "--env-file .env" in stderr
    assert CANARY not in stderr


@pytest.mark.slow
def test_theft_d_by_the_name_of_a_judge(folder):
    with recorder() as listener:
        write_env(folder, ECLOSE_JUDGE=listener.base_url)
        words = ("screen", "instances.jsonl", "--no-price", "--out", "run")
        code, stderr = run(folder, *words, until=lambda: listener.requests, ECLOSE_API_KEY=CANARY)
    assert (code, listener.requests) == (2, [])
    assert ".env: ECLOSE_JUDGE is ignored" in stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "ledger",
    [
        "postgresql://user@127.0.0.1:{port}/x",
        "postgresql://user:@127.0.0.1:{port}/x",
        # Two parsers of URLs read this one differently: one sees a password, libpq sees two hosts and none.
        "postgresql://user:@127.0.0.1,x@y:{port}/x",
        "postgresql:///x?host=127.0.0.1&port={port}&user=u",
        "postgresql://user:dummy@127.0.0.1:{port}/x?password=",
    ],
)
def test_theft_f_the_password_of_the_users_database(folder, ledger):
    with TcpRecorder(ask_for_password) as listener, recorder() as model:
        write_env(folder, ECLOSE_LEDGER=ledger.format(port=listener.port))
        words = (*GENERATE, "--model", "m", "--base-url", model.base_url)
        code, stderr = run(folder, *words, until=lambda: CANARY.encode() in listener.received, PGPASSWORD=CANARY)
    assert listener.connections == 0
    assert CANARY.encode() not in listener.received
    assert ".env: ECLOSE_LEDGER is ignored" in stderr
    assert code != -9


@pytest.mark.database
@pytest.mark.ray
@pytest.mark.slow
def test_theft_f_the_cluster_that_runs_our_code(folder):
    ledger = fresh_database()
    with TcpRecorder(listen_only) as listener, server() as model:
        write_env(folder, ECLOSE_RAY_ADDRESS=f"127.0.0.1:{listener.port}", ECLOSE_ENGINE="ray")
        words = (*GENERATE, "--model", "world", "--base-url", model.base_url, "--ledger", ledger)
        code, stderr = run(folder, *words)
    # Ray turns loopback into the machine's own address, so the listener would see nothing; Ray's error names its port.
    assert f":{listener.port}" not in stderr
    assert ".env: ECLOSE_RAY_ADDRESS is ignored" in stderr
    assert ".env: ECLOSE_ENGINE is ignored" in stderr
    assert code == 0, stderr


@pytest.mark.parametrize(
    ("command", "variable", "model", "refused"),
    [
        ("screen instances.jsonl --out run --judge", "ECLOSE_BASE_URL", "openai/gpt-x", True),
        ("judge rows.jsonl --out run --judge", "ECLOSE_BASE_URL", "openai/gpt-x", True),
        ("generate instances.jsonl --out run --model", "ECLOSE_BASE_URL", "groq/llama", True),
        ("construct instances.jsonl --out run --verifier openai/x --constructor", "ECLOSE_BASE_URL", "m", True),
        ("screen instances.jsonl --out run --judge", "OPENAI_BASE_URL", "openai/gpt-x", True),
        ("screen instances.jsonl --out run --judge", "ECLOSE_BASE_URL", "inspect/openai/gpt-x", True),
        # A model of no provider has no other address, and a flag is the user's own choice.
        ("screen instances.jsonl --out run --judge", "ECLOSE_BASE_URL", "m", False),
        (
            "screen instances.jsonl --out run --base-url http://127.0.0.1:8/v1 --judge",
            "ECLOSE_BASE_URL",
            "openai/x",
            False,
        ),
    ],
)
def test_address_of_an_unnamed_file_is_refused_where_the_model_names_a_provider(
    folder, monkeypatch, command, variable, model, refused
):
    for name in ("ECLOSE_BASE_URL", "ECLOSE_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setattr(dotenv, "_addresses_from_file", set())
    monkeypatch.chdir(folder)
    (folder / "rows.jsonl").write_text('{"question": "q", "contexts": ["p"], "answer": "a"}\n', "utf-8")
    key = {"OPENAI_BASE_URL": {"OPENAI_API_KEY": CANARY}}.get(variable, {"ECLOSE_API_KEY": "theirs"})
    write_env(folder, **{variable: "http://127.0.0.1:9/v1"}, **key)
    result = CliRunner().invoke(app, [*command.split(), model, "--no-price", "--dry-run"])
    if refused:
        assert f"names a provider, and .env gives {variable}" in str(result.exception)
        assert "--env-file .env" in str(result.exception)
    else:
        assert result.exit_code == 0, (result.output, result.exception)


@pytest.mark.slow
def test_a_provider_of_inspect_does_not_take_its_key_to_an_address_of_the_file(folder):
    """Inspect sends the key of its provider, not the one that stands beside the address."""
    with recorder() as listener:
        write_env(folder, ECLOSE_BASE_URL=listener.base_url, ECLOSE_API_KEY="dummy")
        words = ("screen", "instances.jsonl", "--no-price", "--out", "run", "--judge", "inspect/openai/gpt-x")
        code, stderr = run(folder, *words, until=lambda: listener.requests, OPENAI_API_KEY=CANARY)
    assert (code, listener.requests) == (2, [])
    assert ".env gives ECLOSE_BASE_URL" in stderr


# What is taken.


@pytest.mark.slow
def test_an_address_with_its_own_key_is_taken_and_only_that_key_is_sent(folder):
    with recorder() as listener:
        write_env(folder, ECLOSE_BASE_URL=listener.base_url, ECLOSE_API_KEY="the-files-own")
        _, stderr = run(folder, *GENERATE, "--model", "m", until=lambda: listener.requests, OPENAI_API_KEY=CANARY)
    assert "Bearer the-files-own" in listener.requests[0]
    assert not [request for request in listener.requests if CANARY in request]
    assert f".env: calls go to {listener.base_url} (ECLOSE_BASE_URL)" in stderr


@pytest.mark.slow
def test_a_ledger_with_its_own_password_is_taken_and_only_that_password_is_sent(folder):
    with TcpRecorder(ask_for_password) as listener, recorder() as model:
        write_env(folder, ECLOSE_LEDGER=f"postgresql://user:the-files-own@127.0.0.1:{listener.port}/x")
        words = (*GENERATE, "--model", "m", "--base-url", model.base_url)
        _, stderr = run(folder, *words, until=lambda: b"own" in listener.received, PGPASSWORD=CANARY)
    assert b"the-files-own" in listener.received
    assert CANARY.encode() not in listener.received
    assert "the-files-own" not in stderr


@pytest.mark.slow
def test_flags_are_found_in_a_file_that_is_named(folder):
    with server() as model:
        write_env(
            folder,
            ECLOSE_BASE_URL=model.base_url,
            ECLOSE_MODEL="other",
            ECLOSE_NO_PRICE="1",
            ECLOSE_LEDGER="calls.db",
        )
        words = ("generate", "instances.jsonl", "--out", "run", "--limit", "2")
        code, stderr = run(folder, "--env-file", ".env", *words, ECLOSE_MODEL="world")
    assert code == 0, stderr
    assert "ignored" not in stderr
    assert (folder / "calls.db").exists()
    assert {response.source.model for response in read_records(folder / "run" / "responses.jsonl", Response)} == {
        "world"
    }


def test_variables_are_read_as_people_write_them():
    text = "A=1\n# B=2\nexport C = three \nD='a # b'\nE=\"x\" # said\nF=x # said\nG=\nno line\nH=a#b\n"
    assert parse_env_file(text) == {
        "A": "1",
        "C": "three",
        "D": "a # b",
        "E": "x",
        "F": "x",
        "G": "",
        "H": "a#b",
    }


def test_the_environment_wins_and_only_our_own_is_taken(tmp_path, capsys):
    never = {
        "PATH": "/evil",
        "HTTPS_PROXY": "http://evil",
        "PGHOST": "evil",
        "PGPASSFILE": "/evil",
        "PGSERVICEFILE": "/evil",
        "INSPECT_EVAL_MODEL_BASE_URL": "http://evil",
        "INSPECT_LOG_DIR": "s3://evil",
        "VLLM_BASE_URL": "http://evil",
        "HF_ENDPOINT": "http://evil",
        "RAY_ADDRESS": "evil",
        "SSL_CERT_FILE": "/evil",
        "ECLOSE_SOMETHING_ELSE": "x",
    }
    write_env(tmp_path, ECLOSE_BUDGET="1", ECLOSE_MODEL="groq/m", GROQ_API_KEY="k", **never)
    environ = {"ECLOSE_BUDGET": "2", "PATH": "/bin"}
    load_env_file(tmp_path, environ)
    assert environ == {"ECLOSE_BUDGET": "2", "PATH": "/bin", "ECLOSE_MODEL": "groq/m", "GROQ_API_KEY": "k"}
    load_env_file(tmp_path / "nowhere", environ)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["MODEL", "JUDGE", "CONSTRUCTOR", "VERIFIER", "REVERIFIER"])
@pytest.mark.parametrize(
    "value", ["http://evil/v1", "HTTPS://evil/v1", "//evil/share", r"\\evil\share", "vllm:s3://evil"]
)
def test_no_role_can_be_an_address(tmp_path, name, value):
    write_env(tmp_path, **{f"ECLOSE_{name}": value})
    environ: dict[str, str] = {}
    load_env_file(tmp_path, environ)
    assert environ == {}


@pytest.mark.parametrize("value", ["../calls.db", "/abs/calls.db", r"\\evil\x", r"C:\x", "sub/../../x", "link/x"])
def test_a_ledger_outside_the_folder_is_not_taken(tmp_path, value, capsys):
    (tmp_path / "link").symlink_to(tmp_path.parent)
    write_env(tmp_path, ECLOSE_LEDGER=value)
    environ: dict[str, str] = {}
    load_env_file(tmp_path, environ)
    assert environ == {}
    assert "ECLOSE_LEDGER is ignored" in capsys.readouterr().err
    write_env(tmp_path, ECLOSE_LEDGER="calls/here.db")
    load_env_file(tmp_path, environ)
    assert environ == {"ECLOSE_LEDGER": "calls/here.db"}


def test_prices_of_a_folder_would_unmake_the_users_budget(tmp_path, capsys):
    write_env(tmp_path, ECLOSE_PRICES="prices.json")
    environ = {"ECLOSE_BUDGET": "5"}
    load_env_file(tmp_path, environ)
    assert environ == {"ECLOSE_BUDGET": "5"}
    assert "set it in the environment" in capsys.readouterr().err


def test_a_pair_is_taken_whole_or_not_at_all(tmp_path, capsys):
    write_env(tmp_path, OPENAI_BASE_URL="https://mine.example/v1", OPENAI_API_KEY=CANARY)
    for before in ({}, {"OPENAI_API_KEY": CANARY}, {"OPENAI_API_KEY": ""}):
        environ = dict(before)
        load_env_file(tmp_path, environ)
        assert environ == {"OPENAI_BASE_URL": "https://mine.example/v1", "OPENAI_API_KEY": CANARY}
    capsys.readouterr()
    environ = {"OPENAI_API_KEY": "another"}
    load_env_file(tmp_path, environ)
    assert environ == {"OPENAI_API_KEY": "another"}
    message = capsys.readouterr().err
    assert "OPENAI_API_KEY is set in the environment" in message
    assert CANARY not in message


def test_a_named_file_decides_everything_but_never_sends_a_key_past_its_own(tmp_path, capsys):
    write_env(
        tmp_path,
        ECLOSE_BASE_URL="http://server/v1",
        ECLOSE_API_KEY="own",
        ECLOSE_RAY_ADDRESS="auto",
        ECLOSE_PRICES="/prices.json",
        HTTPS_PROXY="http://evil",
    )
    environ = {"ECLOSE_API_KEY": CANARY}
    load_env_file(tmp_path / ".env", environ, trusted=True)
    assert environ == {
        "ECLOSE_BASE_URL": "http://server/v1",
        "ECLOSE_API_KEY": "own",
        "ECLOSE_RAY_ADDRESS": "auto",
        "ECLOSE_PRICES": "/prices.json",
    }
    assert capsys.readouterr().err == ""
    with pytest.raises(UserError, match=r"nowhere\.env: there is no such file"):
        load_env_file(tmp_path / "nowhere.env", {}, trusted=True)


def test_a_file_that_is_no_text_does_not_stop_a_command(tmp_path, capsys):
    (tmp_path / ".env").write_bytes(b"ECLOSE_BUDGET=1\nNAME=\xff\xfe\n")
    environ: dict[str, str] = {}
    load_env_file(tmp_path, environ)
    assert environ == {}
    assert ".env: is ignored because it is not UTF-8 text" in capsys.readouterr().err
    with pytest.raises(UserError, match="is not UTF-8 text"):
        load_env_file(tmp_path / ".env", environ, trusted=True)


@pytest.mark.slow
def test_commands_that_ask_no_model_do_not_open_the_file(folder):
    write_env(folder, ECLOSE_BASE_URL="http://127.0.0.1:9/v1")
    code, stderr = run(folder, "data", "stats", "instances.jsonl")
    assert (code, stderr) == (0, "")


def test_every_option_that_may_stand_in_the_environment_is_decided_on():
    """A new option is either a figure that a folder may set, or one that it may not: listed, never by a pattern."""

    def variables(command):
        for parameter in command.params:
            yield from [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or ()
        for child in getattr(command, "commands", {}).values():
            yield from variables(child)

    assert set(variables(typer.main.get_command(app))) <= _KNOWN


@pytest.mark.parametrize(
    ("address", "value", "key"),
    [
        ("AZURE_OPENAI_ENDPOINT", "https://evil.example", "AZURE_OPENAI_API_KEY"),
        ("AWS_REGION", "us-west-2", "AWS_BEARER_TOKEN_BEDROCK"),
        ("GOOGLE_CLOUD_PROJECT", "other-account", "GOOGLE_OAUTH_ACCESS_TOKEN"),
    ],
)
def test_a_folder_does_not_move_the_key_of_a_provider(folder, capsys, address, value, key):
    write_env(folder, **{address: value})
    environ = {key: CANARY}
    load_env_file(folder, environ)
    assert environ == {key: CANARY}
    assert f"{address} is ignored" in capsys.readouterr().err
    # Beside a key of its own, too, while the environment has one.
    write_env(folder, **{address: value, key: "sk-theirs"})
    load_env_file(folder, environ)
    assert environ == {key: CANARY}
    message = capsys.readouterr().err
    assert f"{key} is set in the environment" in message
    assert "set it in the environment" in message
    environ = {}
    load_env_file(folder, environ)
    assert environ == {address: value, key: "sk-theirs"}
