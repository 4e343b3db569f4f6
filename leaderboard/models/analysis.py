"""What was found of collections and of what runs retrieve. Written by `leaderboard.collection_figures`."""

from __future__ import annotations

from django.db import models


class CollectionProfile(models.Model):
    """What figures need of a dataset version's texts: its vocabulary, and how long its documents are.

    The unigram counts lie in storage under `terms_sha256`; nothing here tells what any document says.
    """

    version = models.OneToOneField("DatasetVersion", on_delete=models.CASCADE, related_name="profile")
    terms_sha256 = models.CharField(max_length=64, help_text="Unigram counts of the corpus, compressed.")
    tokens = models.PositiveBigIntegerField()
    vocabulary = models.PositiveIntegerField()
    document_lengths = models.JSONField(help_text="Edges and counts of a histogram of words per document.")
    relevance_by_length = models.JSONField(
        default=dict, help_text="Share of relevant documents by length; empty where judgements are hidden."
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
        help_text="Quantiles and a histogram of words per retrieved document, as evaluation.analysis gives them."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"profile of {self.run}"
