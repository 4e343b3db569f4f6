"""Generator of client/runboard/answers.py: types of the API's responses, from its schema.

Run `python packages/client_answers.py` after a change of the API. A test fails if the file is out of date.
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
#: Endpoints with typed responses. `Client.ask` returns the responses of all others untyped.
TYPED_ENDPOINTS = (
    "datasets/", "datasets/{slug}/", "datasets/{slug}/board/", "datasets/{slug}/files/", "check/",
    "submissions/", "submissions/{identifier}/", "systems/{slug}/recipes/", "uploads/",
)  # fmt: skip
HEAD = '''"""Types of the API's responses, generated from its schema by packages/client_answers.py."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict
'''
_SCALAR_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}


def generate_answers(schema: Mapping[str, Any]) -> str:
    """Return the source of client/runboard/answers.py: a TypedDict per object and an alias per enumeration.

    Raises:
        KeyError: A path or a type is not known.
    """
    schemas = schema["components"]["schemas"]
    pending_names = [name for path in TYPED_ENDPOINTS for name in _response_types(schema["paths"][f"/api/v1/{path}"])]
    used_names: set[str] = set()
    while pending_names:
        name = pending_names.pop()
        if name not in used_names:
            used_names.add(name)
            pending_names += _references(schemas[name])
    # Aliases are first, because they are evaluated at import, unlike annotations.
    ordered_names = sorted(used_names, key=lambda name: ("properties" in schemas[name], name))
    text = HEAD + _view(schema) + "".join(_definition(name, schemas[name]) for name in ordered_names)
    formatter = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(formatter, input=text, capture_output=True, text=True, check=True).stdout


def _view(schema: Mapping[str, Any]) -> str:
    """Return the source of VIEW, the query parameters of a board."""
    parameters = schema["paths"]["/api/v1/datasets/{slug}/board/"]["get"]["parameters"]
    names = sorted(item["name"] for item in parameters if item["in"] == "query" and item["name"] != "min-mean")
    comment = "Query parameters of a board's view. Prefixes min- and max- apply to the keys of numeric columns."
    return f"\n#: {comment}\nVIEW = {tuple(names)!r}\n"


def _response_types(path: Mapping[str, Any]) -> Iterator[str]:
    """Yield the schema names in the successful responses of a path."""
    for method in path.values():
        for status, answer in method["responses"].items():
            if status.startswith("2"):
                yield from _references(answer)


def _references(part: Any) -> Iterator[str]:
    """Yield the schema names that a part of the schema refers to."""
    if isinstance(part, Mapping):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from _references(item)


def _definition(name: str, schema: Mapping[str, Any]) -> str:
    """Return the source of a TypedDict with the schema's properties, or of an alias if it has none."""
    if "properties" not in schema:
        return f"\n{name} = {_type(schema)}\n"
    lines = [f"\n\nclass {name}(TypedDict):", f'    """{schema["description"].splitlines()[0]}"""', ""]
    for field, value in schema["properties"].items():
        required = field in schema.get("required", ())
        lines.append(f"    {field}: {_type(value) if required else f'NotRequired[{_type(value)}]'}")
    return "\n".join(lines) + "\n"


def _type(schema: Mapping[str, Any]) -> str:
    """Return the Python annotation of a value with this schema."""
    if "$ref" in schema:
        annotation = schema["$ref"].rpartition("/")[2]
    elif choices := schema.get("allOf") or schema.get("oneOf"):
        annotation = " | ".join(map(_type, choices))
    elif "enum" in schema:
        annotation = f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"
    elif schema.get("type") == "array":
        annotation = f"list[{_type(schema['items'])}]"
    elif schema.get("type") == "object":
        annotation = f"dict[str, {_type(schema.get('additionalProperties', {}))}]"
    else:
        annotation = _SCALAR_TYPES[schema["type"]] if "type" in schema else "Any"
    return f"{annotation} | None" if schema.get("nullable") else annotation


def read_schema() -> dict[str, Any]:
    """Return the API's schema as `manage.py spectacular` prints it."""
    command = [sys.executable, "manage.py", "spectacular", "--format", "openapi-json"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    schema: dict[str, Any] = json.loads(output)
    return schema


if __name__ == "__main__":
    TARGET.write_text(generate_answers(read_schema()))
