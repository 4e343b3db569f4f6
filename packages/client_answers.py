"""client/runboard/answers.py, written from the API's schema: what the site answers, as types.

`python packages/client_answers.py` writes it anew after a change of the API. A test compares the two, so that neither
changes alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "client/runboard/answers.py"
#: Whose answers the client's verbs return; all else is asked for with `Client.ask`, untyped.
ASKED = (
    "datasets/", "datasets/{slug}/", "datasets/{slug}/board/", "datasets/{slug}/files/", "check/",
    "submissions/", "submissions/{identifier}/", "systems/{slug}/recipes/", "uploads/",
)  # fmt: skip
HEAD = '''"""What the site's API answers. Written from its schema by packages/client_answers.py, not by hand."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict
'''
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}


def answers(schema: Mapping[str, Any]) -> str:
    """The module: a TypedDict for each object, an alias for each enumeration, that one of these answers holds.

    Raises KeyError for a path, or a type, that is not known.
    """
    named = schema["components"]["schemas"]
    waiting = [name for path in ASKED for name in _of_answers(schema["paths"][f"/api/v1/{path}"])]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _names(named[name])
    # Aliases first: unlike annotations they are evaluated.
    in_order = sorted(found, key=lambda name: ("properties" in named[name], name))
    text = HEAD + _view(schema) + "".join(_definition(name, named[name]) for name in in_order)
    formatter = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(formatter, input=text, capture_output=True, text=True, check=True).stdout


def _view(schema: Mapping[str, Any]) -> str:
    """The names that a board's address may have; beside them min- and max- before the key of any numeric column."""
    parameters = schema["paths"]["/api/v1/datasets/{slug}/board/"]["get"]["parameters"]
    names = sorted(
        each["name"] for each in parameters if each["in"] == "query" and each["name"] != "min-mean"
    )
    told = "What a view of a board may have; min- and max- go before the keys of columns."
    return f"\n#: {told}\nVIEW = {tuple(names)!r}\n"


def _of_answers(path: Mapping[str, Any]) -> Iterator[str]:
    """The names in what a path answers when all is well."""
    for method in path.values():
        for status, answer in method["responses"].items():
            if status.startswith("2"):
                yield from _names(answer)


def _names(part: Any) -> Iterator[str]:
    """Every name that a part of the schema refers to."""
    if isinstance(part, Mapping):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _names(each)


def _definition(name: str, schema: Mapping[str, Any]) -> str:
    if "properties" not in schema:
        return f"\n{name} = {_type(schema)}\n"
    lines = [f"\n\nclass {name}(TypedDict):", f'    """{schema["description"].splitlines()[0]}"""', ""]
    for field, of in schema["properties"].items():
        needed = field in schema.get("required", ())
        lines.append(f"    {field}: {_type(of) if needed else f'NotRequired[{_type(of)}]'}")
    return "\n".join(lines) + "\n"


def _type(schema: Mapping[str, Any]) -> str:
    """The annotation of a value."""
    if "$ref" in schema:
        found = schema["$ref"].rpartition("/")[2]
    elif choices := schema.get("allOf") or schema.get("oneOf"):
        found = " | ".join(map(_type, choices))
    elif "enum" in schema:
        found = f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"
    elif schema.get("type") == "array":
        found = f"list[{_type(schema['items'])}]"
    elif schema.get("type") == "object":
        found = f"dict[str, {_type(schema.get('additionalProperties', {}))}]"
    else:
        found = _PLAIN[schema["type"]] if "type" in schema else "Any"
    return f"{found} | None" if schema.get("nullable") else found


def read_schema() -> dict[str, Any]:
    """The API's schema, as `manage.py spectacular` prints it."""
    command = [sys.executable, "manage.py", "spectacular", "--format", "openapi-json"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    found: dict[str, Any] = json.loads(printed)
    return found


if __name__ == "__main__":
    TARGET.write_text(answers(read_schema()))
