"""Template filters that format values of submissions."""

from datetime import timedelta

from django import template

from leaderboard.core.text import numbers
from leaderboard.models import Dataset
from leaderboard.systems.provenance import parameter_text
from submissions.checkpoints.service import KIND_NAMES
from submissions.intake.checkpoints.forms import parameter_label
from submissions.status.checkpoints import ResultVariant
from submissions.status.description import DatasetPart
from submissions.status.scores import Score

register = template.Library()
register.filter("parameter", parameter_text)
register.filter("parameter_label", parameter_label)
register.filter("direction", numbers.direction)


@register.filter
def score(value: float) -> str:
    return f"{value:.{numbers.DECIMALS}f}"


@register.filter
def signed(value: float) -> str:
    return numbers.signed(value, numbers.DECIMALS)


@register.filter
def signed_percent(value: float) -> str:
    return f"{numbers.signed(value, 1)}%"


@register.filter
def percent(value: float) -> str:
    return f"{100 * value:.0f}%"


@register.filter
def duration(value: timedelta) -> str:
    """Format a time span in its two largest units, such as `4 s`, `2 min 5 s`, `3 h 20 min`, or `2 d 4 h`."""
    seconds = int(value.total_seconds())
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count or parts or unit == "s":
            parts.append(f"{count} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ") or len(parts) == 1)


@register.filter
def seconds_as_duration(value: int) -> str:
    return duration(timedelta(seconds=value))


@register.filter
def primary(part: DatasetPart) -> Score | None:
    """Return the score, or the mean of seeds, on the dataset's primary measure, or else the first score."""
    scores = part.jobs[0].scores if part.seeds is None else part.seeds.scores
    measure = part.jobs[0].job.dataset.primary_measure
    return next((score for score in scores if score.measure == measure), None) or next(iter(scores), None)


@register.filter
def milliseconds(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


@register.filter
def model_kind_name(name: str) -> str:
    return {kind.value: words for kind, words in KIND_NAMES.items()}.get(name, name)


@register.filter
def variant_score(variant: ResultVariant, dataset: Dataset) -> str:
    value = variant.score(dataset.primary_measure)
    return "–" if value is None else score(value)
