"""The install command for a missing optional dependency, from its import error."""

from __future__ import annotations

import traceback

# The extras of pyproject.toml that bring a module, by the name it is imported under.
_EXTRAS: dict[str, tuple[str, ...]] = {
    "accelerate": ("train",),
    "aiohttp": ("chat", "world"),
    "argon2": ("annotate",),
    "certifi": ("chat",),
    "fastapi": ("annotate",),
    "genai_prices": ("prices",),
    "h11": ("annotate",),  # comes with uvicorn
    "huggingface_hub": ("train",),  # comes with transformers
    "inspect_ai": ("inspect",),
    "jsonschema_rs": ("chat", "inspect"),
    "limits": ("annotate",),
    "markdown_it": ("annotate",),
    "multidict": ("chat", "world"),  # comes with aiohttp
    "matplotlib": ("figures",),
    "peft": ("train",),
    "psycopg": ("postgres",),
    "pyarrow": ("parquet",),
    "ray": ("ray",),
    "safetensors": ("train",),  # comes with transformers
    "snakemake": ("experiment",),
    "sqlalchemy": ("chat", "annotate", "ray", "world"),
    "starlette": ("annotate",),  # comes with fastapi
    "torch": ("train",),
    "transformers": ("train",),
    "uvicorn": ("annotate",),
    "yarl": ("chat", "world"),  # comes with aiohttp
}

# Packages whose extra has another name.
_PACKAGE_EXTRAS = {"annotation": "annotate", "training": "train"}

# These come with Python, except on Windows.
_POSIX = frozenset({"fcntl", "grp", "pwd", "resource", "termios"})


def describe_missing_extra(error: ImportError) -> str | None:
    """Return a sentence with the command that installs the missing module; None where the error is a bug.

    Where several extras bring the module, the sentence names the one whose package tried to import it.
    """
    module = (error.name or "").partition(".")[0]
    if module in _POSIX:
        return f"this command needs {module} of the system. Run it on Linux or macOS; on Windows, use WSL."
    extras = _EXTRAS.get(module)
    # An installed module without the imported name is a wrong version or a bug, and stays a traceback.
    if extras is None or not isinstance(error, ModuleNotFoundError):
        return None
    files = [frame.filename.replace("\\", "/") for frame in traceback.extract_tb(error.__traceback__)]
    modules = [file.rpartition("/eclose/")[2].removesuffix(".py").split("/") for file in files if "/eclose/" in file]
    packages = {_PACKAGE_EXTRAS.get(part, part) for parts in modules for part in parts}
    importing = [extra for extra in extras if extra in packages]
    return f"this command needs {module}, which is not installed. Run: pip install 'eclose[{[*importing, *extras][0]}]'"
