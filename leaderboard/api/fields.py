"""Serializer fields, and serializers derived from named tuples and dataclasses."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from rest_framework import serializers
from rest_framework.views import APIView

from leaderboard.core.http.site_url import absolute

Answer = serializers.Serializer[Any]
Field = serializers.Field[Any, Any, Any, Any]


class TextsField(serializers.ListField):
    """A list of strings."""

    child = serializers.CharField()


def _with_help_text(field: Callable[..., Field]) -> Callable[..., Any]:
    """Return a constructor that accepts help text first, then the source if it differs from the name."""
    return lambda help_text=None, source=None, **options: field(help_text=help_text, source=source, **options)


text_field = _with_help_text(serializers.CharField)
flag_field = _with_help_text(serializers.BooleanField)
integer_field = _with_help_text(serializers.IntegerField)
number_field = _with_help_text(serializers.FloatField)
texts = _with_help_text(TextsField)


class ReadView(APIView):
    """A view that requires the `read` scope of tokens."""

    required_scope = "read"


class MomentField(serializers.DateTimeField):
    """A time with a numeric UTC offset."""

    def to_representation(self, value: datetime.datetime) -> str:
        return value.isoformat()


class AddressField(serializers.URLField):
    """The absolute URL of a path on this site; the context must contain `request`."""

    def to_representation(self, value: str) -> Any:
        return absolute(self.context["request"], value) if value else None


class IsSetField(serializers.BooleanField):
    """Whether the attribute has a value."""

    def get_attribute(self, instance: Any) -> bool:
        return super().get_attribute(instance) is not None


_FIELD_TYPES: Mapping[Any, Callable[..., Field]] = {
    str: serializers.CharField,
    bool: serializers.BooleanField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    datetime.date: serializers.DateField,
    datetime.datetime: serializers.DateTimeField,
    Literal: serializers.CharField,
}


def shape(source: type, name: str, text: str, **fields: Any) -> type[Answer]:
    """Create a serializer for a NamedTuple or dataclass, with its fields in order.

    Raises TypeError for type hints without a matching field, which `fields` must provide.

    Args:
        source: The NamedTuple or dataclass.
        name: Name of the serializer in the schema.
        text: Description of the serializer in the schema.
        fields: Fields that replace or follow those derived from type hints.
    """
    if not (hasattr(source, "_fields") or is_dataclass(source)):
        raise TypeError(f"{source} has no fields")
    hints = get_type_hints(source)
    described = {name: fields.pop(name) if name in fields else _field(hint) for name, hint in hints.items()}
    return type(f"{name}Serializer", (serializers.Serializer,), {"__doc__": text, **described, **fields})


def _field(hint: Any, **options: Any) -> Field:
    """Return the serializer field for a type hint; optional types allow null. Raises TypeError for other types."""
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        (hint,) = (kind for kind in inner if kind is not NoneType)
        return _field(hint, allow_null=True)
    if origin in _FIELD_TYPES:
        return _FIELD_TYPES[origin](**options)
    if origin in (list, Sequence):
        return serializers.ListField(child=_field(inner[0]), **options)
    if origin in (dict, Mapping):
        child = serializers.JSONField() if inner[1] is Any else _field(inner[1])
        return serializers.DictField(child=child, **options)
    raise TypeError(f"no field for {hint}")
