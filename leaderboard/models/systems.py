"""What is ranked, and where reported figures come from. Written by `leaderboard.systems.records` and
`leaderboard.importing.reported`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from django.db import models
from django.urls import reverse
from simple_history.models import HistoricalRecords

from evaluation.engines import ENGINES


class Architecture(models.TextChoices):
    """Ways in which systems retrieve. An engine may have another one; see `architecture_choices`."""

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
    """Return the architectures that a system may have, those that only a registered engine has at the end."""
    known = {value: str(label) for value, label in Architecture.choices}
    return [
        *known.items(),
        *(
            (own, own)
            for own in dict.fromkeys(engine.architecture for engine in ENGINES.values())
            if own not in known
        ),
    ]


class Source(models.Model):
    """A publication that reported figures come from."""

    key = models.SlugField(max_length=80, unique=True)
    title = models.CharField(max_length=300)
    authors = models.CharField(max_length=500)
    year = models.PositiveSmallIntegerField()
    venue = models.CharField(max_length=200, blank=True)
    url = models.URLField(blank=True)
    bibtex = models.TextField(blank=True)

    history = HistoricalRecords()

    def __str__(self) -> str:
        return f"{self.authors} ({self.year})"


class System(models.Model):
    """A retrieval system: what a board ranks."""

    slug = models.SlugField(max_length=120, unique=True)
    name = models.CharField(max_length=120)
    architecture = models.CharField(max_length=24, choices=architecture_choices)
    description = models.TextField(blank=True, help_text="Markdown")
    parameters = models.JSONField(default=dict, blank=True)
    team = models.ForeignKey("Team", null=True, blank=True, on_delete=models.PROTECT, related_name="systems")
    participant = models.CharField(
        max_length=120,
        blank=True,
        help_text="Who made the runs, where that is not the team that sent them: boards show it in the team's place.",
    )
    source = models.ForeignKey(
        Source, null=True, blank=True, on_delete=models.PROTECT, related_name="systems"
    )
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
        help_text="As in BibTeX: names joined by “ and ”; empty: those of the source.",
    )
    year = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="When it came out; empty: the year of its source."
    )
    variant_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="variants"
    )
    open_weights = models.BooleanField(null=True, blank=True, help_text="Empty: nobody said.")
    commercial_use = models.BooleanField(
        null=True, blank=True, help_text="Whether its licence permits it; empty: nobody said."
    )
    closed_api = models.BooleanField(
        default=False,
        help_text="Runs behind somebody's paid interface: cannot be repeated, and is ranked apart.",
    )
    parameter_count = models.PositiveBigIntegerField(null=True, blank=True, help_text="Weights of the model.")
    training_compute = models.CharField(
        max_length=120, blank=True, help_text="In the team's words: 8 A100, 3 days."
    )
    adapted_to = models.JSONField(
        default=list, blank=True, help_text="Slugs or names of datasets whose corpus it saw, without labels."
    )
    anonymous_until = models.DateTimeField(
        null=True,
        blank=True,
        db_index=True,
        help_text="Team, authors and links are kept back until then: a review is under way. Emptied when it is over.",
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
        """The system's page."""
        return reverse("system", args=[self.slug])

    @property
    def contributor(self) -> tuple[int | None, str]:
        """Team and participant: a team that sends runs of several participants counts as several contributors."""
        return self.team_id, self.participant


class DeclaredNumber(NamedTuple):
    """A number that teams declare of a system, by the name of its column here: `label` and `hint` are for pages.

    Where boards have a column of it, `key` and `head` are the column's, in `unit`, each of so many (`per`).
    """

    name: str
    label: str
    greatest: int
    hint: str
    key: str = ""
    head: str = ""
    unit: str = ""
    per: float = 1.0


#: In the order of forms. Forms, boards, corrections, pages, the API and the tables of curators read them from here.
DECLARED_NUMBERS = (
    DeclaredNumber(
        "parameter_count", "Weights", 10**15, "How many the model has, for example 109482240.",
        "declared-parameters", "Parameters", "M", 1e6,
    ),
    DeclaredNumber("dimension", "Dimension", 1_000_000, "Of the vectors, where there are any."),
    DeclaredNumber(
        "maximum_length", "Maximum length", 10_000_000, "Of its input, in tokens.",
        "maximum-length", "Longest text", "tokens",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredNumbers:
    """One system's value of each of `DECLARED_NUMBERS`; None: not declared."""

    parameter_count: int | None = None
    dimension: int | None = None
    maximum_length: int | None = None


class SystemRedirect(models.Model):
    """Where a system that was merged into another was found: links to it go on working."""

    slug = models.SlugField(max_length=120, unique=True)
    system = models.ForeignKey(System, on_delete=models.CASCADE, related_name="redirects")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.slug} → {self.system}"
