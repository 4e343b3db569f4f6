"""History of boards, and their significance tests.

Written by `leaderboard.results.board_rows.revisions` and `leaderboard.results.significance`.
"""

from __future__ import annotations

from django.db import models


class BoardChange(models.Model):
    """A change of a dataset's board, with the time of the resulting revision.

    News, histories of datasets and systems, and permalinks are based on these rows.
    """

    class Kind(models.TextChoices):
        """Kinds of changes."""

        IMPORTED = "imported", "dataset imported"
        PUBLISHED = "published", "result published"
        REPORTED = "reported", "reported figures"
        WITHDRAWN = "withdrawn", "result withdrawn"
        VISIBILITY = "visibility", "result shown or hidden"
        BASELINE = "baseline", "baseline set"
        MEASURED = "measured", "costs measured"
        MEASURES = "measures", "measures changed"
        SYSTEM = "system", "system description changed"
        TEAM = "team", "team renamed"
        DESCRIPTION = "description", "dataset or benchmark description changed"
        PRICE = "price", "price of a machine changed"
        CERTAINTY = "certainty", "intervals and tests computed"
        QUARANTINED = "quarantined", "result quarantined"
        RESTORED = "restored", "result restored"
        UNPUBLISHED = "unpublished", "result unpublished"
        RESCORED = "rescored", "board switched to new judgments"
        REVEALED = "revealed", "private part revealed"
        PROTECTED = "protected", "protection changed"
        CHALLENGED = "challenged", "challenge raised or settled"
        RECORDED = "recorded", "initial state recorded"

    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="board_changes")
    revision = models.PositiveIntegerField()
    kind = models.CharField(max_length=12, choices=Kind.choices)
    entry = models.ForeignKey("Entry", null=True, blank=True, on_delete=models.SET_NULL, related_name="board_changes")
    at = models.DateTimeField(db_index=True)
    facts = models.JSONField(
        default=dict, help_text="Properties of the dataset that the board used: name, measures, judgments."
    )

    class Meta:
        ordering = ["-at", "-pk"]
        constraints = [models.UniqueConstraint(fields=["dataset", "revision"], name="board_revision_once")]

    def __str__(self) -> str:
        return f"{self.dataset}, revision {self.revision}: {self.kind}"


class EntryVersion(models.Model):
    """Board row of an entry for a range of revisions of its dataset's board. Append-only.

    `row` contains the entry, its system and team under their names at the time, and its costs as plain values, so that
    old boards can be shown after renaming or withdrawal.
    """

    entry = models.ForeignKey("Entry", on_delete=models.CASCADE, related_name="versions")
    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="entry_versions")
    from_revision = models.PositiveIntegerField()
    until_revision = models.PositiveIntegerField(null=True, blank=True, help_text="Empty for the current version.")
    row = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["entry", "from_revision"], name="entry_version_once"),
            models.UniqueConstraint(
                fields=["entry"],
                condition=models.Q(until_revision=None),
                name="one_present_version_of_an_entry",
            ),
        ]
        indexes = [models.Index(fields=["dataset", "from_revision"])]

    def __str__(self) -> str:
        return f"{self.entry} from revision {self.from_revision}"


class BenchmarkVersion(models.Model):
    """Datasets of a benchmark from a time on, and their roles. Append-only, like `EntryVersion`."""

    benchmark = models.ForeignKey("Benchmark", on_delete=models.CASCADE, related_name="versions")
    at = models.DateTimeField()
    row = models.JSONField(help_text="Name, measure, source, and ordered members.")

    class Meta:
        ordering = ["at", "pk"]
        indexes = [models.Index(fields=["benchmark", "at"])]

    def __str__(self) -> str:
        return f"{self.benchmark} from {self.at}"


class Certainty(models.Model):
    """Confidence intervals, tests and ranks of a board. Written by `leaderboard.results.significance`.

    `key` identifies the evaluations. If the board has other evaluations by now, tests of the whole board are outdated
    and being recomputed. There are no rows for hidden judgments.
    """

    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="certainties")
    from_revision = models.PositiveIntegerField(help_text="First revision of the board with these results.")
    comparison_group = models.CharField(max_length=120)
    key = models.CharField(max_length=64)
    settings = models.JSONField(help_text="Numbers of resamples and permutations, seed, and level.")
    content = models.JSONField(help_text="Results by measure and entry id; empty if `same_as` is set.")
    same_as = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="First row with this key, which has the content, because the board has returned to that state.",
    )
    computed_at = models.DateTimeField()

    class Meta:
        ordering = ["from_revision"]
        constraints = [models.UniqueConstraint(fields=["dataset", "from_revision"], name="certainty_once_per_revision")]

    def __str__(self) -> str:
        return f"{self.dataset} from revision {self.from_revision}"


class BenchmarkCertainty(models.Model):
    """Tests of a benchmark's complete rows in one ranking. Written by `leaderboard.boards.benchmark.significance`.

    `key` is a digest of all inputs of the tests, by which current and past boards look up their results.
    """

    key = models.CharField(max_length=64, unique=True)
    settings = models.JSONField(help_text="Methods, numbers of resamples and permutations, seed, and level.")
    content = models.JSONField(help_text="Results by id of the row's first entry.")
    computed_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.key
