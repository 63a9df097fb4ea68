"""A user's own function that converts the records of a benchmark, as ``--converter`` names it.

The function takes a record as a dict and returns an ``Instance``, a dict in the native layout, or a text: the reason
why the record is left out. It runs with the rights of the user.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from eclose.core.instance import Instance
from eclose.errors import RecordError, SettingError

# A script without a main guard may call sys.exit, which would end the command without a word.
_FAILURES = (Exception, SystemExit)


@dataclass(frozen=True, slots=True)
class ConverterFunction:
    """A function that converts a record, with the hash of its source file."""

    name: str
    """``FILE.py:FUNCTION`` without the folder, or ``MODULE:FUNCTION``."""
    source_hash: str
    function: Callable[[dict[str, Any]], object]

    @property
    def identity(self) -> dict[str, str]:
        """Name and hash, as manifests record them: a changed source file is other work."""
        return {"name": self.name, "sha256": self.source_hash}

    def convert(self, record: dict[str, Any]) -> dict[str, Any] | str:
        """Return the instance as a dict in the native layout, or the reason why the record is left out.

        Raises:
            RecordError: The function fails on the record, or returns a value of another type.
        """
        try:
            value = self.function(record)
            # As a dict its types are checked like those of a file.
            value = asdict(value) if isinstance(value, Instance) else value
        except _FAILURES as error:
            raise RecordError(f"{self.name}: {_describe(error)}") from error
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())
        if not isinstance(value, dict):
            returned = "an empty text" if isinstance(value, str) else f"a value of type {type(value).__name__}"
            raise RecordError(
                f"{self.name}: returned {returned}. Return an Instance, a dict in the native layout, or the reason why "
                "the record is left out as a text"
            )
        return value


def load_converter_function(converter: str) -> ConverterFunction:
    """Import the function that ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION`` names.

    A file is run from its present content. Modules beside the file, or in the working folder, can be imported.

    Raises:
        SettingError: The file, the module or the function is missing, or importing it fails.
    """
    source, _, function_name = converter.rpartition(":")
    if not source or not function_name.isidentifier():
        raise SettingError(
            f"--converter {converter}: is no FILE.py:FUNCTION or MODULE:FUNCTION. Write --converter museum.py:convert."
        )
    try:
        module = _run_file(Path(source).resolve()) if source.endswith(".py") else _import_module(source)
    except SettingError as error:
        raise SettingError(f"--converter {converter}: {error}") from error
    except _FAILURES as error:
        raise SettingError(f"--converter {converter}: importing it fails with {_describe(error)}.") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        names = [name for name, value in vars(module).items() if isinstance(value, FunctionType)]
        listed = ", ".join(names[:10]) or "none"
        raise SettingError(
            f"--converter {converter}: {source} has no function {function_name!r}. Functions there: {listed}."
        )
    name = f"{Path(source).name if source.endswith('.py') else source}:{function_name}"
    return ConverterFunction(name, _hash_source(converter, function, module), function)


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise SettingError(f"there is no file {path}. Check the path.")
    return _run_source(path, path.read_bytes())


@cache
def _run_source(path: Path, source: bytes) -> ModuleType:
    """Run a file as a module of its own, once for each content."""
    # Not by an import, which would take compiled code of an earlier content where time and size are the same.
    digest = hashlib.sha256(bytes(path) + source).hexdigest()[:16]
    module = ModuleType(f"eclose_converter_{digest}")
    module.__file__ = str(path)
    _add_import_folder(path.parent)
    # Dataclasses of the file look up the module of their annotations.
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, path, "exec"), vars(module))
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _import_module(name: str) -> ModuleType:
    _add_import_folder(Path.cwd())
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # Another name is an import of the module's own.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise SettingError(f"there is no module {error.name!r}. Write a file as FILE.py:FUNCTION.") from error
        raise


def _add_import_folder(folder: Path) -> None:
    # At the end: no file there may take the place of an installed package.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _hash_source(converter: str, function: Callable[..., object], module: ModuleType) -> str:
    """Return the hash of the file that defines the function."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        # A partial or an object with __call__ has no source of its own.
        file = getattr(module, "__file__", None)
    if file is None or not Path(file).is_file():
        raise SettingError(
            f"--converter {converter}: the source of the function is not a file. Write it into a FILE.py."
        )
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _describe(error: BaseException) -> str:
    """Return type and message of an exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
