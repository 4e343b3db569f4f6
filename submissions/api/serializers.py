"""Response serializers for submissions, which also define the API schema."""

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
from leaderboard.core.http.api_errors import ApiError, ProblemSerializer
from leaderboard.core.http.site_url import absolute
from leaderboard.core.text.numbers import DIGITS
from leaderboard.results.values import WORD_PIECES
from submissions.accounts.permissions import downloadable_runs
from submissions.api.requests import PageSerializer
from submissions.checkpoints.concurrency import TooManyChecks
from submissions.checkpoints.service import prompt_template
from submissions.core.errors import Refused
from submissions.quotas.ledger import QuotaSpent
from submissions.status.description import JobStatus, SubmissionStatus
from submissions.uploads.handler import REQUEST_TOO_LARGE

#: Help texts of fields of jobs and seed sets.
_HELD = "Withheld: no significant change, or not yet released. `scores` are those of the team's earlier result."
_TOLD_LATER = "Scored, but released later: today's results for new teams on this dataset were already released."


class ScoresField(serializers.DictField):
    """One attribute of each `Score`, by measure; None is omitted."""

    def __init__(self, attribute: str = "value", **options: Any) -> None:
        self.attribute = attribute
        super().__init__(child=serializers.FloatField(), **options)

    def to_representation(self, value: Any) -> dict[str, float]:
        values = ((score.measure, getattr(score, self.attribute)) for score in value)
        return {measure: number for measure, number in values if number is not None}


class DeltasField(serializers.DictField):
    """Differences of `Score`s by reference and measure; empty without a reference."""

    child = serializers.DictField(child=serializers.FloatField())

    def to_representation(self, value: Any) -> dict[str, dict[str, float]]:
        """Return the differences from the baseline and the word-piece system, by reference and measure.

        They are rounded as on pages. Unknown differences are omitted.
        """
        deltas: dict[str, dict[str, float]] = {}
        for score in value:
            for name, comparison in (("baseline", score), (WORD_PIECES, score.word_piece_comparison)):
                if comparison.delta is not None:
                    deltas.setdefault(name, {})[score.measure] = round(comparison.delta, DIGITS)
        return deltas


class SeedsField(serializers.ListField):
    """Labels of the runs in a seed set."""

    child = text_field()

    def to_representation(self, value: Iterable[JobStatus]) -> list[str]:
        return [status.job.seed for status in value]


class RunAddressField(serializers.URLField):
    """Download URL of a `JobStatus`'s run; None unless the context's `runs` contains the job's key."""

    def to_representation(self, value: Any) -> Any:
        """Return the absolute URL of the run, with the seed if it has one, or None if it is not available."""
        job = value.job
        if job.pk not in self.context["runs"]:
            return None
        path = reverse("submission-run", args=[job.submission_id, job.dataset.slug])
        return absolute(self.context["request"], f"{path}?{urlencode({'seed': job.seed})}" if job.seed else path)


class StatisticsSerializer(Answer):
    """Statistics of a validated file."""

    lines = integer_field()
    queries = integer_field()
    known_queries = integer_field("Number of these queries that are in the dataset.")
    depth = integer_field("Number of documents in the longest ranking.")
    expanded_bytes = integer_field()
    tags = texts()
    metadata = serializers.DictField()


class ModelSerializer(Answer):
    """A model as described by its files."""

    kind = text_field()
    model_type = text_field("Network architecture, such as bert.")
    parameters = integer_field("Number of weights.")
    dimension = integer_field("Dimension of the vectors.", allow_null=True)
    maximum_length = integer_field("Maximum input length in tokens.", allow_null=True)
    pooling = text_field("Pooling method; empty if the files do not specify it.")
    similarity = text_field("`cosine` or `dot`; empty if the files do not specify it.")
    prompts = serializers.DictField(
        child=serializers.CharField(),
        help_text="Prompts by name. The query and document prompts apply by default, others when a "
        "submission names them.",
    )
    prompt_template = text_field("Model family whose prompts apply, such as Nomic Embed; empty if no family matches.")


class ReportSerializer(Answer):
    """Validation report of a file."""

    valid = flag_field(source="report.valid")
    problems = ProblemSerializer(source="report.problems", many=True)
    statistics = StatisticsSerializer(source="report.statistics")
    checkpoint = ModelSerializer(allow_null=True, help_text="Description of a checkpoint; null for other files.")
    pending = texts("Checks that only run with the job, which can therefore still reject a valid checkpoint.")


class EfficiencySerializer(MeasuredSerializer):
    """Costs measured during a model's job, as documented on `/efficiency/`."""

    hardware = text_field("Hardware class.")
    figures = serializers.DictField(help_text="Latency (mean, p50, p95, p99) in ms, memory in bytes, and more.")
    times_bm25 = number_field(
        "Mean latency divided by that of BM25; null if the engine starts from stored runs.", allow_null=True
    )


class VariantSerializer(Answer):
    """An additional result of the same job, such as a smaller depth."""

    configuration = text_field(source="label")
    scores = serializers.DictField(source="entry.scores", child=serializers.FloatField())
    facts = serializers.DictField(source="entry.facts")
    latency_ms = number_field("Latency per query in milliseconds; null if not measured or unreliable.", allow_null=True)


class CheckpointSerializer(ModelSerializer):
    """The model of a submission."""

    id = integer_field(source="pk")
    sha256 = text_field("SHA-256 of the rebuilt files, which identifies the model.", "model_sha256")
    file_name = text_field()
    size = integer_field("Size of the rebuilt files in bytes.")
    digest = text_field("Digest of a container image; null for other models.", allow_null=True)

    def get_fields(self) -> dict[str, Any]:
        """Return the fields; all but `kind` are nullable, because descriptions of some kinds lack them."""
        fields = super().get_fields()
        for name in ModelSerializer._declared_fields.keys() - {"kind"}:
            fields[name].allow_null = True
        return fields

    def to_representation(self, instance: SubmissionStatus) -> dict[str, Any] | None:  # type: ignore[override]
        """Return the model's description, or None for runs and engines without a model.

        The file name is empty unless the submission is shown completely, as to its team.
        """
        row = instance.submission.checkpoint
        if row is None:
            return None
        columns = {name: getattr(row, name) for name in ("pk", "kind", "model_sha256", "size")}
        defaults = {**dict.fromkeys(self.fields), "prompt_template": prompt_template(row.description, row.file_name)}
        columns |= {"file_name": row.file_name if instance.complete else ""}
        columns |= {"digest": row.description.get("image", {}).get("digest")}
        return super().to_representation({**defaults, **row.description, **columns})


class ShardsSerializer(Answer):
    """Progress of all workers on the shards of a corpus."""

    done = integer_field()
    expected = integer_field("Total number of shards.")
    documents_per_second = number_field(
        "Recent throughput of all workers; null until two shards are done.", allow_null=True
    )
    seconds_left = number_field("Estimated remaining time at this rate.", allow_null=True)
    cost = number_field("Cost of machine time so far; null if a machine has no price.", allow_null=True)
    currency = text_field("Currency of the cost; empty without a cost.")


class JobSerializer(Answer):
    """A submission's job for one dataset, or for one run of a seed set."""

    dataset = text_field(source="job.dataset.slug")
    seed = text_field(
        "Label in a seed set, otherwise empty. On hidden datasets, single seeds have no scores.", "job.seed"
    )
    state = text_field(source="state.value")
    meaning = text_field("Description of the state.")
    held = flag_field(_HELD)
    told_later = flag_field(_TOLD_LATER)
    stage = text_field(source="job.stage")
    progress = number_field("Completed share of the current stage, from 0 to 1.")
    progress_note = text_field("Progress in words, such as `12,000 of 50,000 documents`.", "model.note")
    shards = ShardsSerializer(
        source="model.shards",
        allow_null=True,
        help_text="Progress while the corpus is encoded in shards; otherwise null.",
    )
    queue = text_field(source="job.queue")
    queue_position = integer_field("Number of jobs ahead of this one; null if it is not waiting.", allow_null=True)
    no_worker = text_field(
        "Reason why no worker can run the job, such as `No worker for GPU jobs is online`; otherwise empty."
    )
    awaiting_judgements = flag_field(
        "Whether scoring waits for the relevance judgments of a dataset that is collecting runs.", "awaits_judgements"
    )
    attempts = integer_field(source="job.attempts")
    scores = ScoresField(help_text="Published values by measure, once the job is done.")
    deltas = DeltasField(
        source="scores",
        help_text="Differences by reference and measure. References: `baseline` (of the dataset) and, for "
        "some jobs, `bm25-wordpiece`.",
    )
    missing_queries = integer_field(
        "Number of judged queries without results, which score 0; null for hidden datasets.", allow_null=True
    )
    problems = ProblemSerializer(many=True)
    log = texts()
    error = text_field()
    error_code = text_field("Stable error code; empty without an error.")
    remedy = text_field("How to fix the failure of a model.", "model.remedy")
    parameters = serializers.DictField(
        source="model.own_parameters", help_text="Engine parameters specific to this dataset: prompts."
    )
    facts = serializers.DictField(help_text="Details of the system as papers report them.")
    efficiency = EfficiencySerializer(
        source="model.costs.data", allow_null=True, help_text="Measured costs, if available."
    )
    variants = VariantSerializer(source="model.variants", many=True)
    board = AddressField(source="job.dataset.get_absolute_url")
    run_url = RunAddressField(
        source="*", allow_null=True, help_text="Download URL of the scored run (gzip); null if you have no access."
    )


class ResultSerializer(Answer):
    """Rank of a result on its dataset's board by the primary measure; for hidden datasets, published values."""

    dataset = text_field("Slug of the dataset.", "standing.dataset_slug")
    sentence = text_field("Description as in notices and emails, without the final period.", "standing.sentence")
    delta = number_field("Difference from the baseline.", "standing.delta", allow_null=True)
    rank = integer_field(
        "Rank; null if the result is not on the board or was scored with earlier judgments.",
        "standing.rank",
        allow_null=True,
    )
    of = integer_field("Number of ranked results.", "standing.of")
    ties = serializers.ListField(
        source="standing.rank_range",
        child=serializers.IntegerField(),
        allow_null=True,
        help_text="First and last rank that the pairwise tests cannot rule out; null if unknown.",
    )
    board = AddressField(source="standing.board_path", help_text="Board with this result's row marked.")


class SeedSetSerializer(Answer):
    """Several runs for one dataset, published as one result once all are scored."""

    dataset = text_field(source="dataset.slug")
    seeds = SeedsField(source="jobs", help_text="Seed labels of the jobs.")
    published = flag_field()
    held = flag_field(_HELD)
    told_later = flag_field(_TOLD_LATER)
    meaning = text_field("Description of the state.")
    missing = SeedsField(source="lost", help_text="Seeds that ended without a score; the set is then not published.")
    scores = ScoresField(help_text="Mean of the seeds' published values, by measure.")
    deviations = ScoresField(
        "deviation", source="scores", help_text="Sample standard deviation (n − 1) over seeds, by measure."
    )
    deltas = DeltasField(source="scores", help_text="Differences of the means, structured as those of jobs.")


class WindowSerializer(Answer):
    """Usage within a day or calendar month (UTC)."""

    used = integer_field("Number that counts against the limit: the larger of `by_person` and `by_team`.")
    by_person = integer_field("Your submissions for any team.")
    by_team = integer_field("Submissions of all members for the team.")
    limit = integer_field("Limit; null means unlimited.", allow_null=True)
    left = integer_field(allow_null=True)
    resets_at = MomentField(help_text="Time when the count is reset (UTC).")


class QuotaSerializer(Answer):
    """Remaining submissions to a hidden dataset."""

    dataset = text_field("Slug of the dataset.", "dataset.slug")
    team = text_field("Slug of the team; null if you have none.", "team.slug", allow_null=True)
    awaits_approval = flag_field("Whether a curator must approve the team before it can submit to this dataset.")
    left = integer_field("Remaining submissions now; null means unlimited.", allow_null=True)
    resets_at = MomentField(help_text="Time when more submissions become available (UTC).")
    day = WindowSerializer()
    month = WindowSerializer()


class RefusalsSerializer(serializers.Serializer[Any]):
    """Today's rejected files for hidden datasets. They use no quota. Above the limit, no more files are read."""

    used = integer_field()
    limit = integer_field()
    left = integer_field()
    resets_at = MomentField(help_text="Time when the count is reset (UTC).")


class QuotasSerializer(serializers.Serializer[Any]):
    """Remaining submissions under every quota."""

    quotas = QuotaSerializer(many=True, help_text="One quota per hidden dataset and team of yours.")
    refusals = RefusalsSerializer()


class ChargeSerializer(Answer):
    """Quota use of a submission to a hidden dataset."""

    dataset = text_field("Slug of the dataset.", "dataset.slug")
    counted = flag_field("False after a refund.", "is_counted")
    refund_reason = text_field("Reason for the refund, otherwise empty.")
    quota = QuotaSerializer(allow_null=True, help_text="Current quota; null in lists and for unlimited datasets.")


class SubmissionSerializer(Answer):
    """A submission."""

    id = text_field(source="submission.pk")
    round = text_field(
        "Slug of the round; null for submissions outside of rounds.", "submission.round.slug", allow_null=True
    )
    late = flag_field("Whether the submission arrived after its round had closed.", "submission.late")
    run_type = text_field(
        "`automatic`, `manual`, `closed` (closed book), or `gold` (gold evidence); empty if not specified.",
        "submission.run_type",
    )
    priority = integer_field("Priority among the team's runs; null for submissions outside of rounds.", allow_null=True)
    state = text_field(source="state.value")
    meaning = text_field()
    kind = text_field(source="submission.kind")
    system = text_field("Slug of the system.", "submission.system.slug")
    system_name = text_field(source="submission.system.name")
    team = text_field(source="submission.team.name")
    configuration = text_field(source="submission.configuration")
    public = flag_field(source="submission.public")
    reusable = flag_field(source="submission.reusable")
    engine = text_field("Engine of a model submission; empty for runs.", "submission.engine")
    parameters = serializers.DictField(
        source="submission.parameters", help_text="All engine parameters; empty for runs."
    )
    checkpoint = CheckpointSerializer(source="*", allow_null=True)
    created = MomentField(source="submission.created_at")
    withdrawal_reason = text_field(source="submission.withdrawal_reason")
    queue_position = integer_field(allow_null=True)
    workers_alive = integer_field(
        "Number of live workers that can run its waiting jobs; null if no job is waiting.", allow_null=True
    )
    jobs = JobSerializer(many=True)
    results = ResultSerializer(many=True, help_text="Rank of each published result.")
    seed_sets = SeedSetSerializer(many=True, help_text="Several runs for one dataset, published as one result.")
    charges = ChargeSerializer(many=True, help_text="Quota use of the submission; only visible to its team.")
    url = AddressField(source="submission.get_absolute_url")


class SubmissionPageSerializer(PageSerializer):
    """A page of submissions."""

    results = SubmissionSerializer(many=True)


class ChallengesSerializer(serializers.Serializer[Any]):
    """A system's challenges."""

    challenges = ChallengeSerializer(many=True)


def submission_answers(
    statuses: Iterable[SubmissionStatus], request: Request, *, is_own: bool | None = None
) -> list[dict[str, Any]]:
    """Return the API's answers for submissions and their jobs.

    Users who may download a run get its URL. `is_own` is passed to `downloadable_runs`.
    """
    statuses = list(statuses)
    runs = {job.pk for status in statuses for job in downloadable_runs(request.user, status.submission, is_own=is_own)}
    return list(SubmissionSerializer(statuses, many=True, context={"request": request, "runs": runs}).data)


def build_refusal_error(refusal: Refused) -> ApiError:
    """Build the API error for a refusal: 429 for too many checks, 413 for a request that is too large, otherwise 400.

    The error contains the problems, and either exhausted quotas or the reports of files. An error with status 429 also
    contains the number of seconds to wait.
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
        refusal.code, refusal.detail, status_code=code, problems=refusal.all_problems(), extra=extra, wait=wait
    )
