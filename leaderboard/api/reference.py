"""What the OpenAPI schema says, in the order and the words of the page that explains it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from django.utils.text import slugify

Schema = Mapping[str, Any]

#: What JSON Schema calls a kind of value, in words.
_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
}
_FORMATS = {"binary": "file", "uri": "address", "date-time": "date and time"}


class Field(NamedTuple):
    """A parameter, or a field of what is sent or answered. `place` is a parameter's: path or query."""

    name: str
    type: str
    target: str
    choices: list[str]
    required: bool
    default: str
    description: str
    place: str = ""


class Answer(NamedTuple):
    """What an operation may answer; `target` is the anchor of the object that it is, `type` its name."""

    status: str
    meaning: str
    type: str
    target: str


class Operation(NamedTuple):
    """One method of one path. `sent_as` are the content types of its fields, `told` what there is to know of them."""

    anchor: str
    method: str
    path: str
    title: str
    description: list[str]
    needs_token: bool
    parameters: list[Field]
    sent_as: list[str]
    told: list[str]
    fields: list[Field]
    answers: list[Answer]
    curl: str


class Section(NamedTuple):
    """The operations whose paths begin alike."""

    name: str
    operations: list[Operation]


class Described(NamedTuple):
    """An object that answers hold."""

    name: str
    anchor: str
    description: list[str]
    fields: list[Field]


def sections(schema: Schema, prefix: str, address: str) -> list[Section]:
    """Every operation, by the first part of its path below `prefix`; `address` stands for `prefix` in examples."""
    found: dict[str, list[Operation]] = {}
    for path, methods in schema["paths"].items():
        name = path.removeprefix(prefix).split("/")[0]
        for method, operation in methods.items():
            example = address + path.removeprefix(prefix)
            found.setdefault(name, []).append(_operation(schema, method, path, operation, example))
    return [Section(name, operations) for name, operations in found.items()]


def objects(schema: Schema) -> list[Described]:
    """The objects that answers hold, by name."""
    return [
        Described(name, _anchor(name), _paragraphs(component), _fields(schema, component, "list of {}"))
        for name, component in sorted(_components(schema).items())
        if name in _answered(schema)
    ]


def _components(schema: Schema) -> Mapping[str, Schema]:
    found: Mapping[str, Schema] = schema.get("components", {}).get("schemas", {})
    return found


def _answered(schema: Schema) -> set[str]:
    """The names of objects that answers are made of, at any depth."""
    found: set[str] = set()
    waiting = [
        name
        for methods in schema["paths"].values()
        for operation in methods.values()
        for name in _references(operation["responses"])
    ]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _references(_components(schema)[name])
    return {name for name in found if "properties" in _components(schema)[name]}


def _references(value: Any) -> Iterator[str]:
    """The names of the components that something refers to."""
    if isinstance(value, Mapping):
        if "$ref" in value:
            yield _named(value)
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _named(reference: Schema) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _anchor(name: str) -> str:
    return f"object-{name.lower()}"


def _operation(schema: Schema, method: str, path: str, operation: Schema, example: str) -> Operation:
    contents = operation.get("requestBody", {}).get("content", {})
    body: Schema = next((content["schema"] for content in contents.values()), {})
    component = _resolved(schema, body)
    fields = _fields(schema, component, "{}, may repeat")
    paragraphs = _paragraphs(operation)
    title = operation.get("summary", "")
    security = operation.get("security", [])
    needs_token = bool(security) and {} not in security
    return Operation(
        anchor=slugify(f"{method} {path.replace('/', ' ')}").removeprefix("-"),
        method=method.upper(),
        path=path,
        title=title or paragraphs[0].removesuffix("."),
        description=paragraphs if title else paragraphs[1:],
        needs_token=needs_token,
        parameters=sorted(
            (_parameter(schema, parameter) for parameter in operation.get("parameters", [])),
            key=lambda parameter: parameter.place != "path",
        ),
        sent_as=list(contents),
        told=_paragraphs(component) if component.get("description") else [],
        fields=fields,
        answers=[_answer(status, answer) for status, answer in operation["responses"].items()],
        curl=_curl(method, example, operation, fields, needs_token=needs_token),
    )


def _paragraphs(described: Schema) -> list[str]:
    return [" ".join(part.split()) for part in str(described.get("description", "")).split("\n\n")]


def _parameter(schema: Schema, parameter: Schema) -> Field:
    field = _field(
        schema,
        parameter["name"],
        parameter["schema"],
        "{}, may repeat",
        required=bool(parameter.get("required")),
    )
    return field._replace(description=parameter.get("description", ""), place=parameter["in"])


def _fields(schema: Schema, component: Schema, many: str) -> list[Field]:
    required = component.get("required", ())
    return [
        _field(schema, name, inner, many, required=name in required)
        for name, inner in component.get("properties", {}).items()
    ]


def _field(schema: Schema, name: str, value: Schema, many: str, *, required: bool) -> Field:
    """`many` says what a list of its type is called."""
    inner = value["items"] if value.get("type") == "array" else value
    target = next((one for one in _references(inner) if "properties" in _components(schema)[one]), "")
    inner = inner if target else _resolved(schema, inner)
    kind = target or _FORMATS.get(inner.get("format", "")) or _WORDS.get(inner.get("type", ""), "any")
    default = value.get("default", "")
    return Field(
        name=name,
        type=many.format(kind) if value.get("type") == "array" else kind,
        target=_anchor(target) if target else "",
        choices=[str(choice) for choice in inner.get("enum", ())],
        required=required,
        default=str(default).lower() if isinstance(default, bool) else str(default),
        # The generator adds the values of an enumeration as a list; they are told apart here.
        description=_paragraphs(value)[0].partition("* `")[0].strip(),
    )


def _resolved(schema: Schema, value: Schema) -> Schema:
    """What a schema is, where it refers to a component."""
    name = next(_references(value), "")
    return _components(schema)[name] if name else value


def _answer(status: str, answer: Schema) -> Answer:
    content: Schema = next((one["schema"] for one in answer.get("content", {}).values()), {})
    name = next(_references(content), "")
    listed = "a list of " if content.get("type") == "array" else ""
    meaning = answer.get("description") or HTTPStatus(int(status)).phrase
    return Answer(status, meaning, f"{listed}{name or 'an object'}", _anchor(name) if name else "")


def _curl(method: str, address: str, operation: Schema, fields: list[Field], *, needs_token: bool) -> str:
    """How to call it from a shell: with what its schema names as `x-curl`, else with the fields that it needs."""
    for name, value in (("{", ""), ("}", "")):
        address = address.replace(name, value)
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            address = address.replace(f"/{parameter['name']}/", f"/{parameter['name'].upper()}/")
    given = operation.get("x-curl") or _sent([field for field in fields if field.required])
    query = given if given.startswith("?") else ""
    parts = ["curl"]
    if needs_token:
        parts.append('-H "Authorization: Bearer $TOKEN"')
    if method != "get":
        parts.append(given or f"-X {method.upper()}")
    parts.append(f'"{address}{query}"' if query else address)
    return " ".join(parts)


def _sent(fields: list[Field]) -> str:
    """Fields as curl sends them in JSON; nothing for none."""
    values = {"true or false": "true", "whole number": "1"}
    words = [f'"{field.name}": ' + values.get(field.type, '"…"') for field in fields]
    return f"--json '{{{', '.join(words)}}}'" if words else ""
