"""The API's schema, and the page that says it in words, in the order of the schema."""

from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from threading import Lock
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.text import slugify
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import spectacular_settings
from drf_spectacular.views import SpectacularAPIView

from leaderboard.core.cache.pages import cache_page, vary_on_site_address
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.http.site_url import absolute

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
#: Where every call is.
PREFIX = "/api/v1/"
_making = Lock()


class LockedSchemaGenerator(SchemaGenerator):
    """Makes the schema in one thread at a time.

    drf-spectacular looks up the classes that its extensions are for when the first schema is made, and a second thread
    that comes upon one half looked up fails.
    """

    def get_schema(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As the generator does."""
        with _making:
            schema: dict[str, Any] = super().get_schema(*args, **kwargs)
        return schema


@reads("format", "lang")
class SchemaView(SpectacularAPIView):
    """The OpenAPI schema."""

    required_scope = "read"
    generator_class = LockedSchemaGenerator


@cache
def _schema() -> dict[str, Any]:
    """The schema as everybody may read it; it is made from the code alone."""
    return LockedSchemaGenerator().get_schema(request=None, public=True)


@require_safe
@cache_page(lambda: spectacular_settings.VERSION, vary_on_site_address())
def reference(request: HttpRequest) -> HttpResponse:
    """Every operation of the API: what it takes and what it answers."""
    schema, address = _schema(), absolute(request, PREFIX)
    return render(
        request,
        "leaderboard/api.html",
        {
            "section": "api",
            "address": address,
            "sections": _sections(schema, address),
            "objects": _objects(schema),
            "token": schema["components"]["securitySchemes"]["token"]["description"],
        },
    )


def _sections(schema: Schema, address: str) -> list[dict[str, Any]]:
    """Every operation, by the first part of its path below PREFIX; `address` stands for that in examples."""
    sections: dict[str, list[dict[str, Any]]] = {}
    for path, methods in schema["paths"].items():
        below = path.removeprefix(PREFIX)
        for method, operation in methods.items():
            described = _operation(schema, method, path, operation, address + below)
            sections.setdefault(below.split("/")[0], []).append(described)
    return [{"name": name, "operations": operations} for name, operations in sections.items()]


def _objects(schema: Schema) -> list[dict[str, Any]]:
    """The objects that answers hold, by name."""
    answered = _responses(schema)
    return [
        {
            "name": name,
            "anchor": _anchor(name),
            "description": _paragraphs(component),
            "fields": _fields(schema, component, "list of {}"),
        }
        for name, component in sorted(_components(schema).items())
        if name in answered
    ]


def _components(schema: Schema) -> Mapping[str, Schema]:
    components: Mapping[str, Schema] = schema.get("components", {}).get("schemas", {})
    return components


def _responses(schema: Schema) -> set[str]:
    """The names of objects that answers are made of, at any depth."""
    names: set[str] = set()
    waiting = [
        name
        for methods in schema["paths"].values()
        for operation in methods.values()
        for name in _references(operation["responses"])
    ]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += _references(_components(schema)[name])
    return {name for name in names if "properties" in _components(schema)[name]}


def _references(value: Any) -> Iterator[str]:
    """The names of the components that something refers to."""
    if isinstance(value, Mapping):
        if "$ref" in value:
            yield str(value["$ref"]).rpartition("/")[2]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _anchor(name: str) -> str:
    return f"object-{name.lower()}"


def _operation(schema: Schema, method: str, path: str, operation: Schema, example: str) -> dict[str, Any]:
    contents = operation.get("requestBody", {}).get("content", {})
    body: Schema = next((content["schema"] for content in contents.values()), {})
    component = _resolved(schema, body)
    fields = _fields(schema, component, "{}, may repeat")
    paragraphs = _paragraphs(operation)
    title = operation.get("summary", "")
    security = operation.get("security", [])
    needs_token = bool(security) and {} not in security
    parameters = [_parameter(schema, parameter) for parameter in operation.get("parameters", [])]
    return {
        "anchor": slugify(f"{method} {path.replace('/', ' ')}").removeprefix("-"),
        "method": method.upper(),
        "path": path,
        "title": title or paragraphs[0].removesuffix("."),
        "description": paragraphs if title else paragraphs[1:],
        "needs_token": needs_token,
        "parameters": sorted(parameters, key=lambda parameter: parameter["place"] != "path"),
        # The content types of its fields, and what there is to know of them.
        "sent_as": list(contents),
        "told": _paragraphs(component) if component.get("description") else [],
        "fields": fields,
        "answers": [_answer(status, answer) for status, answer in operation["responses"].items()],
        "curl": _curl(method, example, operation, fields, needs_token=needs_token),
    }


def _paragraphs(described: Schema) -> list[str]:
    return [" ".join(part.split()) for part in str(described.get("description", "")).split("\n\n")]


def _parameter(schema: Schema, parameter: Schema) -> dict[str, Any]:
    required = bool(parameter.get("required"))
    field = _field(schema, parameter["name"], parameter["schema"], "{}, may repeat", required=required)
    return {**field, "description": parameter.get("description", ""), "place": parameter["in"]}


def _fields(schema: Schema, component: Schema, many: str) -> list[dict[str, Any]]:
    required = component.get("required", ())
    return [
        _field(schema, name, inner, many, required=name in required)
        for name, inner in component.get("properties", {}).items()
    ]


def _field(schema: Schema, name: str, value: Schema, many: str, *, required: bool) -> dict[str, Any]:
    """`many` says what a list of its type is called."""
    inner = value["items"] if value.get("type") == "array" else value
    target = next((one for one in _references(inner) if "properties" in _components(schema)[one]), "")
    inner = inner if target else _resolved(schema, inner)
    kind = target or _FORMATS.get(inner.get("format", "")) or _WORDS.get(inner.get("type", ""), "any")
    default = value.get("default", "")
    return {
        "name": name,
        "type": many.format(kind) if value.get("type") == "array" else kind,
        "target": _anchor(target) if target else "",
        "choices": [str(choice) for choice in inner.get("enum", ())],
        "required": required,
        "default": str(default).lower() if isinstance(default, bool) else str(default),
        # The generator adds the values of an enumeration as a list; they are told apart here.
        "description": _paragraphs(value)[0].partition("* `")[0].strip(),
    }


def _resolved(schema: Schema, value: Schema) -> Schema:
    """What a schema is, where it refers to a component."""
    name = next(_references(value), "")
    return _components(schema)[name] if name else value


def _answer(status: str, answer: Schema) -> dict[str, str]:
    """What an operation may answer; `target` is the anchor of the object that it is, `type` its name."""
    content: Schema = next((one["schema"] for one in answer.get("content", {}).values()), {})
    name = next(_references(content), "")
    listed = "a list of " if content.get("type") == "array" else ""
    return {
        "status": status,
        "meaning": answer.get("description") or HTTPStatus(int(status)).phrase,
        "type": f"{listed}{name or 'an object'}",
        "target": _anchor(name) if name else "",
    }


def _curl(
    method: str, address: str, operation: Schema, fields: list[dict[str, Any]], *, needs_token: bool
) -> str:
    """How to call it from a shell: with what its schema names as `x-curl`, else with the fields that it needs."""
    address = address.replace("{", "").replace("}", "")
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            address = address.replace(f"/{parameter['name']}/", f"/{parameter['name'].upper()}/")
    examples = {"true or false": "true", "whole number": "1"}
    words = [
        f'"{field["name"]}": ' + examples.get(field["type"], '"…"') for field in fields if field["required"]
    ]
    options = operation.get("x-curl") or (f"--json '{{{', '.join(words)}}}'" if words else "")
    query = options if options.startswith("?") else ""
    parts = ["curl"]
    if needs_token:
        parts.append('-H "Authorization: Bearer $TOKEN"')
    if method != "get":
        parts.append(options or f"-X {method.upper()}")
    parts.append(f'"{address}{query}"' if query else address)
    return " ".join(parts)
