"""Tables whose rows one test goes through, and tells all that are wrong: a case a row costs more than most rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def each_row(rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Call a test with every row, as ``pytest.mark.parametrize`` does, in one case. It may have no fixtures."""

    table = list(rows)

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def run() -> None:
            wrong = []
            for row in table:
                try:
                    test(*row) if isinstance(row, tuple) else test(row)
                except Exception as error:  # the other rows are of interest as well
                    wrong.append(f"{row!r}: {type(error).__name__}: {error}")
            assert table
            assert not wrong, f"{len(wrong)} of {len(table)} rows:\n" + "\n\n".join(wrong)

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate
