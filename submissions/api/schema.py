"""What the API answers, described for its documentation. Nothing is validated here: forms do that."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import serializers


class TokenScheme(OpenApiAuthenticationExtension):
    """`Authorization: Bearer <token>`, with a token from the account page."""

    target_class = "submissions.accounts.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """The scheme in OpenAPI's words."""
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A token from the account page, or from `manage.py api_token EMAIL`.",
        }


class ProblemSerializer(serializers.Serializer[Any]):
    """One class of problem in a file."""

    severity = serializers.ChoiceField(choices=["error", "warning"])
    code = serializers.CharField()
    count = serializers.IntegerField(help_text="How often it occurs.")
    lines = serializers.ListField(child=serializers.IntegerField(), help_text="The first five lines, from 1.")
    message = serializers.CharField(help_text="What is wrong.")
    hint = serializers.CharField(help_text="What would be right.")


class StatisticsSerializer(serializers.Serializer[Any]):
    """What was read."""

    lines = serializers.IntegerField()
    queries = serializers.IntegerField()
    known_queries = serializers.IntegerField(help_text="Those of the queries that are the dataset's.")
    expanded_bytes = serializers.IntegerField()
    tags = serializers.ListField(child=serializers.CharField())
    metadata = serializers.DictField()


class ModelSerializer(serializers.Serializer[Any]):
    """What a model is, as its files say."""

    kind = serializers.CharField()
    model_type = serializers.CharField(help_text="The architecture of its network, such as bert.")
    parameters = serializers.IntegerField(help_text="How many weights it has.")
    dimension = serializers.IntegerField(allow_null=True, help_text="Of its vectors.")
    maximum_length = serializers.IntegerField(allow_null=True, help_text="In tokens.")
    pooling = serializers.CharField(help_text="Empty where the files do not say.")
    similarity = serializers.CharField(help_text="cosine or dot; empty where the files do not say.")
    prompts = serializers.DictField(
        child=serializers.CharField(), help_text="Put before queries and documents."
    )


class ReportSerializer(serializers.Serializer[Any]):
    """The verdict on a file."""

    valid = serializers.BooleanField()
    problems = ProblemSerializer(many=True)
    statistics = StatisticsSerializer()
    checkpoint = ModelSerializer(allow_null=True, help_text="What a checkpoint is; null for all else.")


class ErrorSerializer(serializers.Serializer[Any]):
    """Every error of the API."""

    code = serializers.CharField()
    detail = serializers.CharField()
    problems = ProblemSerializer(many=True)


class EfficiencySerializer(serializers.Serializer[Any]):
    """What a model's job cost, as `/efficiency/` explains it."""

    hardware = serializers.CharField(help_text="The class of machine.")
    protocol = serializers.CharField()
    measured_at = serializers.DateTimeField()
    figures = serializers.DictField(
        help_text="Latency (mean, p50, p95, p99) in ms, memory in bytes, and more."
    )
    baseline = serializers.DictField(help_text="The same of BM25, on the same machine in the same job.")
    times_bm25 = serializers.FloatField(
        allow_null=True, help_text="Mean latency over BM25's; null where it began with stored runs."
    )


class VariantSerializer(serializers.Serializer[Any]):
    """A further result of the same job, such as a lesser depth."""

    configuration = serializers.CharField()
    scores = serializers.DictField(child=serializers.FloatField())
    facts = serializers.DictField()
    latency_ms = serializers.FloatField(allow_null=True)


class CheckpointSerializer(ModelSerializer):
    """The model of a submission."""

    id = serializers.IntegerField()
    sha256 = serializers.CharField(help_text="Of the rebuilt files: the identity of the model.")
    file_name = serializers.CharField()
    size = serializers.IntegerField(help_text="Of the rebuilt files, in bytes.")


class JobSerializer(serializers.Serializer[Any]):
    """One dataset's part of a submission; of a seed set one run."""

    dataset = serializers.CharField()
    seed = serializers.CharField(
        help_text="Its label in a seed set, else empty. Over hidden judgements no seed has scores."
    )
    state = serializers.CharField()
    meaning = serializers.CharField(help_text="The state in words.")
    held = serializers.BooleanField(
        help_text="Not told, as no significant change or not yet: `scores` are those that the team has already."
    )
    told_later = serializers.BooleanField(
        help_text="Scored, and told in its turn: the dataset's results of new teams for today were told."
    )
    stage = serializers.CharField()
    progress = serializers.FloatField(help_text="Share of the present stage's work, 0 to 1.")
    progress_note = serializers.CharField(help_text="What a share cannot say: 12,000 of 50,000 documents.")
    queue = serializers.CharField()
    queue_position = serializers.IntegerField(
        allow_null=True, help_text="Jobs before this one; null when it does not wait."
    )
    no_worker = serializers.CharField(
        help_text="Why nobody takes it, such as 'No GPU worker is alive'; empty where a worker will."
    )
    awaiting_judgements = serializers.BooleanField(
        help_text="Whether it is scored only when its dataset, which collects runs, is judged."
    )
    attempts = serializers.IntegerField()
    scores = serializers.DictField(
        child=serializers.FloatField(), help_text="Measure → published value, once done."
    )
    deltas = serializers.DictField(
        child=serializers.DictField(child=serializers.FloatField()),
        help_text="What to (baseline, the dataset's; bm25-wordpiece, where the job gives that too) → measure → "
        "difference.",
    )
    missing_queries = serializers.IntegerField(
        allow_null=True, help_text="Judged queries that score 0; null where judgements are hidden."
    )
    problems = ProblemSerializer(many=True)
    log = serializers.ListField(child=serializers.CharField())
    error = serializers.CharField()
    error_code = serializers.CharField(help_text="Stable; empty where nothing went wrong.")
    remedy = serializers.CharField(help_text="What would be right, where a model failed.")
    facts = serializers.DictField(help_text="What papers report of such a system.")
    efficiency = EfficiencySerializer(allow_null=True, help_text="What it cost, where it was measured.")
    variants = VariantSerializer(many=True)
    board = serializers.URLField()
    run_url = serializers.URLField(
        allow_null=True, help_text="The run as it was scored (gzip); null where you may not have it."
    )


class SeedSetSerializer(serializers.Serializer[Any]):
    """Several runs for one dataset: one result, published once all of them are scored."""

    dataset = serializers.CharField()
    seeds = serializers.ListField(child=serializers.CharField(), help_text="Labels, as of the jobs.")
    published = serializers.BooleanField()
    held = serializers.BooleanField(
        help_text="Not told, as no significant change or not yet: `scores` are those that the team has already."
    )
    told_later = serializers.BooleanField(
        help_text="Scored, and told in its turn: the dataset's results of new teams for today were told."
    )
    meaning = serializers.CharField(help_text="How it stands, in words.")
    missing = serializers.ListField(
        child=serializers.CharField(), help_text="Seeds that ended without a score: the set is not published."
    )
    scores = serializers.DictField(
        child=serializers.FloatField(), help_text="Measure → mean of the seeds' published values."
    )
    deviations = serializers.DictField(
        child=serializers.FloatField(), help_text="Measure → their sample standard deviation (n − 1)."
    )
    deltas = serializers.DictField(
        child=serializers.DictField(child=serializers.FloatField()), help_text="Of the means, as of jobs."
    )


class WindowSerializer(serializers.Serializer[Any]):
    """A day or a calendar month, UTC."""

    used = serializers.IntegerField(help_text="The larger of the next two, which the limit stops.")
    by_person = serializers.IntegerField(help_text="Yours, for whatever team.")
    by_team = serializers.IntegerField(help_text="Everybody's for the team.")
    limit = serializers.IntegerField(allow_null=True, help_text="Null: no limit.")
    left = serializers.IntegerField(allow_null=True)
    resets_at = serializers.DateTimeField(help_text="When counting begins anew, UTC.")


class QuotaSerializer(serializers.Serializer[Any]):
    """What may still be submitted to a dataset whose judgements are hidden."""

    dataset = serializers.CharField(help_text="Slug.")
    team = serializers.CharField(allow_null=True, help_text="Slug; null while you have none.")
    awaits_approval = serializers.BooleanField(
        help_text="Whether a curator is to approve the team before it submits here."
    )
    left = serializers.IntegerField(allow_null=True, help_text="How many now; null: no limit.")
    resets_at = serializers.DateTimeField(help_text="When there are more again, UTC.")
    day = WindowSerializer()
    month = WindowSerializer()


class ChargeSerializer(serializers.Serializer[Any]):
    """What a submission cost on a dataset whose judgements are hidden."""

    dataset = serializers.CharField(help_text="Slug.")
    counted = serializers.BooleanField(help_text="False once it was given back.")
    refund_reason = serializers.CharField(help_text="Why it was given back, else empty.")
    quota = QuotaSerializer(
        allow_null=True, help_text="As it is now; null in lists, and where nothing is limited."
    )


class SubmissionSerializer(serializers.Serializer[Any]):
    """A submission."""

    id = serializers.CharField()
    round = serializers.CharField(
        allow_null=True, help_text="Slug of the round it came in; null outside of one."
    )
    late = serializers.BooleanField(help_text="Whether it came after its round had closed.")
    run_type = serializers.CharField(help_text="automatic or manual; empty where that was not said.")
    priority = serializers.IntegerField(
        allow_null=True, help_text="Among its team's runs; null outside of rounds."
    )
    state = serializers.CharField()
    meaning = serializers.CharField()
    kind = serializers.CharField()
    system = serializers.CharField(help_text="Slug.")
    system_name = serializers.CharField()
    team = serializers.CharField()
    configuration = serializers.CharField()
    public = serializers.BooleanField()
    reusable = serializers.BooleanField()
    engine = serializers.CharField(help_text="Empty for runs.")
    parameters = serializers.DictField(help_text="All of the engine's; empty for runs.")
    checkpoint = CheckpointSerializer(allow_null=True)
    created = serializers.DateTimeField()
    withdrawal_reason = serializers.CharField()
    queue_position = serializers.IntegerField(allow_null=True)
    workers_alive = serializers.IntegerField(
        allow_null=True, help_text="Workers that take its waiting jobs; null when none waits."
    )
    jobs = JobSerializer(many=True)
    seed_sets = SeedSetSerializer(many=True, help_text="Several runs for one dataset, which are one result.")
    charges = ChargeSerializer(many=True, help_text="What it cost of quotas; for its team alone.")
    url = serializers.URLField()


class SubmissionPageSerializer(serializers.Serializer[Any]):
    """A page of submissions."""

    count = serializers.IntegerField(help_text="On all pages.")
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = SubmissionSerializer(many=True)
