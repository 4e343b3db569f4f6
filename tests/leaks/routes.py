"""Every address that the site answers, from its URL configuration, filled with what a test's database has.

A new page cannot be forgotten: an address whose parts nobody knows how to fill is an error, not a gap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from django.apps import apps
from django.contrib import admin
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from leaderboard.figures.registry import FIGURES
from leaderboard.models import (
    Benchmark,
    Challenge,
    Dataset,
    DatasetFile,
    Invitation,
    Membership,
    Pool,
    Rescore,
    Round,
    System,
    Team,
    TopicSource,
)
from submissions.models import Submission, Webhook

#: Parts of allauth's addresses and of invitations', good for nothing.
SECRETS = ("key", "uidb36", "secret")


class Route(NamedTuple):
    """One pattern, its prefix before it, and the names of its parts in order."""

    text: str
    name: str
    parts: tuple[str, ...]


def routes() -> list[Route]:
    """All of them."""
    return list(_walk(get_resolver().url_patterns, "", ()))


def _walk(patterns: Iterable[URLPattern | URLResolver], prefix: str, parts: tuple[str, ...]) -> Iterator[Route]:
    for each in patterns:
        text = prefix + _named(each)
        found = (*parts, *_parts_of(each))
        if isinstance(each, URLResolver):
            yield from _walk(each.url_patterns, text, found)
        else:
            yield Route(text, each.name or "", found)


def _named(each: URLPattern | URLResolver) -> str:
    """The pattern's text; the parts that simple_history gives no name have that of what they are."""
    text = str(each.pattern)
    if each.pattern.regex.groups > len(each.pattern.regex.groupindex):
        for part in ("object_id", "history_id"):
            text = text.replace("([^/]+)", f"(?P<{part}>[^/]+)", 1)
    return text


def _parts_of(each: URLPattern | URLResolver) -> tuple[str, ...]:
    named = tuple(each.pattern.regex.groupindex)
    return named or tuple(re.findall(r"\(\?P<(\w+)>", _named(each)))


def addresses(route: Route) -> list[str]:
    """The route's addresses with everything that there is, as far as it makes sense to ask. Raises LookupError."""
    choices = [samples(route, part) for part in route.parts]
    filled = [fill(route, dict(zip(route.parts, values, strict=True))) for values in product(*choices)]
    return [f"{address}{query}" for address in filled for query in queries(route)]


def queries(route: Route) -> list[str]:
    """What to ask after the address, where that decides what is shown."""
    if route.name in ("figure", "figure_json"):
        return [f"?dataset={slug}" for slug in Dataset.objects.values_list("slug", flat=True)]
    if route.name == "compare":
        systems = "&".join(f"system={slug}" for slug in System.objects.values_list("slug", flat=True)[:4])
        return [
            "",
            *(f"?{systems}&dataset={slug}" for slug in Dataset.objects.values_list("slug", flat=True)),
        ]
    return [""]


def fill(route: Route, values: Mapping[str, str]) -> str:
    """The route's address with these parts."""
    text = route.text.replace("^", "").replace("$", "").replace("\\Z", "")
    for part, value in values.items():
        text = re.sub(rf"(?<!\?P)<(?:\w+:)?{part}>", _literally(value), text)
        text = re.sub(rf"\(\?P<{part}>(?:[^()]|\([^()]*\))*\)", _literally(value), text)
    return f"/{text}"


def _literally(value: str) -> Callable[[re.Match[str]], str]:
    """A replacement in which a backslash means itself."""
    return lambda _: value


def samples(route: Route, part: str) -> Sequence[str]:
    """Values for one part of an address. Raises LookupError where nobody said what it is."""
    if route.text.startswith("admin/"):
        return _of_admin(route, part)
    first = route.text.removeprefix("api/v1/").split("/")[0]
    found = _BY_PLACE.get((first, part)) or _BY_PART.get(part)
    if found is None and part in SECRETS:
        return ["x"]
    if found is None:
        raise LookupError(f"{route.text}: say in tests/leaks/routes.py what to put for {part}")
    return [str(value) for value in found()] or ["0" if f"<int:{part}>" in route.text else "nothing"]


def _of_admin(route: Route, part: str) -> Sequence[str]:
    _, *rest = route.text.split("/")
    if part in ("app_label", "url", "content_type_id"):
        return {"app_label": ["leaderboard", "submissions"], "url": ["nothing"], "content_type_id": ["1"]}[part]
    for model in admin.site._registry:
        if rest[:2] == [model._meta.app_label, model._meta.model_name]:
            if part in ("object_id", "pk", "key", "id"):
                return [str(key) for key in model._default_manager.values_list("pk", flat=True)[:4]] or ["1"]
            if part == "history_id":
                return [str(key) for key in apps_history(model)] or ["1"]
            return _ADMIN_PARTS.get(part, lambda: ["1"])()
    return ["1"]


def apps_history(model: Any) -> list[int]:
    """The keys of a few historical records of a model."""
    history = getattr(model, "history", None)
    return list(history.values_list("history_id", flat=True)[:2]) if history is not None else []


def _keys(model: Any) -> list[Any]:
    return list(model.objects.values_list("pk", flat=True)[:2])


_ADMIN_PARTS: dict[str, Callable[[], list[str]]] = {
    "file_format": lambda: ["csv", "trec"],
    "format": lambda: ["csv", "trec"],
    "form": lambda: ["csv", "trec"],
    "ending": lambda: ["csv", "json"],
    "pool_id": lambda: [str(key) for key in Pool.objects.values_list("pk", flat=True)] or ["1"],
}

_BY_PLACE: dict[tuple[str, str], Callable[[], Iterable[Any]]] = {
    ("datasets", "slug"): lambda: Dataset.objects.values_list("slug", flat=True),
    ("datasets", "name"): lambda: [*DatasetFile.objects.values_list("name", flat=True).distinct(), "nothing"],
    ("datasets", "query_id"): lambda: ["q1", "q3", "nothing"],
    ("datasets", "number"): lambda: [*Rescore.objects.values_list("pk", flat=True), 1],
    ("benchmarks", "slug"): lambda: Benchmark.objects.values_list("slug", flat=True),
    ("systems", "slug"): lambda: System.objects.values_list("slug", flat=True),
    ("authors", "slug"): lambda: ["somebody"],
    ("account", "pk"): lambda: [1],  # passkeys
    ("systems", "key"): lambda: Challenge.objects.values_list("pk", flat=True)[:2],
    ("teams", "key"): lambda: [*_keys(Invitation), *_keys(Membership)],
    ("teams", "identifier"): lambda: _keys(Webhook),
    ("teams", "slug"): lambda: Team.objects.values_list("slug", flat=True),
    ("figures", "slug"): lambda: FIGURES,
    ("docs", "name"): lambda: ["glossary", "nothing"],
    ("docs", "section"): lambda: ["datasets", "submissions", "nothing"],
    ("rounds", "slug"): lambda: Round.objects.values_list("slug", flat=True),
    ("rolling", "slug"): lambda: TopicSource.objects.values_list("slug", flat=True),
    ("quotas", "slug"): lambda: Dataset.objects.values_list("slug", flat=True),
}
_BY_PART: dict[str, Callable[[], Iterable[Any]]] = {
    "identifier": lambda: Submission.objects.values_list("pk", flat=True),
    "dataset": lambda: Dataset.objects.values_list("slug", flat=True),
    "at": lambda: [f"{timezone.now():%Y-%m-%dT%H:%M:%SZ}"],
    "challenge": lambda: Challenge.objects.values_list("pk", flat=True),
    "provider_id": lambda: ["nobody"],
}


def everything_in_the_database() -> Iterator[tuple[str, Any]]:
    """Every row of every table as (table, row)."""
    for model in apps.get_models():
        for row in model._default_manager.all().iterator():
            yield model._meta.label, row
