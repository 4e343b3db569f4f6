"""Code search collections generated from Python packages.

Documents are the functions of the packages: their source code without the docstring, and their qualified names split
into words as titles (`ast.get_docstring` → "ast get docstring"). Queries are first sentences of docstrings, each with
the described function as its relevant document.
"""

import ast
import hashlib
import json
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: Folders with third-party code, tests, or programs.
EXCLUDED_FOLDERS = frozenset((
    "site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip", "__pycache__",
))  # fmt: skip
EXCLUDED_PREFIX = "config-"

SHORTEST_QUERY, LONGEST_QUERY = 5, 30

_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s")
_BETWEEN_WORDS = re.compile(r"[._]+|(?<=[a-z0-9])(?=[A-Z])")
_BLANK_LINE = re.compile(r"\n\s*\n")


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method: its qualified name, its source without the docstring, and the docstring."""

    name: str
    source: str
    docstring: str


def build_collection(folder: Path, functions: list[Function], queries: int) -> Path:
    """Write `corpus.jsonl`, `queries.jsonl`, and `qrels/test.tsv` of these functions into `folder`, and return it."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    documents = (_as_json(_id=item.name, title=split_words(item.name), text=item.source) for item in functions)
    _write_lines(folder / "corpus.jsonl", documents)
    write_queries(choose_queries(functions, queries), folder / "queries.jsonl", folder / "qrels" / "test.tsv")
    return folder


def write_queries(rows: Collection[tuple[str, str, str]], queries: Path, qrels: Path) -> None:
    """Write id and text of each query, and its relevant document, to two files in BEIR's layout."""
    _write_lines(queries, (_as_json(_id=query, text=text) for query, text, _ in rows))
    _write_lines(qrels, ("query-id\tcorpus-id\tscore", *(f"{query}\t{name}\t1" for query, _, name in rows)))


def read_distinct_functions(library: Path, packages: Iterable[str] = ("",)) -> list[Function]:
    """Return functions with distinct names from packages of a library, by default from all of its modules."""
    functions: dict[str, Function] = {}
    for package in packages:
        for function in read_functions(library, package):
            functions.setdefault(function.name, function)  # Keep the first definition, not a property's setter.
    return list(functions.values())


def read_functions(library: Path, package: str = "") -> Iterator[Function]:
    """Yield the top-level functions and the methods of top-level classes of a package, ordered by path.

    Excluded folders and files that cannot be parsed are skipped. An empty `package` selects the whole library.
    """
    for path in sorted((library / package).rglob("*.py")):
        folders = path.relative_to(library).parts[:-1]
        if any(name in EXCLUDED_FOLDERS or name.startswith(EXCLUDED_PREFIX) for name in folders):
            continue
        module = ".".join((*folders, path.stem)).removesuffix(".__init__")
        source = path.read_bytes()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecated escapes in strings
                tree = ast.parse(source)
        except (SyntaxError, ValueError):
            continue
        lines = source.splitlines(keepends=True)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                for member in node.body:
                    yield from _as_function(member, f"{module}.{node.name}", lines)
            else:
                yield from _as_function(node, module, lines)


def _as_function(node: ast.stmt, parent: str, lines: list[bytes]) -> Iterator[Function]:
    """Yield the function that a node defines, with its dedented source from `def` to its end, without docstring."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    first_line, last_line = node.lineno - 1, node.end_lineno or node.lineno
    kept_lines = lines[first_line:last_line]
    if ast.get_docstring(node, clean=False) is not None:
        docstring = node.body[0]
        start, end = docstring.lineno - 1, docstring.end_lineno or docstring.lineno
        prefix = lines[start][: docstring.col_offset]  # `def f(): "docstring"` may be on one line
        suffix = lines[end - 1][docstring.end_col_offset :]
        kept_lines = [
            *lines[first_line:start],
            *([prefix + suffix] if (prefix + suffix).strip() else []),
            *lines[end:last_line],
        ]
    indent = node.col_offset
    dedented_lines = [line[indent:] if not line[:indent].strip() else line for line in kept_lines]
    source = b"".join(dedented_lines).decode("utf-8", "replace").strip()
    yield Function(f"{parent}.{node.name}", source, ast.get_docstring(node) or "")


def choose_queries(functions: list[Function], queries: int | None = None) -> list[tuple[str, str, str]]:
    """Return id, text, and relevant function name of up to `queries` queries (None: all candidates), sorted by id.

    Candidates are unique first sentences of 5 to 30 words. The function names with the smallest SHA-256 are chosen,
    which is a reproducible random sample.
    """
    sentences = {function.name: first_sentence(function.docstring) for function in functions}
    uses = Counter(sentences.values())
    candidates = sorted(
        (hashlib.sha256(name.encode()).hexdigest(), name)
        for name, sentence in sentences.items()
        if uses[sentence] == 1 and SHORTEST_QUERY <= len(sentence.split()) <= LONGEST_QUERY
    )
    return [(f"q-{digest[:10]}", sentences[name], name) for digest, name in candidates[:queries]]


def first_sentence(docstring: str) -> str:
    paragraph = _BLANK_LINE.split(docstring.strip(), maxsplit=1)[0]
    return _END_OF_SENTENCE.split(" ".join(paragraph.split()), maxsplit=1)[0]


def split_words(name: str) -> str:
    """Return the words of a qualified name.

    Analyzers of prose treat `a.b.get_name` and `getName` as single words.
    """
    return " ".join(_BETWEEN_WORDS.split(name)).strip()


def _as_json(**record: str) -> str:
    return json.dumps(record, ensure_ascii=False)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
