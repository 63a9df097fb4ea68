"""The install command for a missing dependency, from its import error."""

from __future__ import annotations

import traceback

# The extra that brings a module, by the name it is imported under.
_EXTRAS = {
    "accelerate": "train",
    "argon2": "annotate",
    "fastapi": "annotate",
    "genai_prices": "prices",
    "h11": "annotate",  # comes with uvicorn
    "huggingface_hub": "local",  # comes with transformers
    "inspect_ai": "inspect",
    "limits": "annotate",
    "markdown_it": "annotate",
    "matplotlib": "figures",
    "peft": "local",
    "psycopg": "postgres",
    "pyarrow": "parquet",
    "ray": "ray",
    "safetensors": "local",  # comes with transformers
    "snakemake": "experiment",
    "starlette": "annotate",  # comes with fastapi
    "torch": "local",
    "transformers": "local",
    "uvicorn": "annotate",
}

# What every installation has, by the name it is imported under.
_BASE = frozenset(
    {
        "aiohttp",
        "certifi",
        "jinja2",
        "jsonschema_rs",
        "markupsafe",  # comes with jinja2
        "multidict",  # comes with aiohttp
        "numpy",
        "pydantic",
        "pydantic_core",
        "rich",
        "sqlalchemy",
        "typer",
        "yaml",
        "yarl",  # comes with aiohttp
    }
)

# These come with Python, except on Windows.
_POSIX = frozenset({"fcntl", "grp", "pwd", "resource", "termios"})


def describe_missing_extra(error: ImportError) -> str | None:
    """Return a sentence with the command that installs the missing module; None where the error is a bug.

    What local weights need comes with training as well: the sentence names ``train`` where eclose-train imports it.
    """
    module = (error.name or "").partition(".")[0]
    if module in _POSIX:
        return f"this command needs {module} of the system. Run it on Linux or macOS; on Windows, use WSL."
    # An installed module without the imported name is a wrong version or a bug, and stays a traceback.
    if not isinstance(error, ModuleNotFoundError):
        return None
    if module in _BASE:
        return f"the installation of eclose is incomplete: {module} is missing. Run: pip install eclose"
    extra = _EXTRAS.get(module)
    if extra is None:
        return None
    importing = {frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)}
    if extra == "local" and any(name.startswith("eclose_train") for name in importing):
        extra = "train"
    return f"this command needs {module}, which is not installed. Run: pip install 'eclose[{extra}]'"
