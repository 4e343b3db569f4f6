"""Measure the structure of the three packages, and print it as a Markdown table.

Migrations are left out everywhere. Numbers of tokens are those of Python 3.11, where an f-string is one token.
"""

import argparse
import ast
import io
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tokenize import COMMENT, DEDENT, ENCODING, ENDMARKER, INDENT, NEWLINE, NL, STRING, generate_tokens

PACKAGES = ("leaderboard", "submissions", "evaluation")
SKIPPED_FOLDERS = {"migrations", "__pycache__"}
SKIPPED_TOKENS = {COMMENT, NL, NEWLINE, INDENT, DEDENT, ENCODING, ENDMARKER}
FUNCTION_LIMITS = (40, 60)  # lines
TEMPLATE_LIMIT = 120  # characters in a line
MAX_PARAMETERS = 5
SETTINGS = Path("leaderboard", "settings")
#: How settings, other Python code, and Compose files read an environment variable of ours.
VARIABLE = re.compile(r'\benv\.\w+\(\s*"([A-Z][A-Z0-9_]+)"|environ\S*"(RUNBOARD_[A-Z0-9_]+)"|\$\{([A-Z][A-Z0-9_]+)')
BOUNDS = ("tool", "runboard", "bounds")  # the table of pyproject.toml that `make lint` checks

Graph = dict[str, set[str]]
Edges = dict[tuple[str, str], list[str]]
Row = tuple[str, list[str]]
Statement = ast.Import | ast.ImportFrom
Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, order=True)
class Import:
    """A statement by which the module ``source`` imports the module ``target``."""

    path: Path
    line: int
    source: str
    target: str


@dataclass(frozen=True)
class Function:
    """A function, from its first decorator, or from its ``def`` without one, to its end."""

    name: str
    path: Path
    first: int
    last: int
    parameters: int

    @property
    def length(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.length} lines: {self.name} {self.path}:{self.first}-{self.last}"


def python_files(root: Path, package: str) -> list[Path]:
    """Return the Python files of a package at any depth, in order."""
    folder = root / package
    return sorted(p for p in folder.rglob("*.py") if not SKIPPED_FOLDERS & set(p.relative_to(folder).parts))


def modules(root: Path, package: str) -> dict[str, Path]:
    """Return the file of each module by its dotted name. An ``__init__`` has its package's name."""
    found: dict[str, Path] = {}
    for path in python_files(root, package):
        parts = path.relative_to(root).with_suffix("").parts
        found.setdefault(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path)
    return found


def import_statements(root: Path, packages: Iterable[str] = PACKAGES) -> list[Import]:
    """Return the imports between the packages' modules, inside functions and for types only too."""
    known = {name: path for package in packages for name, path in modules(root, package).items()}
    found = set()
    for module, path in known.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, Statement):
                for target in _targets(node, module, path, known):
                    found.add(Import(path.relative_to(root), node.lineno, module, target))
    return sorted(each for each in found if each.source != each.target)


def _targets(node: Statement, module: str, path: Path, known: Container[str]) -> Iterator[str]:
    """Yield ``base.name`` for ``from base import name`` if that is a module, else ``base``."""
    names = [alias.name for alias in node.names]
    base = ""
    if isinstance(node, ast.ImportFrom):
        base = _base(node, module, path.name == "__init__.py")
        names = [f"{base}.{name}" for name in names]
    for name in names:
        if name in known:
            yield name
        elif base in known:
            yield base


def _base(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """Return the absolute name of the module between ``from`` and ``import``."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    kept = parts[: max(0, len(parts) - node.level + is_package)]
    return ".".join([*kept, node.module] if node.module else kept)


def imports(root: Path, packages: Iterable[str] = PACKAGES) -> Graph:
    """Return the modules that each module imports, without parent packages."""
    packages = list(packages)
    graph: Graph = {name: set() for package in packages for name in modules(root, package)}
    for statement in import_statements(root, packages):
        graph[statement.source].add(statement.target)
    return graph


def place(module: str, package: str) -> str:
    """Return the package's direct child that contains a module, empty if there is none."""
    inside = module.removeprefix(f"{package}.")
    return "" if inside == module else f"{package}.{inside.split('.')[0]}"


def places(graph: Graph, package: str) -> Graph:
    """Return the places that each place of a package at any depth imports."""
    found: Graph = {}
    for module, targets in graph.items():
        if source := place(module, package):
            others = {place(target, package) for target in targets} - {"", source}
            found.setdefault(source, set()).update(others)
    return found


def packages_below(graph: Graph, package: str) -> list[str]:
    """Return the names of the packages inside a package at any depth, without itself."""
    parents = {".".join(name.split(".")[:depth]) for name in graph for depth in range(2, name.count(".") + 1)}
    return sorted(parent for parent in parents if parent.startswith(f"{package}."))


def components(graph: Graph) -> list[set[str]]:
    """Return the strongly connected components of more than one node, the largest first."""
    backwards: Graph = defaultdict(set)
    for node, targets in graph.items():
        for target in targets:
            backwards[target].add(node)
    seen: set[str] = set()
    left = [node for start in sorted(graph) for node in _reached(graph, start, seen)]
    seen = set()
    found = [set(_reached(backwards, start, seen)) for start in reversed(left)]
    return sorted((each for each in found if len(each) > 1), key=lambda each: (-len(each), sorted(each)))


def _reached(graph: Graph, start: str, seen: set[str]) -> Iterator[str]:
    """Yield the unseen nodes that can be reached, in the order in which a search leaves them."""
    if start in seen:
        return
    seen.add(start)
    path = [(start, iter(graph.get(start, ())))]
    while path:
        node, targets = path[-1]
        target = next((each for each in targets if each not in seen), None)
        if target is None:
            path.pop()
            yield node
        else:
            seen.add(target)
            path.append((target, iter(graph.get(target, ()))))


def edges(statements: Iterable[Import], package: str = "") -> Edges:
    """Return the import lines between each pair of a package's places, or of modules without a package."""
    found: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for each in statements:
        source, target = each.source, each.target
        if package:
            source, target = place(source, package), place(target, package)
        if source and target and source != target:
            found[source, target][f"{each.path}:{each.line}"] = None
    return {pair: list(lines) for pair, lines in found.items()}


def sizes(root: Path, package: str) -> dict[str, int]:
    """Return the sum of each size over the files of a package, by its name."""
    files = python_files(root, package)
    inside = [path.relative_to(root / package).parts for path in files]
    loose = {parts[0] for parts in inside if len(parts) == 1} - {"__init__.py", "__main__.py"}
    texts = [path.read_text(encoding="utf-8") for path in files]
    return {
        "statements": sum(isinstance(n, ast.stmt) for text in texts for n in ast.walk(ast.parse(text))),
        "tokens without docstrings and comments": sum(count_tokens(text) for text in texts),
        "code lines": sum(count_code_lines(text) for text in texts),
        "physical lines": sum(text.count("\n") + (text[-1:] not in ("", "\n")) for text in texts),
        "files": len(files),
        "loose modules in the root": len(loose),
        "sub-packages": len({parts[0] for parts in inside if len(parts) > 1}),
    }


def count_tokens(text: str) -> int:
    """Return the number of tokens of a file without comments, docstrings, line ends, and indentation."""
    docstrings = list(_docstrings(ast.parse(text)))
    return sum(
        token.type not in SKIPPED_TOKENS
        and not (token.type == STRING and any(first <= token.start < last for first, last in docstrings))
        for token in generate_tokens(io.StringIO(text).readline)
    )


def count_code_lines(text: str) -> int:
    """Return the number of lines of a file with code, without blank lines, comments, and docstrings."""
    lines: set[int] = set()
    for token in generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED_TOKENS:
            lines.update(range(token.start[0], token.end[0] + 1))
    for (first, _), (last, _) in _docstrings(ast.parse(text)):
        lines.difference_update(range(first, last + 1))
    return len(lines)


def _docstrings(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Definition) and ast.get_docstring(node) is not None:
            text = node.body[0]
            yield (text.lineno, text.col_offset), (text.end_lineno or 0, text.end_col_offset or 0)


def functions(root: Path, package: str) -> list[Function]:
    """Return the functions and methods of a package, nested ones too."""
    return [
        function
        for path in python_files(root, package)
        for function in _functions(ast.parse(path.read_text(encoding="utf-8")), path.relative_to(root), "")
    ]


def _functions(node: ast.AST, path: Path, prefix: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        inner = f"{prefix}{child.name}." if isinstance(child, ast.ClassDef | Definition) else prefix
        if isinstance(child, Definition):
            first = min(each.lineno for each in [child, *child.decorator_list])
            parameters = [*child.args.posonlyargs, *child.args.args, *child.args.kwonlyargs]
            count = sum(each.arg not in ("self", "cls") for each in parameters)
            yield Function(inner[:-1], path, first, child.end_lineno or first, count)
        yield from _functions(child, path, inner)


def share_called_once(root: Path) -> float:
    """Return the share of module-level functions that are private and named once in their module."""
    functions = single = 0
    for package in PACKAGES:
        for path in python_files(root, package):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            uses = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
            names = [node.name for node in tree.body if isinstance(node, Definition)]
            functions += len(names)
            single += sum(name.startswith("_") and uses[name] == 1 for name in names)
    return single / functions


def setting_names(root: Path) -> set[str]:
    """Return the names of the settings that the site assigns, its own and those of Django and its applications."""
    statements = (
        node
        for path in (root / SETTINGS).glob("*.py")
        for statement in ast.parse(path.read_text(encoding="utf-8")).body
        if not isinstance(statement, Definition)
        for node in ast.walk(statement)
    )
    names = {node.id for node in statements if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return {name for name in names if name.isupper() and not name.startswith("_")}


def environment_variables(root: Path) -> set[str]:
    """Return the environment variables that the packages, the client, and the containers read."""
    paths = [path for package in PACKAGES for path in python_files(root, package)]
    paths += [*(root / "client" / "runboard").glob("*.py"), *(root / "docker").glob("*.py")]
    paths += (root / "docker").glob("*.yaml")
    matches = (VARIABLE.findall(path.read_text(encoding="utf-8")) for path in paths)
    return {name for match in chain.from_iterable(matches) for name in match if name}


def bounded(root: Path) -> dict[str, float]:
    """Return the figures that have a bound in pyproject.toml, by its key."""
    every = [function for package in PACKAGES for function in functions(root, package)]
    graph = imports(root)
    figures: dict[str, float] = {f"{package}-code-lines": sizes(root, package)["code lines"] for package in PACKAGES}
    return {
        **figures,
        "longest-function": max(function.length for function in every),
        "functions-with-many-parameters": sum(each.parameters > MAX_PARAMETERS for each in every),
        "imports-per-file": round(sum(map(len, graph.values())) / len(graph), 2),
        "private-functions-called-once": round(share_called_once(root), 3),
        "settings": len(setting_names(root)),
        "environment-variables": len(environment_variables(root)),
    }


def exceeded_bounds(root: Path) -> list[str]:
    """Return a message for each figure above its bound, and for bounds that have no figure."""
    bounds = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    for key in BOUNDS:
        bounds = bounds[key]
    figures = bounded(root)
    messages = [
        f"{key} is {figures[key]:,}, and the bound in pyproject.toml is {bounds[key]:,}"
        for key in figures.keys() & bounds.keys()
        if figures[key] > bounds[key]
    ]
    messages += [f"{key} has no bound or no figure" for key in figures.keys() ^ bounds.keys()]
    return sorted(messages)


def longest(found: Iterable[Function], count: int = 1) -> list[Function]:
    """Return the `count` longest functions."""
    return sorted(found, key=lambda each: (-each.length, each.path, each.first))[:count]


def template_lines(root: Path) -> str:
    """Return in words how many lines of templates are over the limit, and the longest line."""
    lengths = [
        (len(line), f"{path.relative_to(root)}:{number}")
        for path in sorted((root / "templates").rglob("*.html"))
        for number, line in enumerate(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"), 1)
    ]
    over = sum(length > TEMPLATE_LIMIT for length, _ in lengths)
    length, where = max(lengths, default=(0, "none"))
    return f"{over:,} of {len(lengths):,}, longest {length:,} ({where})"


def table(root: Path) -> str:
    """Return the Markdown table of all measures."""
    measured = [sizes(root, package) for package in PACKAGES]
    rows = [(name, _numbers(each[name] for each in measured)) for name in measured[0]]
    rows += _graph_rows(root) + _function_rows([functions(root, package) for package in PACKAGES])
    rows.append((f"template lines over {TEMPLATE_LIMIT} characters", ["", "", "", template_lines(root)]))
    head = f"| | {' | '.join(PACKAGES)} | total |\n|---|--:|--:|--:|--:|\n"
    return head + "\n".join(f"| {name} | {' | '.join(cells)} |" for name, cells in rows)


def _numbers(values: Iterable[int]) -> list[str]:
    found = list(values)
    return [f"{value:,}" for value in [*found, sum(found)]]


def _graph_rows(root: Path) -> list[Row]:
    graph = imports(root)
    between = [places(graph, package) for package in PACKAGES]
    cycles = [components(each) for each in between]
    below = [[name for name in packages_below(graph, p) if components(places(graph, name))] for p in PACKAGES]
    files = components(graph)
    inside = [[each for each in files if all(n.split(".")[0] == p for n in each)] for p in PACKAGES]
    importers = Counter(chain.from_iterable(graph.values()))
    named = [[n for n, path in modules(root, p).items() if path.name != "__init__.py"] for p in PACKAGES]
    return [
        ("import edges between sub-packages", _numbers(sum(map(len, each.values())) for each in between)),
        ("cycles of sub-packages", [_lengths(each) for each in [*cycles, list(chain(*cycles))]]),
        ("cycles of files", [_lengths(each) for each in [*inside, files]]),
        ("packages below the root with a cycle among their children", _numbers(map(len, below))),
        ("files with exactly one importer", _numbers(sum(importers[n] == 1 for n in each) for each in named)),
    ]


def _lengths(found: list[set[str]]) -> str:
    return ", ".join(f"{length:,}" for length in sorted(map(len, found), reverse=True)) or "none"


def _function_rows(groups: list[list[Function]]) -> list[Row]:
    rows: list[Row] = [
        (f"functions over {limit} lines", _numbers(sum(f.length > limit for f in group) for group in groups))
        for limit in FUNCTION_LIMITS
    ]
    cells = [", ".join(map(str, longest(group))) or "none" for group in [*groups, chain(*groups)]]
    return [*rows, ("longest function", cells)]


def print_cycles(root: Path) -> None:
    """Print each cycle with its members and the import lines between them."""
    graph, statements = imports(root), import_statements(root)
    for root_package in PACKAGES:
        for package in [root_package, *packages_below(graph, root_package)]:
            found = components(places(graph, package))
            _print_cycles(f"Cycle of sub-packages of {package}", found, edges(statements, package))
    _print_cycles("Cycle of files", components(graph), edges(statements))


def _print_cycles(title: str, found: list[set[str]], lines: Edges) -> None:
    for cycle in found:
        print(f"\n{title}, {len(cycle):,} members: {', '.join(sorted(cycle))}")
        for source, target in sorted(lines):
            if {source, target} <= cycle:
                print(f"  {source} -> {target}: {', '.join(lines[source, target])}")


def print_edges(root: Path, package: str) -> None:
    """Print the edges between the places of a package, those with most lines first."""
    found = edges(import_statements(root), package)
    print(f"\nImport edges between sub-packages of {package}: {len(found):,}")
    for (source, target), lines in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"  {source} -> {target}: {len(lines):,}, for example {lines[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the structure of the site's packages.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--cycles", action="store_true", help="list each cycle with its members")
    parser.add_argument("--edges", metavar="PACKAGE", help="list the import edges between sub-packages")
    parser.add_argument("--longest", metavar="N", type=int, default=0, help="list the N longest functions")
    parser.add_argument("--check", action="store_true", help="only compare with the bounds in pyproject.toml")
    options = parser.parse_args()
    if options.check:
        messages = exceeded_bounds(options.root)
        advice = ["Make the code smaller, or state in docs/decisions why a bound rises."] if messages else []
        print(*messages, *advice, sep="\n", end="\n" if messages else "")
        sys.exit(1 if messages else 0)
    print(table(options.root))
    print(*(f"| {key} | | | | {value:,} |" for key, value in bounded(options.root).items()), sep="\n")
    if options.longest:
        every = chain.from_iterable(functions(options.root, package) for package in PACKAGES)
        print("\nLongest functions", *longest(every, options.longest), sep="\n  ")
    if options.cycles:
        print_cycles(options.root)
    if options.edges:
        print_edges(options.root, options.edges)


if __name__ == "__main__":
    main()
