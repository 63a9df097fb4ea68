"""Measure how each house is written: names, docstrings, comments, sizes and cycles.

    python scripts/house.py                       every figure of every house, with its limit
    python scripts/house.py --check               exit with 1 where a limit is broken
    python scripts/house.py --list                what stands against each limit, by file
    python scripts/house.py --only eclose/cli     the figures of one room

A limit is a goal that was reached, or where a house stands: figures may fall and not grow. ``scripts/house.toml`` has
the limits of sizes by house. Figures are taken from syntax trees; nothing is imported.
"""

from __future__ import annotations

import argparse
import ast
import io
import math
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT = Path(__file__).parents[1]
LIMITS = ROOT / "scripts" / "house.toml"
HOUSES = {path.name: path / "src" / path.name.replace("-", "_") for path in sorted(ROOT.glob("packages/*"))}

VAGUE_NAMES = frozenset(
    "one found told said asked made place kept given wanted shown done left taken known held got seen meant".split()
)
"""Bindings that name no thing of the domain."""
VAGUE_CLASSES = frozenset(
    "Said Asked Told Made Found Given Kept Shown Named Written Around Against Done Finished Watch Held Taken".split()
)
"""Participles and prepositions that were once classes; a type is named by a noun."""
VERBS = frozenset(
    """
    accept acquire add adjudicate admit advance aggregate align allocate allow answer append apply arrange ask assemble
    assert assign attach attempt authenticate average await balance begin bind block bootstrap bound break build bump
    cache calculate call cancel cap carry catch change charge check choose claim clamp clean clear close collect combine
    commit compare complete compose compress compute concatenate configure confirm connect consume construct continue
    convert copy correct count create cross cut decide decode decompress decorate deduct define delete deliver derive
    describe detect determine diagnose diff disable discard display divide download draw drop dump edit embed emit
    enable encode end enforce ensure enter enumerate erase escape establish estimate evaluate examine exchange exclude
    execute exit expand expect explain export expose extend extract fail fetch fill filter find finish fit flag flatten
    flush follow forbid forecast forget format forward gather generate get give go grade grant group guard handle hash
    hide hold identify ignore import include increment index infer inherit initialise insert inspect install interpolate
    intersect invite issue iterate join judge keep label launch lay lease leave let lift limit link list load locate
    lock log look lower make map mark mask match measure merge migrate mix move name narrow negate normalise note notify
    number obtain offer omit open order override pack pad pair parse partition pass patch pause perform permute pick
    place plan plot pool pop post predict prefix prepare present preserve prevent price print probe proceed process
    produce project prove provide prune publish pull push put quantise query queue quote raise randomise rank rate read
    rebuild recall receive recognise recompute reconstruct record recover redact redirect reduce refer refuse register
    reject release reload remember remove rename render renew reopen repair repeat replace replay reply report request
    require rerun resample reserve reset resolve respond restore restrict resume retry return reuse reverse revoke
    reword rewrite rotate round run sample save say scale scan schedule score scrub search seed select send separate
    serialise serve set settle shard share shift shorten show shuffle sign simulate skip sleep slice solve sort spawn
    split spread stamp start state stop store stream strip submit substitute subtract sum summarise supply suspend swap
    switch take tally tell terminate test tie time tokenise total trace track train transform translate traverse
    treat trim truncate try turn undo unpack update upload use validate verify view visit wait wake walk warn weigh
    withdraw withhold wrap write yield zip
    """.split()
)


@dataclass(frozen=True)
class Goal:
    """The limits of a figure."""

    most: float = float("inf")
    least: float = float("-inf")

    def reached(self, value: float) -> bool:
        """Return whether the value lies within the goal."""
        return self.least <= value <= self.most


@dataclass
class Figure:
    """A measured value with the places that stand against its goal."""

    value: float
    places: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """The dotted name."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts[3:]  # below packages/NAME/src
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def place(self, line: int, what: str) -> str:
        """Return ``path:line what``, as editors read it."""
        return f"{self.path.relative_to(ROOT)}:{line} {what}"


def read_modules(folder: Path) -> list[Module]:
    """Parse every source file below ``folder``."""
    texts = {path: path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))}
    return [Module(path, text, ast.parse(text)) for path, text in texts.items()]


def bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield every name that is bound: variables, parameters, loop and comprehension targets."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def decorators(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the last name of each decorator."""
    names = set()
    for node in function.decorator_list:
        target = node.func if isinstance(node, ast.Call) else node
        names.add(target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", ""))
    return names


def vague_bindings(modules: list[Module]) -> Figure:
    """Count vague bindings per 1,000 lines."""
    lines = sum(len(module.text.splitlines()) for module in modules)
    places = [
        module.place(line, name)
        for module in modules
        for name, line in bindings(module.tree)
        if name.lstrip("_") in VAGUE_NAMES
    ]
    return Figure(1000 * len(places) / max(lines, 1), places)


def vague_classes(modules: list[Module]) -> Figure:
    """Count class names that are vague, or public and defined in several modules."""
    defined: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(module.place(node.lineno, node.name))
    places = [
        place
        for name, where in defined.items()
        if name.lstrip("_") in VAGUE_CLASSES or (len(where) > 1 and not name.startswith("_"))
        for place in where
    ]
    return Figure(len(places), places)


def verb_docstrings(modules: list[Module]) -> Figure:
    """Return the share of function docstrings that open with a verb, in percent; properties name their value."""
    total, places = 0, []
    for module in modules:
        for function in functions(module.tree):
            text = ast.get_docstring(function)
            if not text or decorators(function) & {"property", "cached_property", "fixture"}:
                continue
            total += 1
            first = text.split()[0].strip(".,:;`*").lower()
            if first not in VERBS:
                places.append(module.place(function.lineno, text.splitlines()[0][:100]))
    return Figure(100 * (1 - len(places) / max(total, 1)), places)


def comments(modules: list[Module]) -> Figure:
    """Count comment lines per 100 lines of code."""
    count = code = 0
    for module in modules:
        marked: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
            if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:", "# fmt:")):
                count += 1
            elif token.type not in {
                tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
                tokenize.ENDMARKER, tokenize.STRING,
            }:  # fmt: skip
                marked.update(range(token.start[0], token.end[0] + 1))
        code += len(marked)
    return Figure(100 * count / max(code, 1))


def folder_sizes(modules: list[Module]) -> Figure:
    """Return the largest number of files in one folder."""
    sizes = Counter(module.path.parent for module in modules)
    places = [f"{folder.relative_to(ROOT)}: {size} files" for folder, size in sizes.most_common() if size > 20]
    return Figure(max(sizes.values()), places)


def import_headers(modules: list[Module]) -> Figure:
    """Return the share of lines that import at the top of a module, in percent."""
    lines = headers = 0
    for module in modules:
        lines += len(module.text.splitlines())
        for node in module.tree.body:
            guarded = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
            if guarded or isinstance(node, ast.Import | ast.ImportFrom):
                headers += (node.end_lineno or node.lineno) - node.lineno + 1
    return Figure(100 * headers / max(lines, 1))


_DECLARES_OPTIONS = ("api", "cli", "testing")
"""Rooms and modules of commands and verbs; ``training.api`` is one of them."""


def long_functions(modules: list[Module]) -> Figure:
    """Count functions of more than 60 lines; not the signature and docstring of commands and verbs.

    These declare and document up to thirty options each.
    """
    places = []
    for module in modules:
        for function in functions(module.tree):
            first = function.lineno
            if set(_DECLARES_OPTIONS) & set(module.name.split(".")) and function.body:
                documented = ast.get_docstring(function) is not None and len(function.body) > 1
                first = function.body[1 if documented else 0].lineno
            length = (function.end_lineno or first) - first + 1
            if length > 60:
                places.append(module.place(function.lineno, f"{function.name}: {length} lines"))
    return Figure(len(places), places)


def context_variables(modules: list[Module]) -> Figure:
    """Count context variables."""
    places = [
        module.place(node.lineno, "ContextVar")
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "ContextVar"
    ]
    return Figure(len(places), places)


def import_graph(modules: list[Module]) -> dict[str, set[str]]:
    """Return which modules import which, type-only and local imports included."""
    known = {module.name for module in modules}
    graph: dict[str, set[str]] = {}
    for module in modules:
        targets = set()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    targets.add(full if full in known else node.module)
            elif isinstance(node, ast.Import):
                targets.update(alias.name for alias in node.names)
        graph[module.name] = {name for name in targets & known if name != module.name and "." in name}
    return graph


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component: list[str] = []
            while not component or component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                components.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return components


def sibling_cycles(modules: list[Module]) -> Figure:
    """Count cycles between modules, and between the members of every package."""
    graph = import_graph(modules)
    places = [f"modules: {' <-> '.join(cycle)}" for cycle in cycles(graph)]
    packages = {name.rpartition(".")[0] for name in graph}
    for package in sorted(packages):
        members: defaultdict[str, set[str]] = defaultdict(set)
        for source, targets in graph.items():
            for target in targets:
                if source.startswith(f"{package}.") and target.startswith(f"{package}."):
                    mine, other = (name[len(package) + 1 :].split(".")[0] for name in (source, target))
                    if mine != other:
                        members[mine].add(other)
        places += [f"{package}: {' <-> '.join(cycle)}" for cycle in cycles(members)]
    return Figure(len(places), places)


def lines(modules: list[Module]) -> Figure:
    """Count source lines."""
    return Figure(sum(len(module.text.splitlines()) for module in modules))


def files(modules: list[Module]) -> Figure:
    """Count source files."""
    return Figure(len(modules))


def classes_per_1000(modules: list[Module]) -> Figure:
    """Count classes per 1,000 lines."""
    count = sum(isinstance(node, ast.ClassDef) for module in modules for node in ast.walk(module.tree))
    return Figure(1000 * count / max(lines(modules).value, 1))


def functions_per_1000(modules: list[Module]) -> Figure:
    """Count functions and methods per 1,000 lines."""
    count = sum(1 for module in modules for _ in functions(module.tree))
    return Figure(1000 * count / max(lines(modules).value, 1))


def positional_records(modules: list[Module]) -> Figure:
    """Count records that are built with six or more positional fields."""
    places = [
        module.place(node.lineno, f"{node.func.id}: {len(node.args)} fields")
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id.lstrip("_")[:1].isupper()
        and len(node.args) >= 6
        and not any(isinstance(argument, ast.Starred) for argument in node.args)
    ]
    return Figure(len(places), places)


FIGURES: dict[str, tuple[Callable[[list[Module]], Figure], Goal]] = {
    "vague or repeated class names": (vague_classes, Goal(most=0)),
    "function docstrings that open with a verb, %": (verb_docstrings, Goal(least=90)),
    "comments per 100 code lines": (comments, Goal(most=8, least=2.5)),
    "files in the largest folder": (folder_sizes, Goal(most=20)),
    "functions over 60 lines": (long_functions, Goal(most=0)),
    "import cycles, type-only ones included": (sibling_cycles, Goal(most=0)),
}
"""Figures with one limit for all houses."""
RATCHETS: dict[str, Callable[[list[Module]], Figure]] = {
    "source lines": lines,
    "source files": files,
    "classes per 1,000 lines": classes_per_1000,
    "functions per 1,000 lines": functions_per_1000,
    "import headers, % of lines": import_headers,
    "records built by six fields or more by position": positional_records,
    "context variables": context_variables,
    "vague bindings per 1,000 lines": vague_bindings,
}
"""Figures with a limit for each house, in ``house.toml``; they may fall and not grow."""


def main() -> int:
    """Print the figures; return 1 where ``--check`` finds a limit broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a limit is broken")
    parser.add_argument("--list", action="store_true", help="list what stands against each limit")
    parser.add_argument("--only", default="", help="one house or room, such as eclose-world or eclose/cli")
    parser.add_argument("--lower", action="store_true", help="lower the limits of house.toml to where the houses stand")
    options = parser.parse_args()
    name, _, room = options.only.partition("/")
    if options.only and not (name in HOUSES and (HOUSES[name] / room).exists()):
        sys.exit(f"{options.only}: no room of a house. Name one, such as eclose-world or eclose/cli.")
    limits = tomllib.loads(LIMITS.read_text("utf-8"))
    broken = False
    for house, folder in HOUSES.items():
        if options.only and house != name:
            continue
        print(f"== {house}{'/' + room if room else ''}")
        modules = read_modules(folder / room)
        for title, (measure, goal) in FIGURES.items():
            broken |= print_figure(title, measure(modules), goal, listed=options.list)
        for title, measure in RATCHETS.items():
            figure = measure(modules)
            broken |= print_figure(title, figure, Goal(most=limits[house][title]), listed=options.list)
            if not room:
                limits[house][title] = min(limits[house][title], math.ceil(10 * figure.value) / 10)
    if options.lower:
        LIMITS.write_text(
            "# How large each house may be: `python scripts/house.py --lower` after a deletion. No limit is raised.\n"
            + "".join(
                f"\n[{house}]\n" + "".join(f'"{title}" = {value:g}\n' for title, value in figures.items())
                for house, figures in limits.items()
            ),
            "utf-8",
        )
    return int(broken and options.check)


def print_figure(title: str, figure: Figure, goal: Goal, *, listed: bool) -> bool:
    """Print a figure with its limit, and where ``listed`` what stands against it; return whether it is broken."""
    bounds = " and ".join(
        text
        for text, present in (
            (f">= {goal.least:,.4g}", goal.least > float("-inf")),
            (f"<= {goal.most:,g}", goal.most < float("inf")),
        )
        if present
    )
    reached = goal.reached(figure.value)
    print(f"{title:<48}{figure.value:>10,.1f}   limit {bounds:<16}{'' if reached else 'broken'}")
    if listed and not reached:
        print(*(f"    {place}" for place in figure.places), sep="\n")
    return not reached


if __name__ == "__main__":
    sys.exit(main())
