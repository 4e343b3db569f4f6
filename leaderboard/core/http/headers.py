"""What two headers of a request say, as RFC 9110 has them."""

from __future__ import annotations

from django.utils.http import parse_etags


def accepts_gzip(accepted: str) -> bool:
    """Whether `Accept-Encoding` allows gzip: by its name, else by `*`, with a weight above 0."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        coding, *parameters = (piece.strip() for piece in part.split(";"))
        weights[coding] = _weight(parameters)
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


def _weight(parameters: list[str]) -> float:
    """The value of `q`: 1 where there is none, 0 where it is no number."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def names_tag(condition: str, etag: str) -> bool:
    """Whether `If-None-Match` has the entity tag, by weak comparison, or `*`, which any page matches."""
    tags = parse_etags(condition) if condition else []
    return "*" in tags or etag.removeprefix("W/") in (tag.removeprefix("W/") for tag in tags)
