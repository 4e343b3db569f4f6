"""Audit log, pools, judgment imports, rescores and challenges.

Written by `leaderboard.judgements`, `leaderboard.systems.challenges` and `leaderboard.core.audit`.
"""

from __future__ import annotations

from django.db import models

from leaderboard.models.base import AppendOnly


class AuditRecord(AppendOnly):
    """A curation action or a change of a public number, with author, time, values, and reason.

    Written by `leaderboard.core.audit`. Related objects may be deleted later; the record keeps their keys.
    """

    at = models.DateTimeField(db_index=True)
    actor = models.ForeignKey(
        "User", null=True, blank=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    actor_name = models.CharField(
        max_length=150, help_text="Name at the time of the action; “the site” for automatic actions."
    )
    action = models.CharField(max_length=40, db_index=True)
    subject = models.CharField(max_length=300)
    dataset = models.ForeignKey(
        "Dataset", null=True, blank=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    entry = models.ForeignKey(
        "Entry", null=True, blank=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    revision = models.PositiveIntegerField(null=True, blank=True, help_text="Revision of the dataset's board.")
    before = models.JSONField(default=dict, blank=True)
    after = models.JSONField(default=dict, blank=True)
    reason = models.TextField(blank=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.action}: {self.subject}"


class Pool(models.Model):
    """Query-document pairs drawn from runs for judging; the files are in private storage."""

    class State(models.TextChoices):
        """Progress of a pool."""

        DRAWING = "drawing", "being drawn"
        READY = "ready", "ready"
        FAILED = "failed", "failed"

    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="pools")
    version = models.ForeignKey("DatasetVersion", on_delete=models.PROTECT, related_name="+")
    qrels = models.ForeignKey(
        "Qrels", null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="Judgments whose pairs were excluded; empty if there were none.",
    )  # fmt: skip
    round = models.ForeignKey("Round", null=True, blank=True, on_delete=models.SET_NULL, related_name="pools")
    runs: models.ManyToManyField[models.Model, models.Model] = models.ManyToManyField("Run", related_name="pools")
    depth = models.PositiveSmallIntegerField(default=10, help_text="Number of top documents per query.")
    runs_per_team = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        help_text="Number of highest-priority runs per team; empty if runs were selected individually.",
    )
    state = models.CharField(max_length=8, choices=State.choices, default=State.DRAWING)
    files = models.JSONField(
        default=dict, help_text="SHA-256 of the file in private storage, by format (csv, trec, answers)."
    )
    statistics = models.JSONField(default=dict, help_text="Numbers of pairs, queries, and pairs by run, without ids.")
    created_by = models.ForeignKey("User", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"pool {self.pk} of {self.dataset}, depth {self.depth}"


class JudgementImport(models.Model):
    """Judgments imported by a curator, before and after they are merged into a new qrels version."""

    class State(models.TextChoices):
        """Progress of an import."""

        COMPARING = "comparing", "being compared with current judgments"
        READY = "ready", "awaiting a curator's decision"
        MERGING = "merging", "being merged"
        MERGED = "merged", "merged"
        DISCARDED = "discarded", "discarded"
        FAILED = "failed", "failed"

    class Conflicts(models.TextChoices):
        """Policies for pairs that already have a different grade."""

        KEEP = "keep", "keep the old grade"
        REPLACE = "replace", "use the new grade"
        HIGHEST = "highest", "use the higher grade"

    class JudgeKind(models.TextChoices):
        """Kinds of judges."""

        PEOPLE = "people", "people"
        MODEL = "model", "a model"
        LABELS = "labels", "judges in the file (labels of answers)"

    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="judgement_imports")
    version = models.ForeignKey("DatasetVersion", on_delete=models.PROTECT, related_name="+")
    against = models.ForeignKey("Qrels", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(Pool, null=True, blank=True, on_delete=models.SET_NULL, related_name="imports")
    file_name = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64, help_text="SHA-256 of the imported judgments, in private storage.")
    state = models.CharField(max_length=10, choices=State.choices, default=State.COMPARING)
    counts = models.JSONField(
        default=dict, help_text="Numbers of lines, new pairs, equal pairs, conflicts and queries."
    )
    conflicts_sha256 = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 of the list of conflicts, in private storage."
    )
    policy = models.CharField(max_length=8, choices=Conflicts.choices, blank=True)
    note = models.CharField(max_length=300, blank=True, help_text="Origin of the judgments.")
    judge_kind = models.CharField(max_length=6, choices=JudgeKind.choices, blank=True)
    judge_name = models.CharField(
        max_length=80,
        blank=True,
        help_text="Name of the assessors or the model; empty for old imports without one.",
    )
    judge_version = models.CharField(max_length=80, blank=True, help_text="Version of the model.")
    judge_prompt = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the model’s prompt.")
    qrels = models.ForeignKey("Qrels", null=True, blank=True, on_delete=models.PROTECT, related_name="imports")
    created_by = models.ForeignKey("User", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "judgment import"
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.file_name} for {self.dataset}"


class Rescore(models.Model):
    """An evaluation of all stored runs of a dataset on other judgments, and the decision to switch the board."""

    class State(models.TextChoices):
        """Progress of a rescore."""

        EVALUATING = "evaluating", "evaluating"
        READY = "ready", "awaiting a curator's decision"
        SWITCHED = "switched", "on the board"
        DISCARDED = "discarded", "discarded"
        FAILED = "failed", "failed"

    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="rescores")
    from_qrels = models.ForeignKey("Qrels", on_delete=models.PROTECT, related_name="+")
    to_qrels = models.ForeignKey("Qrels", on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=10, choices=State.choices, default=State.EVALUATING)
    done = models.PositiveIntegerField(default=0, help_text="Number of evaluated runs.")
    total = models.PositiveIntegerField(default=0)
    lost = models.JSONField(
        default=dict,
        blank=True,
        help_text="Reason why a run could not be evaluated, by run; such results stay unchanged.",
    )
    content = models.JSONField(
        default=dict,
        blank=True,
        help_text="Topics, statistics and open judgments that the switch publishes, and the settings of the "
        "evaluation.",
    )
    comparison = models.JSONField(
        default=dict,
        blank=True,
        help_text="Values of the board before and after, stored at the time of the decision.",
    )
    reason = models.CharField(max_length=300, blank=True)
    created_by = models.ForeignKey("User", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    decided_by = models.ForeignKey("User", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["dataset"],
                condition=models.Q(state__in=["evaluating", "ready"]),
                name="one_rescore_at_a_time",
            )
        ]

    def __str__(self) -> str:
        return f"{self.dataset}: {self.from_qrels} → {self.to_qrels}"


class Challenge(models.Model):
    """A challenge to a system's claims, which a curator settles and which remains public."""

    class Claim(models.TextChoices):
        """Kinds of challenged claims."""

        TRAINING = "training", "its training data"
        ADAPTED = "adapted", "corpora that it was adapted to"
        DESCRIPTION = "description", "its description, size or licence"
        RESULT = "result", "how a result was obtained"

    class State(models.TextChoices):
        """States of a challenge."""

        OPEN = "open", "open"
        UPHELD = "upheld", "upheld"
        REJECTED = "rejected", "not upheld"
        RETRACTED = "retracted", "retracted"

    system = models.ForeignKey("System", on_delete=models.CASCADE, related_name="challenges")
    dataset = models.ForeignKey("Dataset", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    claim = models.CharField(max_length=12, choices=Claim.choices)
    text = models.TextField(max_length=4000, help_text="Markdown, public")
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN, db_index=True)
    corrected = models.BooleanField(
        default=False,
        help_text="Whether the decision corrected the system's training data, which its team can no longer change.",
    )
    raised_by = models.ForeignKey("User", on_delete=models.PROTECT, related_name="challenges")
    raised_at = models.DateTimeField(auto_now_add=True)
    decision = models.TextField(blank=True, max_length=4000, help_text="Markdown, public")
    settled_by = models.ForeignKey("User", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.get_claim_display()} of {self.system}"
