"""A reader of LaTeX tables, strict enough to find what TeX would stop at; there is no TeX where tests run."""

from __future__ import annotations

import re

_SPAN = re.compile(r"\\multicolumn\{(\d+)\}\{[lcr]\}")
_ENVIRONMENT = re.compile(r"\\(begin|end)\{([^}]+)\}")


def find_latex_problems(text: str) -> list[str]:
    """Problems of braces, environments and columns; empty for text that TeX can set."""
    # An escaped percent sign is text, any other starts a comment.
    lines = [re.sub(r"(?<!\\)%.*", "", line) for line in text.splitlines()]
    return [*_brace_problems("\n".join(lines)), *_environment_problems("\n".join(lines)), *_column_problems(lines)]


def _brace_problems(text: str) -> list[str]:
    depth = 0
    for match in re.finditer(r"\\.|[{}]", text):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth < 0:
            return [f"a brace closes nothing, before {text[match.end() : match.end() + 40]!r}"]
    return [f"{depth} braces stay open"] if depth else []


def _environment_problems(text: str) -> list[str]:
    stack: list[str] = []
    for kind, name in _ENVIRONMENT.findall(text):
        if kind == "begin":
            stack.append(name)
        elif not stack or stack.pop() != name:
            return [f"\\end{{{name}}} does not fit"]
    return [f"\\begin{{{name}}} stays open" for name in stack]


def _column_problems(lines: list[str]) -> list[str]:
    problems, columns = [], 0
    for line in lines:
        if match := re.search(r"\\begin\{tabular\}\{([^}]*)\}", line):
            columns = len(re.sub(r"[^lcr]", "", match[1]))
        elif r"\end{tabular}" in line:
            columns = 0
        elif columns and (row := line.strip()).endswith(r"\\"):
            spans = [int(width) for width in _SPAN.findall(row)]
            cells = len(re.findall(r"(?<!\\)&", row)) + 1 + sum(spans) - len(spans)
            if cells != columns:
                problems.append(f"{cells} cells in {columns} columns: {row:.60}")
        elif re.search(r"(?<!\\)&", line):
            problems.append(f"cells outside of a table or without an end: {line:.60}")
    return problems
