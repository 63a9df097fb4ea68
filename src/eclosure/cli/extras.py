"""Turns the import error of an optional dependency into the line that installs it."""

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


def install_line(error: ImportError) -> str | None:
    """Return a sentence with the command that installs what is missing; None where no extra brings it.

    Where several extras bring a module, it is the one whose package tried to import it.
    """
    module = (error.name or "").partition(".")[0]
    extras = _EXTRAS.get(module)
    # A module that is there and lacks a name is a wrong version or a bug, and stays a traceback.
    if extras is None or not isinstance(error, ModuleNotFoundError):
        return None
    files = [frame.filename.replace("\\", "/") for frame in traceback.extract_tb(error.__traceback__)]
    ours = [file.rpartition("/eclosure/")[2].removesuffix(".py").split("/") for file in files if "/eclosure/" in file]
    asking = [extra for extra in extras if any(extra in parts for parts in ours)]
    return f"this command needs {module}, which is not installed. Run: pip install 'eclosure[{[*asking, *extras][0]}]'"
