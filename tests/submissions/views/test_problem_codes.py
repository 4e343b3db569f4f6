"""Every code that a report or refusal can have is explained on the page of formats, and no other.

The codes are found where they are made: at calls of everything that takes a `code`, in the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from django.test import Client
from rest_framework import exceptions

from evaluation.checkpoints.codes import CODES
from evaluation.execution.failures import MODEL_FAILURES
from leaderboard.core.http.errors import AWAY, BROKEN, DISK_FULL, TOO_SLOW
from leaderboard.views.problem_codes import FILE_CODES, REQUEST_CODES

READERS = (Path("evaluation/archives"), Path("evaluation/runs"))
SUBMISSIONS = Path("submissions")
READING = (Path("leaderboard/api"), Path("leaderboard/core/http"))
#: Its codes are how a model failed while it ran: evaluation.execution.failures explains those.
SANDBOX = Path("submissions/sandbox")
#: What is called from the readers and from submissions, and is defined elsewhere.
SHARED = (Path("evaluation/core/problems.py"), Path("leaderboard/core/http/api_errors.py"))


@cache
def codes_in(*folders: Path) -> set[str]:
    """The codes that the folders' modules make problems of; one that ends in … stands for several."""
    inside = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    paths = [path for path in inside if SANDBOX not in path.parents]
    trees = [ast.parse(path.read_text()) for path in (*paths, *SHARED)]
    makers = {name: place for tree in trees for name, place in _makers(tree)}
    return {code for tree in trees[: -len(SHARED)] for code in _codes(tree, makers)}


def _makers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions, methods (`Class.method`) and classes that take a `code`, and at which place."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from _maker(node.name, [each.arg for each in node.args.args])
        if isinstance(node, ast.ClassDef):
            fields = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign)
                      and isinstance(each.target, ast.Name)]  # fmt: skip
            yield from _maker(node.name, fields)
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    name = node.name if method.name == "__init__" else f"{node.name}.{method.name}"
                    yield from _maker(name, [each.arg for each in method.args.args][1:])


def _maker(name: str, parameters: list[str]) -> Iterator[tuple[str, int]]:
    if "code" in parameters:
        yield name, parameters.index("code")


def _codes(tree: ast.Module, makers: dict[str, int]) -> Iterator[str]:
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for scope in tree.body:
        own = scope.name if isinstance(scope, ast.ClassDef) else ""
        for call in (node for node in ast.walk(scope) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func).replace("cls.", f"{own}.")
            place = makers.get(own if name == "cls" else name)
            if place is None:
                continue
            named = [each.value for each in call.keywords if each.arg == "code"]
            yield from _values([*call.args[place : place + 1], *named][0], constants)


def _values(argument: ast.expr, constants: dict[str, ast.expr]) -> Iterator[str]:
    """What the argument may be; nothing where a code is only handed on."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        yield argument.value
    elif isinstance(argument, ast.JoinedStr):
        yield f"{ast.literal_eval(argument.values[0])}…"
    elif isinstance(argument, ast.Name) and argument.id in constants:
        yield from _values(constants[argument.id], constants)
    elif ast.unparse(argument) == "code":  # of the calling function's own, or of a table of messages by code
        for table in (each for each in constants.values() if isinstance(each, ast.Dict)):
            if all(isinstance(value, ast.Tuple) for value in table.values):
                yield from (ast.literal_eval(key) for key in table.keys if isinstance(key, ast.Constant))
    elif not isinstance(argument, (ast.Attribute, ast.Subscript)):
        pytest.fail(f"which code this is cannot be told: {ast.unparse(argument)}")


def test_every_problem_is_explained_and_no_other() -> None:
    found = codes_in(*READERS) | codes_in(SUBMISSIONS)
    explained = {each.code for each in (*FILE_CODES, *REQUEST_CODES)}
    groups = tuple(code.removesuffix("…") for code in explained if code.endswith("…"))
    unexplained = found - explained - set(MODEL_FAILURES) - set(CODES)
    assert {code for code in unexplained if not code.startswith(groups)} == set()
    assert explained <= found


def test_the_documentation_of_the_api_names_each_code_of_an_answer() -> None:
    text = Path("docs/api.md").read_text()
    of_requests = (codes_in(SUBMISSIONS) | codes_in(*READING)) - {each.code for each in FILE_CODES}
    of_jobs = {"timed_out"}  # a state of its own
    faults = {fault.code for fault in (BROKEN, AWAY, DISK_FULL, TOO_SLOW)}
    refusals = {
        each.default_code
        for each in vars(exceptions).values()
        if isinstance(each, type) and issubclass(each, exceptions.APIException)
    } - {"error", "invalid"}
    asked = (of_requests - of_jobs) | faults | refusals
    assert sorted(code for code in asked if f"`{code}`" not in text) == []


@pytest.mark.django_db
def test_the_page_has_a_line_for_each(client: Client) -> None:
    page = client.get("/formats/").content.decode()
    codes = {each.code for each in (*FILE_CODES, *REQUEST_CODES)} | set(CODES) | set(MODEL_FAILURES)
    assert [code for code in codes if page.count(f'<tr id="{code}">') != 1] == []
