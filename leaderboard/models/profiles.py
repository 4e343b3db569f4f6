"""What was found of collections and of what runs retrieve. Written by `leaderboard.results.profiles.store`."""

from __future__ import annotations

from django.db import models


class CollectionProfile(models.Model):
    """What figures need of a dataset version's texts: its vocabulary, and how long its documents are.

    The unigram counts and each document's length lie in storage under `terms_sha256`. No text is kept but that of the
    `example`, which pages show only as far as the dataset's present settings let them.
    """

    version = models.OneToOneField("DatasetVersion", on_delete=models.CASCADE, related_name="profile")
    terms_sha256 = models.CharField(max_length=64, help_text="Unigram counts and document lengths.")
    tokens = models.PositiveBigIntegerField()
    dropped = models.PositiveBigIntegerField(default=0, help_text="Tokens of words too rare to keep.")
    vocabulary = models.PositiveIntegerField()
    document_lengths = models.JSONField(help_text="Edges and counts of a histogram of words per document.")
    relevance_by_length = models.JSONField(
        default=dict, help_text="Lengths of relevant documents; empty where judgements are hidden."
    )
    example = models.JSONField(
        default=dict, help_text="A query and a document: a relevant one only where judgements are open."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"profile of {self.version}"


class Overlap(models.Model):
    """The weighted Jaccard similarity of two corpora's normalised unigram frequencies, 0 to 1."""

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
    """How long the documents are that a run ranks first."""

    run = models.OneToOneField("Run", on_delete=models.CASCADE, related_name="profile")
    depth = models.PositiveSmallIntegerField(help_text="So many of each query's first documents.")
    document_lengths = models.JSONField(
        help_text="Quantiles and histogram of words per document, as evaluation.collections.profiles gives them."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"profile of {self.run}"
