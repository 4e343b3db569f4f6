"""Profiles of collections and runs. Written by `leaderboard.results.profiles.store`."""

from __future__ import annotations

from django.db import models


class CollectionProfile(models.Model):
    """Text statistics of a dataset version for figures: vocabulary and document lengths.

    Unigram counts and document lengths are in storage under `terms_sha256`. The only stored text is the `example`,
    which pages show if the dataset's current settings allow it.
    """

    version = models.OneToOneField("DatasetVersion", on_delete=models.CASCADE, related_name="profile")
    terms_sha256 = models.CharField(max_length=64, help_text="SHA-256 of unigram counts and document lengths.")
    tokens = models.PositiveBigIntegerField()
    dropped = models.PositiveBigIntegerField(
        default=0, help_text="Number of tokens of words that are too rare to store."
    )
    vocabulary = models.PositiveIntegerField()
    document_lengths = models.JSONField(help_text="Bin edges and counts of a histogram of words per document.")
    relevance_by_length = models.JSONField(
        default=dict, help_text="Lengths of relevant documents; empty if judgments are hidden."
    )
    example = models.JSONField(
        default=dict, help_text="A query and a document, which is relevant only if judgments are open."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"profile of {self.version}"


class Overlap(models.Model):
    """Weighted Jaccard similarity of the normalized unigram frequencies of two corpora, 0 to 1."""

    first = models.ForeignKey("DatasetVersion", on_delete=models.CASCADE, related_name="+")
    second = models.ForeignKey("DatasetVersion", on_delete=models.CASCADE, related_name="+")
    weighted_jaccard = models.FloatField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["first", "second"], name="overlap_once"),
            models.CheckConstraint(
                condition=models.Q(weighted_jaccard__gte=0) & models.Q(weighted_jaccard__lte=1.000001),
                name="overlap_is_a_share",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.first} and {self.second}"


class RunProfile(models.Model):
    """Lengths of a run's top documents."""

    run = models.OneToOneField("Run", on_delete=models.CASCADE, related_name="profile")
    depth = models.PositiveSmallIntegerField(help_text="Number of top documents per query.")
    document_lengths = models.JSONField(
        help_text="Quantiles and histogram of words per document, in the format of evaluation.collections.profiles."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"profile of {self.run}"
