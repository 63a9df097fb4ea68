"""Public names of a package that are loaded when they are first used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def make_lazy_names(
    package: str, homes: Mapping[str, Iterable[str]], *, elsewhere: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Name of the package.
        homes: Public names by the module that defines them; the version comes beside them.
        elsewhere: Names that other packages have, with the sentence that the error adds.
    """
    home_of = {name: module for module, names in homes.items() for name in names}
    namespace = vars(sys.modules[package])

    def load(name: str) -> object:
        if name == "__version__":
            value: object = _read_version(package)
        elif name in home_of:
            value = getattr(import_module(home_of[name]), name)
        else:
            where = f"; {elsewhere[name]}" if elsewhere and name in elsewhere else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{where}")
        # From now on the name is an ordinary attribute, and this function is not called for it again.
        namespace[name] = value
        return value

    def list_names() -> list[str]:
        own = [name for name in namespace if name.startswith("__") and name.endswith("__")]
        return sorted({*own, "__version__", *home_of})

    return load, list_names


def _read_version(package: str) -> str:
    # Reading metadata takes longer than importing a package.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version(package.replace("_", "-"))
    except PackageNotFoundError:  # a source tree on the path, not installed
        return "0+unknown"
