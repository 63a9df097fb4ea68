"""Turns the import error of an optional dependency into the line that installs it, or names systems that have it."""

from __future__ import annotations

import traceback

# The extras of pyproject.toml that bring a module, by the name it is imported under.
_EXTRAS: dict[str, tuple[str, ...]] = {
    "accelerate": ("train",),
    "aiohttp": ("chat", "world"),
    "argon2": ("annotate",),
    "fastapi": ("annotate",),
    "genai_prices": ("prices",),
    "httpx2": ("chat",),  # comes with openai
    "inspect_ai": ("inspect",),
    "jsonschema_rs": ("chat", "inspect"),
    "markdown_it": ("annotate",),
    "matplotlib": ("figures",),
    "openai": ("chat",),
    "peft": ("train",),
    "psycopg": ("postgres",),
    "pyarrow": ("parquet",),
    "ray": ("ray",),
    "safetensors": ("train",),  # comes with transformers
    "sqlalchemy": ("chat", "annotate"),
    "starlette": ("annotate",),  # comes with fastapi
    "torch": ("train",),
    "transformers": ("train",),
    "uvicorn": ("annotate",),
    "xllamacpp": ("local",),
    "yaml": ("chat", "train"),
}

# They come with Python, but not on Windows.
_POSIX = frozenset({"fcntl", "grp", "pwd", "resource", "termios"})


def install_line(error: ImportError) -> str | None:
    """Return a sentence with the command that installs what is missing; None where the error is a bug.

    Where several extras bring a module, it is the one whose package tried to import it.
    """
    module = (error.name or "").partition(".")[0]
    if module in _POSIX:
        return f"this command needs {module} of the system. Run it on Linux or macOS; on Windows, use WSL."
    extras = _EXTRAS.get(module)
    # A module that is there and lacks a name is a wrong version or a bug, and stays a traceback.
    if extras is None or not isinstance(error, ModuleNotFoundError):
        return None
    files = [frame.filename.replace("\\", "/") for frame in traceback.extract_tb(error.__traceback__)]
    ours = [file.rpartition("/eclose/")[2].removesuffix(".py").split("/") for file in files if "/eclose/" in file]
    asking = [extra for extra in extras if any(extra in parts for parts in ours)]
    return f"this command needs {module}, which is not installed. Run: pip install 'eclose[{[*asking, *extras][0]}]'"
