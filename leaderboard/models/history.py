"""What boards were, and what was found of them.

Written by `leaderboard.results.board_rows.revisions` and `leaderboard.results.significance`.
"""

from __future__ import annotations

from django.db import models


class BoardChange(models.Model):
    """One change of a dataset's board: it gives the board a new revision, and the revision a date.

    News, the history of datasets and of systems, and permalinks are read from these rows.
    """

    class Kind(models.TextChoices):
        """What changed."""

        IMPORTED = "imported", "data set imported"
        PUBLISHED = "published", "result published"
        REPORTED = "reported", "reported figures"
        WITHDRAWN = "withdrawn", "result withdrawn"
        VISIBILITY = "visibility", "result shown or kept back"
        BASELINE = "baseline", "baseline named"
        MEASURED = "measured", "costs measured"
        MEASURES = "measures", "measures changed"
        SYSTEM = "system", "system described anew"
        TEAM = "team", "team renamed"
        DESCRIPTION = "description", "data set or benchmark described anew"
        PRICE = "price", "price of a machine"
        CERTAINTY = "certainty", "intervals and tests computed"
        QUARANTINED = "quarantined", "result quarantined"
        RESTORED = "restored", "result shown again"
        UNPUBLISHED = "unpublished", "result taken off"
        RESCORED = "rescored", "board switched to new judgements"
        REVEALED = "revealed", "private part revealed"
        PROTECTED = "protected", "protection changed"
        CHALLENGED = "challenged", "challenge raised or settled"
        RECORDED = "recorded", "recorded as it was found"

    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="board_changes")
    revision = models.PositiveIntegerField()
    kind = models.CharField(max_length=12, choices=Kind.choices)
    entry = models.ForeignKey(
        "Entry", null=True, blank=True, on_delete=models.SET_NULL, related_name="board_changes"
    )
    at = models.DateTimeField(db_index=True)
    facts = models.JSONField(
        default=dict, help_text="What the board needed of the data set itself: name, measures, judgements."
    )

    class Meta:
        ordering = ["-at", "-pk"]
        constraints = [models.UniqueConstraint(fields=["dataset", "revision"], name="board_revision_once")]

    def __str__(self) -> str:
        return f"{self.dataset}, revision {self.revision}: {self.kind}"


class EntryVersion(models.Model):
    """What boards showed of an entry from one revision of its dataset's board until another: append-only.

    `row` is the whole of it as plain values (the entry, its system and team as they were named then, its costs), so
    that an old board can be shown again whatever was renamed or withdrawn since.
    """

    entry = models.ForeignKey("Entry", on_delete=models.CASCADE, related_name="versions")
    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="entry_versions")
    from_revision = models.PositiveIntegerField()
    until_revision = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: as it is now.")
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
    """Which datasets a benchmark had from a time on, and how they counted: append-only, as `EntryVersion`."""

    benchmark = models.ForeignKey("Benchmark", on_delete=models.CASCADE, related_name="versions")
    at = models.DateTimeField()
    row = models.JSONField(help_text="Name, measure, source, and the members in their order.")

    class Meta:
        ordering = ["at", "pk"]
        indexes = [models.Index(fields=["benchmark", "at"])]

    def __str__(self) -> str:
        return f"{self.benchmark} from {self.at}"


class Certainty(models.Model):
    """What was found of a board's scores: intervals, tests, ranks. Written by `leaderboard.results.significance`.

    `key` names the evaluations it was computed from: where the board has others by now, tests of the whole board
    are of the past, and a new one is on its way. Never made for hidden judgements.
    """

    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="certainties")
    from_revision = models.PositiveIntegerField(help_text="The revision of the board that brought it.")
    comparison_group = models.CharField(max_length=120)
    key = models.CharField(max_length=64)
    settings = models.JSONField(help_text="Resamples, permutations, seed, level, as they were.")
    content = models.JSONField(
        help_text="Measure → what was found, by the entries' ids; none beside `same_as`."
    )
    same_as = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="The first row of this key, which has the content: the board is again what it was then.",
    )
    computed_at = models.DateTimeField()

    class Meta:
        ordering = ["from_revision"]
        constraints = [
            models.UniqueConstraint(fields=["dataset", "from_revision"], name="certainty_once_per_revision")
        ]

    def __str__(self) -> str:
        return f"{self.dataset} from revision {self.from_revision}"
