"""The API's schema, and its reference as pages: an index of all operations, and one page for each section."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from threading import Lock
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
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

#: Display names of JSON Schema types.
_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
}
_FORMATS = {"binary": "file", "uri": "address", "date-time": "date and time"}
#: Path prefix of all endpoints.
PREFIX = "/api/v1/"
_generation_lock = Lock()


class LockedSchemaGenerator(SchemaGenerator):
    """Schema generator that runs in one thread at a time.

    drf-spectacular resolves the targets of its extensions when the first schema is generated, and a second thread that
    meets a partially resolved one fails.
    """

    def get_schema(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        with _generation_lock:
            schema: dict[str, Any] = super().get_schema(*args, **kwargs)
        return schema


@reads("format", "lang")
class SchemaView(SpectacularAPIView):
    """View of the OpenAPI schema."""

    required_scope = "read"
    generator_class = LockedSchemaGenerator


@cache
def _schema() -> dict[str, Any]:
    """Return the public schema, which depends on the code only."""
    return LockedSchemaGenerator().get_schema(request=None, public=True)


@require_safe
@cache_page(lambda section="": spectacular_settings.VERSION, vary_on_site_address())
def reference(request: HttpRequest, section: str = "") -> HttpResponse:
    """Show one section of the API, or the list of all sections and objects. Raises Http404 for an unknown section."""
    page = _Reference(_schema(), absolute(request, PREFIX))
    sections = {part["name"]: part for part in page.sections()}
    if section and section not in sections:
        raise Http404
    pages = [(o["name"], o["anchor"], name) for name, part in sections.items() for o in part["objects"]]
    context = {
        "section": "docs",
        "address": page.address,
        "sections": sections.values(),
        "described": sections.get(section),
        "objects": sorted({anchor: (object_, anchor, name) for object_, anchor, name in reversed(pages)}.values()),
        "token": page.schema["components"]["securitySchemes"]["token"]["description"],
    }
    return render(request, f"leaderboard/api{'_section' * bool(section)}.html", context)


@dataclass(frozen=True, slots=True)
class _Reference:
    """Display form of a schema; `address` replaces PREFIX in examples."""

    schema: Schema
    address: str

    def sections(self) -> list[dict[str, Any]]:
        """Return the API's operations and response objects, grouped by the first path segment after PREFIX."""
        sections: dict[str, list[dict[str, Any]]] = {}
        for path, methods in self.schema["paths"].items():
            section = sections.setdefault(_section(path), [])
            section += [self._operation(method, path, operation) for method, operation in methods.items()]
        return [
            {"name": name, "operations": operations, "objects": self._objects(name)}
            for name, operations in sections.items()
        ]

    def _objects(self, section: str) -> list[dict[str, Any]]:
        """Return the display forms of the objects in a section's responses, by name."""
        response_names = self._answer_names(section)
        return [
            {
                "name": name,
                "anchor": _anchor(name),
                "description": _paragraphs(component),
                "fields": self._fields(component, "list of {}"),
            }
            for name, component in sorted(self.components.items())
            if name in response_names
        ]

    @property
    def components(self) -> Mapping[str, Schema]:
        """Objects of the schema by name."""
        components: Mapping[str, Schema] = self.schema.get("components", {}).get("schemas", {})
        return components

    def _answer_names(self, section: str) -> set[str]:
        """Return the names of the objects in a section's responses, at any depth."""
        names: set[str] = set()
        pending = [
            name
            for path, methods in self.schema["paths"].items()
            if _section(path) == section
            for operation in methods.values()
            for name in _references(operation["responses"])
        ]
        while pending:
            name = pending.pop()
            if name not in names:
                names.add(name)
                pending += _references(self.components[name])
        return {name for name in names if "properties" in self.components[name]}

    def _operation(self, method: str, path: str, operation: Schema) -> dict[str, Any]:
        """Return the display form of an operation: its parameters, fields, responses, and an example curl command."""
        contents = operation.get("requestBody", {}).get("content", {})
        body: Schema = next((content["schema"] for content in contents.values()), {})
        component = self._resolve(body)
        fields = self._fields(component, "{}, repeatable")
        paragraphs = _paragraphs(operation)
        title = operation.get("summary", "")
        security = operation.get("security", [])
        needs_token = bool(security) and {} not in security
        parameters = [self._parameter(parameter) for parameter in operation.get("parameters", [])]
        return {
            "anchor": slugify(f"{method} {path.replace('/', ' ')}").removeprefix("-"),
            "method": method.upper(),
            "path": path,
            "title": title or paragraphs[0].removesuffix("."),
            "description": paragraphs if title else paragraphs[1:],
            "needs_token": needs_token,
            "parameters": sorted(parameters, key=lambda parameter: parameter["place"] != "path"),
            # Content types of the body, and its description.
            "sent_as": list(contents),
            "told": _paragraphs(component) if component.get("description") else [],
            "fields": fields,
            "answers": [_answer(status, answer) for status, answer in operation["responses"].items()],
            "curl": self._curl(method, path, operation, fields, needs_token=needs_token),
        }

    def _parameter(self, parameter: Schema) -> dict[str, Any]:
        required = bool(parameter.get("required"))
        field = self._field(parameter["name"], parameter["schema"], "{}, repeatable", required=required)
        return {**field, "description": parameter.get("description", ""), "place": parameter["in"]}

    def _fields(self, component: Schema, list_format: str) -> list[dict[str, Any]]:
        """Return the display forms of a component's properties; see `_field`."""
        required = component.get("required", ())
        return [
            self._field(name, inner, list_format, required=name in required)
            for name, inner in component.get("properties", {}).items()
        ]

    def _field(self, name: str, value: Schema, list_format: str, *, required: bool) -> dict[str, Any]:
        """Return the display form of a field or parameter.

        `list_format`, such as "list of {}", formats the type of a list from that of its items.
        """
        inner = value["items"] if value.get("type") == "array" else value
        target = next((name for name in _references(inner) if "properties" in self.components[name]), "")
        inner = inner if target else self._resolve(inner)
        kind = target or _FORMATS.get(inner.get("format", "")) or _WORDS.get(inner.get("type", ""), "any")
        default = value.get("default", "")
        return {
            "name": name,
            "type": list_format.format(kind) if value.get("type") == "array" else kind,
            "target": _anchor(target) if target else "",
            "choices": [str(choice) for choice in inner.get("enum", ())],
            "required": required,
            "default": str(default).lower()
            if isinstance(default, bool)
            else str(
                default
            ),  # The generator appends the values of an enumeration as a list, which is shown separately here.
            "description": _paragraphs(value)[0].partition("* `")[0].strip(),
        }

    def _resolve(self, value: Schema) -> Schema:
        """Return the component that a schema refers to, or the schema itself."""
        name = next(_references(value), "")
        return self.components[name] if name else value

    def _curl(
        self, method: str, path: str, operation: Schema, fields: list[dict[str, Any]], *, needs_token: bool
    ) -> str:
        """Return an example curl command with the options of `x-curl`, or else with the required fields."""
        address = self.address + path.removeprefix(PREFIX).replace("{", "").replace("}", "")
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path":
                address = address.replace(f"/{parameter['name']}/", f"/{parameter['name'].upper()}/")
        examples = {"true or false": "true", "whole number": "1"}
        words = [f'"{field["name"]}": ' + examples.get(field["type"], '"…"') for field in fields if field["required"]]
        options = operation.get("x-curl") or (f"--json '{{{', '.join(words)}}}'" if words else "")
        query = options if options.startswith("?") else ""
        parts = ["curl"]
        if needs_token:
            parts.append('-H "Authorization: Bearer $TOKEN"')
        if method != "get":
            parts.append(options or f"-X {method.upper()}")
        parts.append(f'"{address}{query}"' if query else address)
        return " ".join(parts)


def _references(value: Any) -> Iterator[str]:
    """Yield the names of the components that a part of the schema refers to."""
    if isinstance(value, Mapping):
        if "$ref" in value:
            yield str(value["$ref"]).rpartition("/")[2]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _section(path: str) -> str:
    return path.removeprefix(PREFIX).split("/")[0]


def _anchor(name: str) -> str:
    return f"object-{name.lower()}"


def _paragraphs(schema: Schema) -> list[str]:
    return [" ".join(part.split()) for part in str(schema.get("description", "")).split("\n\n")]


def _answer(status: str, answer: Schema) -> dict[str, str]:
    """Return the display form of a possible response; `type` is the name of its object and `target` the anchor."""
    content: Schema = next((media["schema"] for media in answer.get("content", {}).values()), {})
    name = next(_references(content), "")
    list_prefix = "a list of " if content.get("type") == "array" else ""
    return {
        "status": status,
        "meaning": answer.get("description") or HTTPStatus(int(status)).phrase,
        "type": f"{list_prefix}{name or 'an object'}",
        "target": _anchor(name) if name else "",
    }
