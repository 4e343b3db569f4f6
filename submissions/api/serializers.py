"""What the API answers about submissions: these serializers write it, and are its schema."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode
from rest_framework import serializers, status
from rest_framework.request import Request

from leaderboard.api.answers import ChallengeSerializer
from leaderboard.api.board_answers import MeasuredSerializer
from leaderboard.api.fields import (
    AddressField,
    Answer,
    MomentField,
    flag_field,
    integer_field,
    number_field,
    text_field,
    texts,
)
from leaderboard.boards.system.page import LABEL
from leaderboard.core.http.api_errors import ApiError, ProblemSerializer
from leaderboard.core.http.site_url import absolute
from leaderboard.core.text.numbers import DIGITS
from submissions.accounts.permissions import downloadable_runs
from submissions.api.requests import PageSerializer
from submissions.checkpoints.concurrency import TooManyChecks
from submissions.checkpoints.service import prompt_template
from submissions.core.errors import Refused
from submissions.quotas.ledger import QuotaSpent
from submissions.status.description import JobStatus, SubmissionStatus
from submissions.uploads.handler import REQUEST_TOO_LARGE


class ScoresField(serializers.DictField):
    """One thing of each `Score`, by measure: its value, or another that is not None."""

    def __init__(self, attribute: str = "value", **options: Any) -> None:
        self.attribute = attribute
        super().__init__(child=serializers.FloatField(), **options)

    def to_representation(self, value: Any) -> dict[str, float]:
        """By measure."""
        told = ((score.measure, getattr(score, self.attribute)) for score in value)
        return {measure: number for measure, number in told if number is not None}


class DeltasField(serializers.DictField):
    """Differences of `Score`s by what they are to, by measure; empty where there is nothing to compare with."""

    child = serializers.DictField(child=serializers.FloatField())

    def to_representation(self, value: Any) -> dict[str, dict[str, float]]:
        """Return the differences, rounded as pages show them."""
        found: dict[str, dict[str, float]] = {}
        for score in value:
            for name, compared in (("baseline", score), (LABEL, score.beside_word_pieces)):
                if compared.delta is not None:
                    found.setdefault(name, {})[score.measure] = round(compared.delta, DIGITS)
        return found


class SeedsField(serializers.ListField):
    """The labels of runs in a seed set."""

    child = text_field()

    def to_representation(self, value: Iterable[JobStatus]) -> list[str]:
        """In their order."""
        return [status.job.seed for status in value]


class RunAddressField(serializers.URLField):
    """Where the run of a `JobStatus` is, None for whoever may not have it; `runs` of the context are keys of jobs."""

    def to_representation(self, value: Any) -> Any:
        """Return the whole address."""
        job = value.job
        if job.pk not in self.context["runs"]:
            return None
        path = reverse("submission-run", args=[job.submission_id, job.dataset.slug])
        return absolute(
            self.context["request"], f"{path}?{urlencode({'seed': job.seed})}" if job.seed else path
        )


class StatisticsSerializer(Answer):
    """What was read."""

    lines = integer_field()
    queries = integer_field()
    known_queries = integer_field("Those of the queries that are the dataset's.")
    depth = integer_field("Number of documents in the longest ranking.")
    expanded_bytes = integer_field()
    tags = texts()
    metadata = serializers.DictField()


class ModelSerializer(Answer):
    """What a model is, as its files say."""

    kind = text_field()
    model_type = text_field("The architecture of its network, such as bert.")
    parameters = integer_field("How many weights it has.")
    dimension = integer_field("Of its vectors.", allow_null=True)
    maximum_length = integer_field("In tokens.", allow_null=True)
    pooling = text_field("Empty where the files do not say.")
    similarity = text_field("cosine or dot; empty where the files do not say.")
    prompts = serializers.DictField(
        child=serializers.CharField(),
        help_text="By name: those of queries and documents are put before them, others where a submission names them.",
    )
    prompt_template = text_field(
        "The family whose prompts it should have, such as Nomic Embed; empty where none is recognised."
    )


class ReportSerializer(Answer):
    """The verdict on a file."""

    valid = flag_field(source="report.valid")
    problems = ProblemSerializer(source="report.problems", many=True)
    statistics = StatisticsSerializer(source="report.statistics")
    checkpoint = ModelSerializer(allow_null=True, help_text="What a checkpoint is; null for all else.")
    pending = texts("Sentences on checks that only a job performs; it can still reject a valid checkpoint.")


class EfficiencySerializer(MeasuredSerializer):
    """What a model's job cost, as `/efficiency/` explains it."""

    hardware = text_field("The class of machine.")
    figures = serializers.DictField(
        help_text="Latency (mean, p50, p95, p99) in ms, memory in bytes, and more."
    )
    times_bm25 = number_field(
        "Mean latency over BM25's; null where it began with stored runs.", allow_null=True
    )


class VariantSerializer(Answer):
    """A further result of the same job, such as a lesser depth."""

    configuration = text_field(source="label")
    scores = serializers.DictField(source="entry.scores", child=serializers.FloatField())
    facts = serializers.DictField(source="entry.facts")
    latency_ms = number_field("Null if it was not measured or is doubtful.", allow_null=True)


class CheckpointSerializer(ModelSerializer):
    """The model of a submission."""

    id = integer_field(source="pk")
    sha256 = text_field("Of the rebuilt files: the identity of the model.", "model_sha256")
    file_name = text_field()
    size = integer_field("Of the rebuilt files, in bytes.")

    def get_fields(self) -> dict[str, Any]:
        """Its fields, of which only the kind is known of every model: descriptions of some kinds say less."""
        fields = super().get_fields()
        for name in ModelSerializer._declared_fields.keys() - {"kind"}:
            fields[name].allow_null = True
        return fields

    def to_representation(self, instance: SubmissionStatus) -> dict[str, Any] | None:  # type: ignore[override]
        """None for runs and for engines that run no model; its file's name for its team alone."""
        row = instance.submission.checkpoint
        if row is None:
            return None
        own = {name: getattr(row, name) for name in ("pk", "kind", "model_sha256", "size")}
        file_name = row.file_name if instance.complete else ""
        known = {
            **dict.fromkeys(self.fields),
            "prompt_template": prompt_template(row.description, row.file_name),
        }
        return super().to_representation({**known, **row.description, **own, "file_name": file_name})


class ShardsSerializer(Answer):
    """How far all workers are with the parts of a corpus."""

    done = integer_field()
    expected = integer_field("Of how many.")
    documents_per_second = number_field(
        "Of all workers together, lately; null before there are two parts.", allow_null=True
    )
    seconds_left = number_field("At that rate.", allow_null=True)
    cost = number_field("Of the machines' time so far; null where one has no price.", allow_null=True)
    currency = text_field("Empty where there is no cost.")


class JobSerializer(Answer):
    """One dataset's part of a submission; of a seed set one run."""

    dataset = text_field(source="job.dataset.slug")
    seed = text_field(
        "Its label in a seed set, else empty. Over hidden judgements no seed has scores.", "job.seed"
    )
    state = text_field(source="state.value")
    meaning = text_field("The state in words.")
    held = flag_field(
        "Not told, as no significant change or not yet: `scores` are those that the team has already."
    )
    told_later = flag_field(
        "Scored, and told in its turn: the dataset's results of new teams for today were told."
    )
    stage = text_field(source="job.stage")
    progress = number_field("Share of the present stage's work, 0 to 1.")
    progress_note = text_field("What a share cannot say: 12,000 of 50,000 documents.", "model.note")
    shards = ShardsSerializer(
        source="model.shards", allow_null=True, help_text="While the corpus is encoded in parts; else null."
    )
    queue = text_field(source="job.queue")
    queue_position = integer_field("Jobs before this one; null when it does not wait.", allow_null=True)
    no_worker = text_field(
        "Why nobody takes it, such as 'No GPU worker is alive'; empty where a worker will."
    )
    awaiting_judgements = flag_field(
        "Whether it is scored only when its dataset, which collects runs, is judged.", "awaits_judgements"
    )
    attempts = integer_field(source="job.attempts")
    scores = ScoresField(help_text="Measure → published value, once done.")
    deltas = DeltasField(
        source="scores",
        help_text="What to (baseline, the dataset's; bm25-wordpiece, where the job gives that too) → measure → "
        "difference.",
    )
    missing_queries = integer_field(
        "Judged queries that score 0; null where judgements are hidden.", allow_null=True
    )
    problems = ProblemSerializer(many=True)
    log = texts()
    error = text_field()
    error_code = text_field("Stable; empty where nothing went wrong.")
    remedy = text_field("What would be right, where a model failed.", "model.remedy")
    parameters = serializers.DictField(
        source="model.own_parameters",
        help_text="Those of the engine's that this dataset has for itself: prompts.",
    )
    facts = serializers.DictField(help_text="What papers report of such a system.")
    efficiency = EfficiencySerializer(
        source="model.costs.data", allow_null=True, help_text="What it cost, where it was measured."
    )
    variants = VariantSerializer(source="model.variants", many=True)
    board = AddressField(source="job.dataset.get_absolute_url")
    run_url = RunAddressField(
        source="*",
        allow_null=True,
        help_text="The run as it was scored (gzip); null where you may not have it.",
    )


class ResultSerializer(Answer):
    """Where a result stands on its dataset's board, by the primary measure; of hidden judgements what is published."""

    dataset = text_field("Slug.", "standing.dataset_slug")
    sentence = text_field("As pages, notices and mails say it, without a full stop.", "standing.sentence")
    delta = number_field("To the baseline.", "standing.delta", allow_null=True)
    rank = integer_field("Null off the board and on earlier judgements.", "standing.rank", allow_null=True)
    of = integer_field("How many results it is ranked among.", "standing.of")
    ties = serializers.ListField(
        source="standing.ties",
        child=serializers.IntegerField(),
        allow_null=True,
        help_text="First and last rank that the tests of all pairs leave open; null if they are not known.",
    )
    board = AddressField(source="standing.board_path", help_text="The board with its row marked.")


class SeedSetSerializer(Answer):
    """Several runs for one dataset: one result, published once all of them are scored."""

    dataset = text_field(source="dataset.slug")
    seeds = SeedsField(source="jobs", help_text="Labels, as of the jobs.")
    published = flag_field()
    held = flag_field(
        "Not told, as no significant change or not yet: `scores` are those that the team has already."
    )
    told_later = flag_field(
        "Scored, and told in its turn: the dataset's results of new teams for today were told."
    )
    meaning = text_field("How it stands, in words.")
    missing = SeedsField(
        source="lost", help_text="Seeds that ended without a score: the set is not published."
    )
    scores = ScoresField(help_text="Measure → mean of the seeds' published values.")
    deviations = ScoresField(
        "deviation", source="scores", help_text="Measure → their sample standard deviation (n − 1)."
    )
    deltas = DeltasField(source="scores", help_text="Of the means, as of jobs.")


class WindowSerializer(Answer):
    """A day or a calendar month, UTC."""

    used = integer_field("The larger of the next two, which the limit stops.")
    by_person = integer_field("Yours, for whatever team.")
    by_team = integer_field("Everybody's for the team.")
    limit = integer_field("Null: no limit.", allow_null=True)
    left = integer_field(allow_null=True)
    resets_at = MomentField(help_text="When counting begins anew, UTC.")


class QuotaSerializer(Answer):
    """What may still be submitted to a dataset whose judgements are hidden."""

    dataset = text_field("Slug.", "dataset.slug")
    team = text_field("Slug; null while you have none.", "team.slug", allow_null=True)
    awaits_approval = flag_field("Whether a curator is to approve the team before it submits here.")
    left = integer_field("How many now; null: no limit.", allow_null=True)
    resets_at = MomentField(help_text="When there are more again, UTC.")
    day = WindowSerializer()
    month = WindowSerializer()


class RefusalsSerializer(serializers.Serializer[Any]):
    """Files for hidden datasets that were refused today: so many a day cost nothing, and no more are read."""

    used = integer_field()
    limit = integer_field()
    left = integer_field()
    resets_at = MomentField(help_text="UTC.")


class QuotasSerializer(serializers.Serializer[Any]):
    """What is left of every quota."""

    quotas = QuotaSerializer(many=True, help_text="One for each hidden dataset and each of your teams.")
    refusals = RefusalsSerializer()


class ChargeSerializer(Answer):
    """What a submission cost on a dataset whose judgements are hidden."""

    dataset = text_field("Slug.", "dataset.slug")
    counted = flag_field("False once it was given back.", "is_counted")
    refund_reason = text_field("Why it was given back, else empty.")
    quota = QuotaSerializer(
        allow_null=True, help_text="As it is now; null in lists, and where nothing is limited."
    )


class SubmissionSerializer(Answer):
    """A submission."""

    id = text_field(source="submission.pk")
    round = text_field(
        "Slug of the round it came in; null outside of one.", "submission.round.slug", allow_null=True
    )
    late = flag_field("Whether it came after its round had closed.", "submission.late")
    run_type = text_field("automatic or manual; empty where that was not said.", "submission.run_type")
    priority = integer_field("Among its team's runs; null outside of rounds.", allow_null=True)
    state = text_field(source="state.value")
    meaning = text_field()
    kind = text_field(source="submission.kind")
    system = text_field("Slug.", "submission.system.slug")
    system_name = text_field(source="submission.system.name")
    team = text_field(source="submission.team.name")
    configuration = text_field(source="submission.configuration")
    public = flag_field(source="submission.public")
    reusable = flag_field(source="submission.reusable")
    engine = text_field("Empty for runs.", "submission.engine")
    parameters = serializers.DictField(
        source="submission.parameters", help_text="All of the engine's; empty for runs."
    )
    checkpoint = CheckpointSerializer(source="*", allow_null=True)
    created = MomentField(source="submission.created_at")
    withdrawal_reason = text_field(source="submission.withdrawal_reason")
    queue_position = integer_field(allow_null=True)
    workers_alive = integer_field(
        "Workers that take its waiting jobs; null when none waits.", allow_null=True
    )
    jobs = JobSerializer(many=True)
    results = ResultSerializer(many=True, help_text="Where each published result stands.")
    seed_sets = SeedSetSerializer(many=True, help_text="Several runs for one dataset, which are one result.")
    charges = ChargeSerializer(many=True, help_text="What it cost of quotas; for its team alone.")
    url = AddressField(source="submission.get_absolute_url")


class SubmissionPageSerializer(PageSerializer):
    """A page of submissions."""

    results = SubmissionSerializer(many=True)


class ChallengesSerializer(serializers.Serializer[Any]):
    """A system's challenges."""

    challenges = ChallengeSerializer(many=True)


def submission_answers(
    statuses: Iterable[SubmissionStatus], request: Request, *, own: bool | None = None
) -> list[dict[str, Any]]:
    """Submissions and their jobs; `own` as `downloadable_runs` takes it."""
    statuses = list(statuses)
    runs = {
        job.pk for status in statuses for job in downloadable_runs(request.user, status.submission, own=own)
    }
    written = SubmissionSerializer(statuses, many=True, context={"request": request, "runs": runs})
    return list(written.data)


def refused(refusal: Refused) -> ApiError:
    """Return the error for a refusal, with its status and, if time helps, when to send it again.

    Beside the problems it says whose they are, and which quotas are used up.
    """
    code: int = status.HTTP_400_BAD_REQUEST
    wait = None
    extra: Mapping[str, Any] = {"files": [file.as_dict() for file in refusal.files]} if refusal.files else {}
    if isinstance(refusal, QuotaSpent):
        extra = {"quotas": QuotaSerializer(refusal.quotas, many=True).data}
    if isinstance(refusal, TooManyChecks):
        code, wait = status.HTTP_429_TOO_MANY_REQUESTS, refusal.seconds
    elif refusal.code == REQUEST_TOO_LARGE:
        code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    return ApiError(
        refusal.code,
        refusal.detail,
        status_code=code,
        problems=refusal.all_problems(),
        extra=extra,
        wait=wait,
    )
