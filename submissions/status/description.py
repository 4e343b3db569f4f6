"""What a submission looks like to somebody: one description for the status page and the API."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db.models import Prefetch, QuerySet, prefetch_related_objects
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evaluation.execution.failures import MODEL_FAILURES
from leaderboard.boards.system.page import LABEL
from leaderboard.boards.system.standing import Standing, standings
from leaderboard.core import anonymity
from leaderboard.models import Dataset, Entry
from leaderboard.results.publishing.publication import best_shown_result
from submissions.models import TERMINAL, WAITING, Job, State, Submission
from submissions.queue.queue import awaits_judgements, queue_position, submission_state
from submissions.queue.workers import Obstacle, count_workers, find_obstacle
from submissions.quotas.counting import DatasetCharge, charges_of
from submissions.status.checkpoints import ModelPart, model_part, model_problems
from submissions.status.scores import NO_CHANGE, Score, describe_held, is_held, scores_of_entry, scores_of_job

#: What each state means, in words for the submitter.
MEANING = {
    State.UPLOADING: gettext_noop("The files are still arriving."),
    State.VALIDATING: gettext_noop("Waiting for a worker to check the file."),
    State.QUEUED: gettext_noop("Waiting for a worker."),
    State.RETRIEVING: gettext_noop("A worker is retrieving."),
    State.SCORING: gettext_noop("A worker is scoring the run."),
    State.DONE: gettext_noop("Scored."),
    State.REJECTED: gettext_noop("The file cannot be scored; the report says where and why."),
    State.FAILED: gettext_noop("This failed through a fault of ours. We are sorry."),
    State.CANCELLED: gettext_noop("Cancelled before it was scored."),
    State.TIMED_OUT: gettext_noop("It ran longer than a job may and was stopped."),
    State.WITHDRAWN: gettext_noop("Withdrawn."),
}


class _Result:
    """What a job and a seed set alike say of their result."""

    __slots__ = ()
    entry: Entry | None
    scores: Sequence[Score]

    @property
    def held(self) -> bool:
        """Whether it is no significant change: its scores are then those that the team has already."""
        return is_held(self.entry)

    @property
    def told_later(self) -> bool:
        """Whether it waits for its turn to be told."""
        return self.entry is not None and self.entry.waits_for_its_turn

    @property
    def baseline(self) -> str:
        """How the baseline is called that scores stand beside; empty where there is none."""
        return next((score.beside for score in self.scores if score.baseline is not None), "")


@dataclass(frozen=True, slots=True)
class JobStatus(_Result):
    """One dataset's part. What only its team may see is empty for others."""

    job: Job
    state: State
    meaning: str
    queue_position: int | None
    workers_alive: int
    workers_refusing: int = 0
    obstacle: Obstacle | None = None
    scores: Sequence[Score] = ()
    entry: Entry | None = None
    problems: Sequence[dict[str, Any]] = ()
    log: Sequence[str] = ()
    error: str = ""
    model: ModelPart = ModelPart()  # noqa: RUF009 - it is immutable
    awaits_judgements: bool = False

    @property
    def no_worker(self) -> str:
        """Why nobody takes a job that waits, as a sentence without its full stop; empty where somebody will."""
        if not self.waits or self.workers_alive:
            return ""
        if self.workers_refusing:
            or_gpus = ", or their GPUs cannot be used" if self.job.queue == Job.Queue.GPU else ""
            return f"Its workers are of another version than the database and wait for the upgrade{or_gpus}"
        needs_gpu = self.job.queue == Job.Queue.GPU or self.job.kind == Job.Kind.MODEL
        return f"No {self.job.queue.upper()} worker is alive" if needs_gpu else "No worker is alive"

    @property
    def elapsed(self) -> timedelta:
        """Duration of the last attempt, or the time since its arrival while it has not ended."""
        begun = self.job.created_at if self.job.finished_at is None else self.job.started_at
        return max((self.job.finished_at or timezone.now()) - (begun or self.job.created_at), timedelta(0))

    @property
    def progress(self) -> float:
        """Share of the present stage's work, 0 to 1."""
        return round(self.job.progress, 4)

    @property
    def error_code(self) -> str:
        """The stable name of what went wrong; empty where nothing did."""
        return self.job.error_code if self.error else ""

    @property
    def facts(self) -> dict[str, Any]:
        """What papers report of such a system."""
        return self.entry.facts if self.entry else {}

    @property
    def missing_queries(self) -> int | None:
        """Judged queries that the run does not have; unknown until it is scored, and where judgements are hidden."""
        return None if self.entry is None or self.job.dataset.hidden else self.entry.missing_queries

    @property
    def waits(self) -> bool:
        """Whether it waits for a worker."""
        return self.queue_position is not None

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in TERMINAL

    @property
    def lost(self) -> bool:
        """Whether it ended without a score."""
        return self.ended and self.state not in (State.DONE, State.WITHDRAWN)

    @property
    def word_pieces(self) -> str:
        """What BM25 over word pieces is called where scores stand beside it too; else empty."""
        return LABEL if any(score.word_pieces is not None for score in self.scores) else ""


@dataclass(frozen=True, slots=True)
class SeedRow:
    """One measure of a seed set: its mean, None before the set is published, the seeds' where they are told."""

    measure: str
    mean: Score | None
    values: Sequence[float | None]

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller value is the better one, as for Hole@10."""
        return Score(self.measure, 0.0).lower_is_better


@dataclass(frozen=True, slots=True)
class SeedSetStatus(_Result):
    """The runs of one dataset that are seeds of one system: one result, once all of them are scored.

    `scores` are the means of the published set, with their deviations; empty before that.
    """

    jobs: Sequence[JobStatus]
    entry: Entry | None = None
    scores: Sequence[Score] = ()

    @property
    def dataset(self) -> Dataset:
        """What they are seeds on."""
        return self.jobs[0].job.dataset

    @property
    def published(self) -> bool:
        """Whether its result is told."""
        return self.entry is not None and not self.held

    @property
    def tells_seeds(self) -> bool:
        """Whether seeds have values of their own beside the mean: not over hidden judgements."""
        return not self.dataset.hidden and not self.held

    @property
    def rows(self) -> list[SeedRow]:
        """The scores by measure: the mean, then each seed's, as far as there are any."""
        means = {score.measure: score for score in self.scores}
        told = self.jobs if self.tells_seeds else ()
        of_seeds = [{score.measure: score.value for score in job.scores} for job in told]
        measures = dict.fromkeys([*(measure for scores in of_seeds for measure in scores), *means])
        return [
            SeedRow(measure, means.get(measure), [scores.get(measure) for scores in of_seeds])
            for measure in measures
        ]

    @property
    def lost(self) -> list[JobStatus]:
        """Those that ended without a score: while there are any, the set is not published."""
        return [job for job in self.jobs if job.lost]

    @property
    def meaning(self) -> str:
        """How it stands, in words for the submitter."""
        done = sum(job.state == State.DONE for job in self.jobs)
        if self.entry is not None and is_held(self.entry):
            return describe_held(self.entry)
        if self.entry is not None:
            return _("One result: the mean of {number} seeds.").format(number=len(self.jobs))
        if self.lost:
            lost = ", ".join(f"{job.job.seed} ({job.state.label})" for job in self.lost)
            return _(
                "Not published: a set is one result, and has no score for seed {lost}. Send all of its "
                "runs again in one submission."
            ).format(lost=lost)
        return _("{done} of {number} seeds are scored. The set is published when all of them are.").format(
            done=done, number=len(self.jobs)
        )


@dataclass(slots=True)
class DatasetPart:
    """What a submission has on one dataset: a job, or a seed set with several."""

    jobs: Sequence[JobStatus]
    seeds: SeedSetStatus | None = None
    standing: Standing | None = None

    @property
    def dataset(self) -> Dataset:
        """What it is on."""
        return self.jobs[0].job.dataset

    @property
    def entry(self) -> Entry | None:
        """Its result, of a seed set the set's."""
        return self.seeds.entry if self.seeds is not None else self.jobs[0].entry

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it by itself."""
        return all(job.ended for job in self.jobs)

    @property
    def reason(self) -> str:
        """Why it has no score, in a few words; empty where it has one, or may still get one."""
        lost = [job for job in self.jobs if job.lost]
        errors = [each for job in lost for each in job.problems if each["severity"] == "error"]
        return str(errors[0]["message"]) if errors else next((job.error for job in lost), "")

    @property
    def outcome(self) -> str:
        """How it ended, in a line: of a seed set what the set has, and nothing where it is not complete."""
        name, entry = self.dataset.name, self.entry
        if entry is not None and entry.waits_for_its_turn:
            return f"{name}: scored, and published in its turn."
        if entry is not None and is_held(entry):
            known = best_shown_result(entry)
            measure = self.dataset.primary_measure
            shown = known.scores.get(measure) if known is not None else None
            told = f" Your team has {measure} {shown:.3f}." if shown is not None else ""
            return f"{name}: {NO_CHANGE}.{told}"
        if self.standing is not None:
            sentence = self.standing.sentence
            return f"{name}: {self.standing.score_text}. {sentence[:1].upper()}{sentence[1:]}."
        lost = [job for job in self.jobs if job.state != State.DONE]
        seeds = (
            f" (seed {', '.join(job.job.seed for job in lost)})" if self.seeds is not None and lost else ""
        )
        return f"{name}: {(lost or self.jobs)[0].state.label}{seeds}."


@dataclass(frozen=True, slots=True)
class SubmissionStatus:
    """A submission and its jobs. `complete` says whether the viewer sees everything or the public facts,
    `compare` whether scores stand beside their baseline."""

    submission: Submission
    state: State
    meaning: str
    jobs: Sequence[JobStatus] = field(default_factory=tuple)
    complete: bool = True
    parts: Sequence[DatasetPart] = ()
    compare: bool = True

    @property
    def priority(self) -> int | None:
        """Among its team's runs, for the team."""
        return self.submission.priority if self.complete else None

    @property
    def charges(self) -> list[DatasetCharge]:
        """What it cost of quotas, for its team; beside how these stand now where scores are compared too."""
        return charges_of(self.submission, now=self.compare) if self.complete else []

    @property
    def workers_alive(self) -> int | None:
        """Workers that take its waiting jobs; None when none waits."""
        return max((job.workers_alive for job in self.jobs if job.waits), default=None)

    @property
    def results(self) -> list[DatasetPart]:
        """The parts with a result whose standing is told."""
        return [part for part in self.parts if part.standing is not None]

    @property
    def seed_sets(self) -> list[SeedSetStatus]:
        """The sets that it brought."""
        return [part.seeds for part in self.parts if part.seeds is not None]

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen by itself."""
        return all(job.ended for job in self.jobs)

    @property
    def progress(self) -> str:
        """How far it is as a whole: `1 of 3 datasets done. NFCorpus: a worker is retrieving.`"""
        busy = [part for part in self.parts if not part.ended]
        if not busy or len(self.parts) == 1:
            return self.meaning
        part = min(busy, key=lambda part: part.jobs[0].waits)
        job = next(job for job in part.jobs if not job.ended)
        what = f"{job.meaning[:1].lower()}{job.meaning[1:]}"
        return _("{done} of {all} datasets done. {dataset}: {what}").format(
            done=len(self.parts) - len(busy), all=len(self.parts), dataset=part.dataset.name, what=what
        )

    @property
    def may_change(self) -> bool:
        """Whether there is anything left to cancel, show, hide or withdraw."""
        if self.submission.withdrawn_at is not None:
            return False
        return not self.ended or any(job.entry is not None for job in self.jobs)

    @property
    def queue_position(self) -> int | None:
        """How many jobs are before the first of these that waits; None when none waits."""
        return min((job.queue_position for job in self.jobs if job.queue_position is not None), default=None)


def with_jobs(submissions: QuerySet[Submission]) -> QuerySet[Submission]:
    """Return the submissions with all that `describe` needs, read at once."""
    measured = ("entry__measurements__hardware", "further_entries__measurements__hardware")
    jobs = Prefetch("jobs", _jobs().prefetch_related(*measured))
    return submissions.select_related("system", "team", "checkpoint", "round").prefetch_related(
        jobs, "quota_uses__dataset"
    )


def load_jobs(submission: Submission) -> None:
    """Read what `describe` needs of a submission that has just been stored, and has no results yet."""
    prefetch_related_objects([submission], Prefetch("jobs", _jobs()))


def _jobs() -> QuerySet[Job]:
    jobs = Job.objects.exclude(kind=Job.Kind.SHARD)
    related = ("dataset", "entry", "waits_for", "evaluation__run")
    return jobs.select_related(*related).defer("evaluation__values")


def describe(submission: Submission, *, complete: bool, compare: bool = True) -> SubmissionStatus:
    """Return the submission as it stands now, whole or only the facts that a public board shows as well.

    With `compare`, scores stand beside their dataset's baseline.
    """
    if not complete and submission.system.anonymous_until is not None:
        submission.team.name, submission.checkpoint = anonymity.ANONYMOUS, None
        for number, job in enumerate(submission.jobs.all(), 1):
            job.file_name = ""
            job.seed = f"seed {number}" if job.seed else ""
    jobs = [describe_job(job, complete=complete, compare=compare) for job in submission.jobs.all()]
    if not complete:
        jobs = [job for job in jobs if job.entry is not None]
    state = State.WITHDRAWN if submission.withdrawn_at else submission_state(job.state for job in jobs)
    by_dataset: dict[int, list[JobStatus]] = {}
    for status in jobs:
        by_dataset.setdefault(status.job.dataset_id, []).append(status)
    parts: list[DatasetPart] = []
    for members in by_dataset.values():
        if members[0].job.seed:
            entry = members[0].entry
            scores = scores_of_entry(entry, compare) if entry is not None else []
            parts.append(DatasetPart(members, SeedSetStatus(members, entry, scores)))
        else:
            parts += [DatasetPart([member]) for member in members]
    unpublished = [part.seeds.meaning for part in parts if part.seeds and part.seeds.lost]
    meaning = unpublished[0] if unpublished and state == State.DONE else _(MEANING[state])
    return SubmissionStatus(submission, state, meaning, tuple(jobs), complete, parts, compare)


def with_standings(statuses: Iterable[SubmissionStatus]) -> list[SubmissionStatus]:
    """Return the same, where each dataset's part says where its result stands. They are read together."""
    statuses = list(statuses)
    parts = [part for status in statuses for part in status.parts]
    for part in parts:
        if part.entry is not None:
            part.entry.dataset = part.dataset  # the same row, which need not be read again
    found = standings([part.entry for part in parts if part.entry is not None])
    for part in parts:
        part.standing = found.get(part.entry.pk if part.entry else 0)
    return statuses


def describe_with_standing(
    submission: Submission, *, complete: bool, compare: bool = True
) -> SubmissionStatus:
    """`describe` for one submission, with where its results stand."""
    return with_standings([describe(submission, complete=complete, compare=compare)])[0]


def outcome_text(status: SubmissionStatus, dataset: Dataset | None = None) -> str:
    """Return how a submission ended, for mails and webhooks: plain text, a line for each dataset, or for one alone.

    The status is one with standings, and its jobs have all ended.
    """
    return "\n".join(part.outcome for part in status.parts if dataset in (None, part.dataset))


def describe_job(job: Job, *, complete: bool, compare: bool = True) -> JobStatus:
    """One job as it stands now."""
    state = State(job.state)
    shown = job.entry is not None and (complete or job.entry.visibility in _FOR_EVERYONE)
    entry = job.entry if shown else None
    awaits = awaits_judgements(job)
    waits = state in WAITING and job.lease_expires_at is None and not awaits
    # What keeps every worker from a job that nobody works on, or from the shards that it waits for.
    idle = state not in TERMINAL and job.lease_expires_at is None
    hindered = find_obstacle(job) if idle and complete and not awaits else None
    alive, refusing = count_workers(job.queue) if waits else (0, 0)
    problems, runs_model = job.report.get("problems", []), job.kind == Job.Kind.MODEL
    return JobStatus(
        job=job,
        state=state,
        meaning=hindered.text if hindered else _meaning(job, state, entry),
        queue_position=queue_position(job),
        workers_alive=alive,
        workers_refusing=refusing,
        obstacle=hindered,
        scores=scores_of_job(job, entry, compare) if state == State.DONE else (),
        entry=entry,
        awaits_judgements=awaits,
        model=model_part(job, entry, complete=complete) if runs_model else ModelPart(),
        problems=(model_problems(problems) if runs_model else problems) if complete else (),
        log=job.log.splitlines() if complete else (),
        error=_error(job) if complete else "",
    )


#: Whose scores a submission's page shows to everyone: those that a board shows, or showed.
_FOR_EVERYONE = (Entry.Visibility.PUBLIC, Entry.Visibility.WITHDRAWN, Entry.Visibility.SUPERSEDED)


def _meaning(job: Job, state: State, entry: Entry | None) -> str:
    if entry is not None and is_held(entry):
        return describe_held(entry)
    if state in WAITING and job.lease_expires_at is not None:
        return _("A worker is checking the file.")
    if awaits_judgements(job):
        return (
            _(
                "Awaiting judgements: the dataset is collecting runs. Yours passed, and is scored with all others when "
                "the first judgements arrive."
            )
            if job.kind == Job.Kind.SCORE
            else _(
                "Awaiting judgements: the dataset is collecting runs. It begins when the first judgements arrive."
            )
        )
    if state in WAITING and job.not_before and job.not_before > timezone.now():
        tried = _("Tried {n} times; the next attempt begins at {at} UTC.")
        told = tried if job.attempts else _("The next attempt begins at {at} UTC.")
        return told.format(n=job.attempts, at=f"{job.not_before:%H:%M:%S}")
    return _(MEANING[state])


def _error(job: Job) -> str:
    """What went wrong, for a job that ended badly; empty otherwise."""
    if job.error_code in MODEL_FAILURES:
        return MODEL_FAILURES[job.error_code].meaning
    if job.state == State.FAILED:
        known = _(" Our log knows it as {id}.").format(id=job.fault) if job.fault else ""
        return _(MEANING[State.FAILED]) + known
    return _(MEANING[State(job.state)]) if job.state in (State.REJECTED, State.TIMED_OUT) else ""
