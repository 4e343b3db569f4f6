"""How judgements grow, and who changed what.

Written by `leaderboard.judgements`, `leaderboard.systems.challenges` and `leaderboard.core.audit`.
"""

from __future__ import annotations

from typing import Any

from django.db import models


class AuditRecord(models.Model):
    """One act of curation, or one change of a public number: who, when, before, after, why. Append-only.

    Written by `leaderboard.core.audit`. What it names may be deleted later; the record keeps the keys.
    """

    at = models.DateTimeField(db_index=True)
    actor = models.ForeignKey(
        "User", null=True, blank=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    actor_name = models.CharField(
        max_length=150, help_text="As it was then; the site itself has its own name."
    )
    action = models.CharField(max_length=40, db_index=True)
    subject = models.CharField(max_length=300)
    dataset = models.ForeignKey(
        "Dataset", null=True, blank=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    entry = models.ForeignKey(
        "Entry", null=True, blank=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    revision = models.PositiveIntegerField(null=True, blank=True, help_text="Of the dataset's board.")
    before = models.JSONField(default=dict, blank=True)
    after = models.JSONField(default=dict, blank=True)
    reason = models.TextField(blank=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.action}: {self.subject}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write a new record. Raises TypeError for one that is there: records are never changed."""
        if not self._state.adding:
            raise TypeError("audit records are append-only")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raises TypeError: records stay."""
        raise TypeError("audit records are append-only")


class Pool(models.Model):
    """Pairs of query and document that were drawn from runs to be judged; its files lie in private storage."""

    class State(models.TextChoices):
        """How far it is."""

        DRAWING = "drawing", "being drawn"
        READY = "ready", "ready"
        FAILED = "failed", "failed"

    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="pools")
    version = models.ForeignKey("DatasetVersion", on_delete=models.PROTECT, related_name="+")
    qrels = models.ForeignKey(
        "Qrels", null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="The judgements whose pairs were left out; none where there were none.",
    )  # fmt: skip
    round = models.ForeignKey("Round", null=True, blank=True, on_delete=models.SET_NULL, related_name="pools")
    runs: models.ManyToManyField[models.Model, models.Model] = models.ManyToManyField(
        "Run", related_name="pools"
    )
    depth = models.PositiveSmallIntegerField(default=10, help_text="So many of each query's first documents.")
    runs_per_team = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        help_text="Of each team the runs of highest priority; empty: those that were chosen.",
    )
    state = models.CharField(max_length=8, choices=State.choices, default=State.DRAWING)
    files = models.JSONField(default=dict, help_text="Format (csv, trec) → sha256 in private storage.")
    statistics = models.JSONField(default=dict, help_text="Pairs, queries, pairs by run; never which.")
    created_by = models.ForeignKey("User", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"pool {self.pk} of {self.dataset}, depth {self.depth}"


class JudgementImport(models.Model):
    """Judgements that a curator brought, on their way into a new qrels version."""

    class State(models.TextChoices):
        """How far it is."""

        COMPARING = "comparing", "held against the present judgements"
        READY = "ready", "waiting for the curator"
        MERGING = "merging", "being merged"
        MERGED = "merged", "merged"
        DISCARDED = "discarded", "thrown away"
        FAILED = "failed", "failed"

    class Conflicts(models.TextChoices):
        """Which grade counts where a pair was judged before, differently."""

        KEEP = "keep", "keep the old grade"
        REPLACE = "replace", "take the new grade"
        HIGHEST = "highest", "take the higher grade"

    class JudgeKind(models.TextChoices):
        """Who judged."""

        PEOPLE = "people", "people"
        MODEL = "model", "a model"

    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="judgement_imports")
    version = models.ForeignKey("DatasetVersion", on_delete=models.PROTECT, related_name="+")
    against = models.ForeignKey("Qrels", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(Pool, null=True, blank=True, on_delete=models.SET_NULL, related_name="imports")
    file_name = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64, help_text="The judgements as they came, in private storage.")
    state = models.CharField(max_length=10, choices=State.choices, default=State.COMPARING)
    counts = models.JSONField(default=dict, help_text="Lines, new pairs, same, conflicts, queries.")
    conflicts_sha256 = models.CharField(
        max_length=64, blank=True, help_text="The conflicts, in private storage."
    )
    policy = models.CharField(max_length=8, choices=Conflicts.choices, blank=True)
    note = models.CharField(max_length=300, blank=True, help_text="Where the judgements are from.")
    judge_kind = models.CharField(max_length=6, choices=JudgeKind.choices, blank=True)
    judge_name = models.CharField(
        max_length=80, blank=True, help_text="Of the people or the model; empty: brought before it was asked."
    )
    judge_version = models.CharField(max_length=80, blank=True, help_text="Of the model.")
    judge_prompt = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the model’s prompt.")
    qrels = models.ForeignKey(
        "Qrels", null=True, blank=True, on_delete=models.PROTECT, related_name="imports"
    )
    created_by = models.ForeignKey("User", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.file_name} for {self.dataset}"


class Rescore(models.Model):
    """Every stored run of a dataset evaluated again on other judgements; then the board switches at once, or never."""

    class State(models.TextChoices):
        """How far it is."""

        EVALUATING = "evaluating", "evaluating"
        READY = "ready", "waiting for the curator"
        SWITCHED = "switched", "on the board"
        DISCARDED = "discarded", "thrown away"
        FAILED = "failed", "failed"

    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="rescores")
    from_qrels = models.ForeignKey("Qrels", on_delete=models.PROTECT, related_name="+")
    to_qrels = models.ForeignKey("Qrels", on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=10, choices=State.choices, default=State.EVALUATING)
    done = models.PositiveIntegerField(default=0, help_text="Runs evaluated.")
    total = models.PositiveIntegerField(default=0)
    lost = models.JSONField(
        default=dict,
        blank=True,
        help_text="Run → why it could not be evaluated; such results stay as they are.",
    )
    content = models.JSONField(
        default=dict,
        blank=True,
        help_text="What comes with the switch beside numbers: topics, statistics, open judgements; and the settings "
        "that the runs were evaluated under.",
    )
    comparison = models.JSONField(
        default=dict,
        blank=True,
        help_text="What the board showed and came to show, kept when it was decided.",
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
    """Somebody doubts what a system says of itself; a curator settles it, and the record stays for everyone to read."""

    class Claim(models.TextChoices):
        """What is doubted."""

        TRAINING = "training", "what it was trained on"
        ADAPTED = "adapted", "which corpora it had seen"
        DESCRIPTION = "description", "its description, size or licence"
        RESULT = "result", "how a result was obtained"

    class State(models.TextChoices):
        """How it stands."""

        OPEN = "open", "open"
        UPHELD = "upheld", "upheld"
        REJECTED = "rejected", "not upheld"
        RETRACTED = "retracted", "taken back"

    system = models.ForeignKey("System", on_delete=models.CASCADE, related_name="challenges")
    dataset = models.ForeignKey("Dataset", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    claim = models.CharField(max_length=12, choices=Claim.choices)
    text = models.TextField(max_length=4000, help_text="Markdown, public")
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN, db_index=True)
    corrected = models.BooleanField(
        default=False,
        help_text="Its decision corrected what the system says of its training, which its team changes no more.",
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
