"""Systems and publications. Written by `leaderboard.systems.records` and `leaderboard.importing.reported`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from django.db import models
from django.urls import reverse
from simple_history.models import HistoricalRecords

from evaluation.engines import ENGINES


class Architecture(models.TextChoices):
    """Architectures of systems. Engines may add others; see `architecture_choices`."""

    LEXICAL = "lexical", "lexical"
    LEARNED_SPARSE = "learned-sparse", "learned sparse"
    DENSE = "dense", "dense"
    LATE_INTERACTION = "late-interaction", "late interaction"
    RE_RANKING = "re-ranking", "re-ranking"
    DOCUMENT_EXPANSION = "document-expansion", "document expansion"
    QUERY_AUGMENTATION = "query-augmentation", "query augmentation"
    GENERATIVE = "generative", "generative"
    FUSION = "fusion", "fusion"
    OTHER = "other", "other"


def architecture_choices() -> list[tuple[str, str]]:
    """Return the architectures that systems may have, followed by further ones of registered engines."""
    labels = {value: str(label) for value, label in Architecture.choices}
    return [
        *labels.items(),
        *(
            (architecture, architecture)
            for architecture in dict.fromkeys(engine.architecture for engine in ENGINES.values())
            if architecture not in labels
        ),
    ]


def short_citation(authors: str | None, year: int | None) -> str:
    """Return a citation such as `Thakur et al. 2021` or `Thakur and Reimers 2021`, or empty text without authors.

    `authors` are full names separated by " and ", each as in BibTeX: `Nandan Thakur` or `Thakur, Nandan`.
    """
    if not authors:
        return ""
    names = [name.partition(",")[0].strip().split(" ")[-1] for name in authors.split(" and ")]
    if len(names) == 2 and names[1] != "others":
        return f"{names[0]} and {names[1]} {year}"
    return f"{names[0]}{' et al.' if len(names) > 1 else ''} {year}"


class Source(models.Model):
    """A publication with reported figures."""

    key = models.SlugField(max_length=80, unique=True)
    title = models.CharField(max_length=300)
    authors = models.CharField(max_length=500)
    year = models.PositiveSmallIntegerField()
    venue = models.CharField(max_length=200, blank=True)
    url = models.URLField(blank=True)
    bibtex = models.TextField(blank=True)

    history = HistoricalRecords()

    class Meta:
        verbose_name = "publication"

    def __str__(self) -> str:
        return f"{self.title} ({short_citation(self.authors, self.year)})"


class System(models.Model):
    """A retrieval system, which boards rank."""

    slug = models.SlugField(max_length=120, unique=True)
    name = models.CharField(max_length=120)
    architecture = models.CharField(max_length=24, choices=architecture_choices)
    description = models.TextField(blank=True, help_text="Markdown")
    parameters = models.JSONField(default=dict, blank=True)
    team = models.ForeignKey("Team", null=True, blank=True, on_delete=models.PROTECT, related_name="systems")
    participant = models.CharField(
        max_length=120,
        blank=True,
        help_text="Producer of the runs, if not the submitting team; shown on boards instead of the team.",
    )
    source = models.ForeignKey(Source, null=True, blank=True, on_delete=models.PROTECT, related_name="systems")
    training_declared = models.BooleanField(default=False)
    training_datasets = models.JSONField(default=list, blank=True, help_text="Slugs or names of datasets.")
    backbone = models.CharField(max_length=120, blank=True)
    dimension = models.PositiveIntegerField(null=True, blank=True)
    maximum_length = models.PositiveIntegerField(null=True, blank=True)
    paper_url = models.URLField(blank=True)
    code_url = models.URLField(blank=True)
    model_url = models.URLField(blank=True)
    licence = models.CharField(max_length=120, blank=True)
    bibtex = models.TextField(blank=True)
    authors = models.CharField(
        max_length=500,
        blank=True,
        help_text="BibTeX format: names joined by “ and ”. Default: the authors of the source.",
    )
    year = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Year of publication. Default: the year of the source."
    )
    variant_of = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="variants")
    open_weights = models.BooleanField(
        null=True, blank=True, help_text="Whether its weights are open; empty if unknown."
    )
    commercial_use = models.BooleanField(
        null=True, blank=True, help_text="Whether its license permits commercial use; empty if unknown."
    )
    closed_api = models.BooleanField(
        default=False,
        help_text="Whether it uses a paid API; such systems cannot be reproduced and are ranked separately.",
    )
    parameter_count = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Number of parameters of the model."
    )
    training_compute = models.CharField(
        max_length=120, blank=True, help_text="Description by the team, for example 8 A100, 3 days."
    )
    adapted_to = models.JSONField(
        default=list, blank=True, help_text="Slugs or names of datasets whose corpus was used without labels."
    )
    anonymous_until = models.DateTimeField(
        null=True,
        blank=True,
        db_index=True,
        help_text="Team, authors and links are hidden until this time, during a review. Cleared afterwards.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    history = HistoricalRecords()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["team", "name"], name="system_name_once_per_team"),
            models.UniqueConstraint(fields=["source", "name"], name="system_name_once_per_source"),
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("system", args=[self.slug])

    @property
    def contributor(self) -> tuple[int | None, str]:
        """Team and participant; several participants of one team count as several contributors."""
        return self.team_id, self.participant


class DeclaredNumber(NamedTuple):
    """A number that teams declare for a system, named like its column, with `label` and `hint` for pages.

    If boards show it, the column has the key `key`, the head `head` and the unit `unit`, and values are divided by
    `per`.
    """

    name: str
    label: str
    greatest: int
    hint: str
    key: str = ""
    head: str = ""
    unit: str = ""
    per: float = 1.0


#: In the order of forms. Forms, boards, corrections, pages, the API and tables of curators use them.
DECLARED_NUMBERS = (
    DeclaredNumber(
        "parameter_count", "Weights", 10**15, "Number of parameters of the model, for example 109482240.",
        "declared-parameters", "Parameters", "M", 1e6,
    ),
    DeclaredNumber("dimension", "Dimension", 1_000_000, "Dimension of the vectors, for example 768."),
    DeclaredNumber(
        "maximum_length", "Maximum length", 10_000_000, "Maximum length of the input in tokens, for example 512.",
        "maximum-length", "Longest text", "tokens",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredNumbers:
    """Values of `DECLARED_NUMBERS` for one system; None if not declared."""

    parameter_count: int | None = None
    dimension: int | None = None
    maximum_length: int | None = None


class SystemRedirect(models.Model):
    """An earlier slug of a merged system, so that links to it still work."""

    slug = models.SlugField(max_length=120, unique=True)
    system = models.ForeignKey(System, on_delete=models.CASCADE, related_name="redirects")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.slug} → {self.system}"
