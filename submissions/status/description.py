"""Description of a submission's state, shared by the status page, the API, and notifications."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Prefetch, QuerySet, prefetch_related_objects
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from evaluation.execution.failures import MODEL_FAILURES
from leaderboard.boards.system.standing import Standing, standings
from leaderboard.core import anonymity
from leaderboard.core.text.dates import format_moment
from leaderboard.models import Dataset, Entry
from leaderboard.results.publishing.publication import best_shown_result
from leaderboard.results.values import WORD_PIECES
from submissions.models import TERMINAL, WAITING, Job, State, Submission
from submissions.queue.queue import awaits_judgements, queue_position, submission_state
from submissions.queue.workers import Obstacle, count_workers, find_obstacle
from submissions.quotas.counting import DatasetCharge, get_charges
from submissions.status.checkpoints import ModelPart, model_part, model_problems
from submissions.status.scores import NO_CHANGE, Score, describe_held, entry_scores, is_held, job_scores

#: Meaning of each state for the submitter.
MEANING = {
    State.UPLOADING: gettext_noop("The files are still arriving."),
    State.VALIDATING: gettext_noop("Waiting for a worker to check the file."),
    State.QUEUED: gettext_noop("Waiting for a worker."),
    State.RETRIEVING: gettext_noop("A worker is retrieving."),
    State.SCORING: gettext_noop("A worker is scoring the run."),
    State.DONE: gettext_noop("Scored."),
    State.REJECTED: gettext_noop("The file cannot be scored. The report lists the problems."),
    State.FAILED: gettext_noop("This failed because of a fault on our side. We are sorry."),
    State.CANCELLED: gettext_noop("Canceled before it was scored."),
    State.TIMED_OUT: gettext_noop("The job exceeded its time limit and was stopped."),
    State.WITHDRAWN: gettext_noop("Withdrawn."),
}


class _Result:
    """Base class for results of single jobs and of seed sets."""

    __slots__ = ()
    entry: Entry | None
    scores: Sequence[Score]

    @property
    def held(self) -> bool:
        """Whether the result is withheld as no significant change, so that scores are the team's earlier ones."""
        return is_held(self.entry)

    @property
    def told_later(self) -> bool:
        """Whether the result is scored but waits for its release."""
        return self.entry is not None and self.entry.waits_for_its_turn

    @property
    def baseline(self) -> str:
        """Name of the baseline that scores are compared with; empty if there is none."""
        return next((score.baseline_name for score in self.scores if score.baseline is not None), "")


@dataclass(frozen=True, slots=True)
class JobStatus(_Result):
    """Status of one job of a submission; private fields are empty for viewers outside the team."""

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
        """Reason why no worker will claim a waiting job, without a final period.

        It is empty if a worker will claim the job, or if the job does not wait.
        """
        if not self.waits or self.workers_alive:
            return ""
        if self.workers_refusing:
            or_gpus = ", or their GPUs cannot be used" if self.job.queue == Job.Queue.GPU else ""
            return f"The workers run another version than the database and wait for the upgrade{or_gpus}"
        needs_gpu = self.job.queue == Job.Queue.GPU or self.job.kind == Job.Kind.MODEL
        return f"No worker for {self.job.queue.upper()} jobs is online" if needs_gpu else "No worker is online"

    @property
    def waited(self) -> timedelta:
        """Time from the job's creation to the start of the last attempt, or until now while it has not started."""
        start = self.job.started_at or self.job.finished_at or timezone.now()
        return max(start - self.job.created_at, timedelta(0))

    @property
    def worked(self) -> timedelta:
        """Duration of the last attempt until its end or until now; zero before its start."""
        end = self.job.finished_at or timezone.now()
        return max(end - (self.job.started_at or end), timedelta(0))

    @property
    def runs(self) -> bool:
        """Whether a worker has claimed the job and has not finished it."""
        return not (self.ended or self.waits or self.awaits_judgements)

    @property
    def progress(self) -> float:
        """Share of the current stage that is done, 0 to 1."""
        return round(self.job.progress, 4)

    @property
    def error_code(self) -> str:
        """Stable code of the failure; empty if there is none."""
        return self.job.error_code if self.error else ""

    @property
    def facts(self) -> dict[str, Any]:
        """Facts about the system that papers report."""
        return self.entry.facts if self.entry else {}

    @property
    def missing_queries(self) -> int | None:
        """Number of judged queries without results; None before scoring and for hidden datasets."""
        return None if self.entry is None or self.job.dataset.hidden else self.entry.missing_queries

    @property
    def depth_cap(self) -> int | None:
        """Depth of the run, if measures read more documents."""
        return next(filter(None, (score.capped_at for score in self.scores)), None)

    @property
    def waits(self) -> bool:
        """Whether the job waits for a worker."""
        return self.queue_position is not None

    @property
    def ended(self) -> bool:
        """Whether the job is in a terminal state."""
        return self.state in TERMINAL

    @property
    def lost(self) -> bool:
        """Whether the job ended without a score."""
        return self.ended and self.state not in (State.DONE, State.WITHDRAWN)

    @property
    def word_pieces(self) -> str:
        """Label of the BM25 baseline over word pieces if scores are compared with it, else empty."""
        return WORD_PIECES if any(score.word_pieces is not None for score in self.scores) else ""


@dataclass(frozen=True, slots=True)
class SeedRow:
    """One measure of a seed set: the mean, None before publication, and the values of the seeds if they are public."""

    measure: str
    mean: Score | None
    values: Sequence[float | None]

    @property
    def lower_is_better(self) -> bool:
        """Whether smaller values are better, as for Hole@10."""
        return Score(self.measure, 0.0).lower_is_better


@dataclass(frozen=True, slots=True)
class SeedSetStatus(_Result):
    """Status of a seed set: runs of one system on one dataset that form one result once all are scored.

    `scores` are the means of the published set with their deviations, and empty before publication.
    """

    jobs: Sequence[JobStatus]
    entry: Entry | None = None
    scores: Sequence[Score] = ()

    @property
    def dataset(self) -> Dataset:
        return self.jobs[0].job.dataset

    @property
    def published(self) -> bool:
        """Whether the result is published and not withheld."""
        return self.entry is not None and not self.held

    @property
    def shows_seeds(self) -> bool:
        """Whether the values of single seeds are shown; they are not on hidden datasets."""
        return not self.dataset.hidden and not self.held

    @property
    def rows(self) -> list[SeedRow]:
        """Mean and values of the seeds for each measure; the values are omitted if they are not shown."""
        means = {score.measure: score for score in self.scores}
        shown_jobs = self.jobs if self.shows_seeds else ()
        seed_scores = [{score.measure: score.value for score in job.scores} for job in shown_jobs]
        measures = dict.fromkeys([*(measure for scores in seed_scores for measure in scores), *means])
        return [
            SeedRow(measure, means.get(measure), [scores.get(measure) for scores in seed_scores])
            for measure in measures
        ]

    @property
    def lost(self) -> list[JobStatus]:
        """Jobs that ended without a score. The set is not published while there are any."""
        return [job for job in self.jobs if job.lost]

    @property
    def meaning(self) -> str:
        """State of the set in a sentence for the submitter."""
        done_count = sum(job.state == State.DONE for job in self.jobs)
        if self.entry is not None:
            one_result = _("One result: the mean of {number} seeds.").format(number=len(self.jobs))
            return describe_held(self.entry) if self.held else one_result
        if self.lost:
            failed_seeds = ", ".join(f"{job.job.seed} ({job.state.label})" for job in self.lost)
            return _(
                "Not published: seed {lost} has no score, and a seed set is published as a whole. Submit all runs of "
                "the set again in one submission."
            ).format(lost=failed_seeds)
        return _("{done} of {number} seeds are scored. The set is published when all of them are.").format(
            done=done_count, number=len(self.jobs)
        )


@dataclass(slots=True)
class DatasetPart:
    """Part of a submission on one dataset: a single job or a seed set."""

    jobs: Sequence[JobStatus]
    seeds: SeedSetStatus | None = None
    standing: Standing | None = None

    @property
    def dataset(self) -> Dataset:
        return self.jobs[0].job.dataset

    @property
    def anchor(self) -> str:
        """Id of the part's heading on the status page."""
        return f"job-{self.jobs[0].job.pk}" if self.seeds is None else f"set-{self.dataset.slug}"

    @property
    def warnings(self) -> int:
        return sum(problem["severity"] == "warning" for job in self.jobs for problem in job.problems)

    @property
    def needs_attention(self) -> bool:
        """Whether the status page shows the part's details unfolded: while it runs, and unless it ended as expected."""
        moderated = (Entry.Visibility.HELD, Entry.Visibility.QUARANTINED, Entry.Visibility.UNPUBLISHED)
        is_moderated = self.entry is not None and self.entry.visibility in moderated
        return not self.ended or is_moderated or any(job.lost for job in self.jobs)

    @property
    def entry(self) -> Entry | None:
        """Published entry of the job or of the seed set, if there is one."""
        return self.seeds.entry if self.seeds is not None else self.jobs[0].entry

    @property
    def ended(self) -> bool:
        """Whether all jobs are in a terminal state."""
        return all(job.ended for job in self.jobs)

    @property
    def reason(self) -> str:
        """Short reason why there is no score; empty if there is one or may still be."""
        lost_jobs = [job for job in self.jobs if job.lost]
        errors = [problem for job in lost_jobs for problem in job.problems if problem["severity"] == "error"]
        return str(errors[0]["message"]) if errors else next((job.error for job in lost_jobs), "")

    @property
    def outcome(self) -> str:
        """Outcome of the job or seed set in one line: that it is withheld, its score and rank, or its state."""
        name, entry = self.dataset.name, self.entry
        if entry is not None and entry.waits_for_its_turn:
            return f"{name}: scored, and published once it is released."
        if entry is not None and is_held(entry):
            shown_entry = best_shown_result(entry)
            measure = self.dataset.primary_measure
            value = shown_entry.scores.get(measure) if shown_entry is not None else None
            team_score = f" Your team has {measure} {value:.3f}." if value is not None else ""
            return f"{name}: {NO_CHANGE}.{team_score}"
        if self.standing is not None:
            sentence = self.standing.sentence
            return f"{name}: {self.standing.score_text}. {sentence[:1].upper()}{sentence[1:]}."
        unscored_jobs = [job for job in self.jobs if job.state != State.DONE]
        labels = ", ".join(job.job.seed for job in unscored_jobs)
        seeds = f" (seed {labels})" if self.seeds is not None and labels else ""
        return f"{name}: {(unscored_jobs or self.jobs)[0].state.label}{seeds}."


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a submission. Its state is `done`, `current`, `failed`, or empty if it comes later."""

    name: str
    state: str
    at: datetime | None = None
    duration_label: str = ""
    duration: timedelta | None = None
    #: Outcome in a few words, such as "no errors" or "2 of 3".
    note: str = ""


@dataclass(frozen=True, slots=True)
class SubmissionStatus:
    """Status of a submission and its jobs.

    `complete` states whether the viewer sees private fields, `compare` whether scores are compared with their baseline.
    """

    submission: Submission
    state: State
    meaning: str
    jobs: Sequence[JobStatus] = field(default_factory=tuple)
    complete: bool = True
    parts: Sequence[DatasetPart] = ()
    compare: bool = True

    @property
    def priority(self) -> int | None:
        """Priority among the team's runs; None for other viewers."""
        return self.submission.priority if self.complete else None

    @property
    def charges(self) -> list[DatasetCharge]:
        """Quota charged to the submission, for its team; with the present quota if scores are compared."""
        return get_charges(self.submission, now=self.compare) if self.complete else []

    @property
    def workers_alive(self) -> int | None:
        """Number of workers for the waiting jobs; None if no job waits."""
        return max((job.workers_alive for job in self.jobs if job.waits), default=None)

    @property
    def no_worker(self) -> str:
        """Reason why no worker will claim any of the waiting jobs; empty if one will, or if a job runs."""
        active_jobs = [job for job in self.jobs if not job.ended]
        return active_jobs[0].no_worker if active_jobs and all(job.no_worker for job in active_jobs) else ""

    @property
    def results(self) -> list[DatasetPart]:
        """Parts with a published standing."""
        return [part for part in self.parts if part.standing is not None]

    @property
    def seed_sets(self) -> list[SeedSetStatus]:
        return [part.seeds for part in self.parts if part.seeds is not None]

    @property
    def ended(self) -> bool:
        """Whether all jobs are in a terminal state."""
        return all(job.ended for job in self.jobs)

    @property
    def ordered_parts(self) -> list[DatasetPart]:
        """The parts for reading: running ones first, then waiting ones, then those that have ended."""
        return sorted(self.parts, key=lambda part: (part.ended, not any(job.runs for job in part.jobs)))

    @property
    def stages(self) -> list[Stage]:
        """Stages from the arrival to the publication.

        The first stage that is not done is current. It has failed if all jobs have ended without a score.
        """
        lost_jobs, states = [job for job in self.jobs if job.lost], {job.state for job in self.jobs}
        is_lost = len(lost_jobs) == len(self.jobs)
        entries = [part.entry for part in self.parts if part.entry is not None]
        published = [entry.published_at for entry in entries if not is_held(entry) and entry.published_at]
        starts = [job.job.started_at for job in self.jobs if job.job.started_at]
        ends = [job.job.finished_at for job in self.jobs if job.job.finished_at] if self.ended else []
        is_checked = not {State.UPLOADING, State.VALIDATING} & states and states != {State.REJECTED}
        scored_count = sum(job.ended and not job.lost for job in self.jobs)
        tally = _("{done} of {all}").format(done=scored_count, all=len(self.jobs)) if len(self.jobs) > 1 else ""
        waited = max((job.waited for job in self.jobs), default=None)
        worked = (max(ends) if ends else timezone.now()) - min(starts) if starts else None
        last_name = _("Published") if self.submission.public else _("Stored privately")
        warning_count = sum(part.warnings for part in self.parts)
        warnings = ngettext("{count} warning", "{count} warnings", warning_count).format(count=warning_count)
        checked_note = "" if State.REJECTED in states else warnings if warning_count else _("no errors")
        steps = [
            (True, Stage(_("Received"), "done", self.submission.created_at)),
            (is_checked, Stage(_("Checked"), "done", note=checked_note)),
            (bool(starts), Stage(_("Started"), "done", min(starts, default=None), _("waited"), waited)),
            (self.ended and not is_lost, Stage(_("Scored"), "done", max(ends, default=None), _("took"), worked, tally)),
            (self.ended and bool(published), Stage(last_name, "done", max(published, default=None))),
        ]
        done_count = next((number for number, (is_done, _stage) in enumerate(steps) if not is_done), len(steps))
        stages = [stage for _is_done, stage in steps[:done_count]]
        stages += [Stage(stage.name, "") for _is_done, stage in steps[done_count:]]
        if done_count < len(steps):
            stage = steps[done_count][1]
            if not self.ended:
                label = _("running for") if stage.duration_label == _("took") else stage.duration_label
                stages[done_count] = Stage(stage.name, "current", None, label, stage.duration, tally and stage.note)
            elif is_lost:
                lost = lost_jobs[0].state
                is_failed_scoring = (lost, stage.name) == (State.FAILED, _("Scored"))
                name = _("Scoring failed") if is_failed_scoring else lost.label.capitalize()
                state = "" if lost == State.CANCELLED else "failed"
                stages[done_count] = Stage(name, state, max(ends, default=None))
            elif any(map(is_held, entries)):
                stages[done_count] = Stage(stage.name, "", note=_("withheld: no significant change"))
        return stages

    @property
    def tally(self) -> str:
        """State of several unfinished datasets, such as "running, 1 of 3 done"; empty for one, and at the end."""
        done_count = sum(part.ended for part in self.parts)
        if self.ended or len(self.parts) == 1:
            return ""
        word = _("running") if any(job.runs for job in self.jobs) else _("waiting")
        return _("{word}, {done} of {all} done").format(word=word, done=done_count, all=len(self.parts))

    @property
    def progress(self) -> str:
        """Overall progress in words, such as "1 of 3 datasets done", and the activity of an unfinished job.

        A running job is preferred to waiting ones. If the submission has a single dataset, or all jobs have ended, the
        text explains the submission's state instead.
        """
        active_parts = [part for part in self.parts if not part.ended]
        if not active_parts or len(self.parts) == 1:
            return self.meaning
        part = min(active_parts, key=lambda part: part.jobs[0].waits)
        job = next(job for job in part.jobs if not job.ended)
        activity = f"{job.meaning[:1].lower()}{job.meaning[1:]}"
        return _("{done} of {all} datasets done. {dataset}: {what}").format(
            done=len(self.parts) - len(active_parts), all=len(self.parts), dataset=part.dataset.name, what=activity
        )

    @property
    def may_change(self) -> bool:
        """Whether a result or job can be canceled, shown, hidden, or withdrawn."""
        is_withdrawn = self.submission.withdrawn_at is not None
        return not is_withdrawn and (not self.ended or any(job.entry is not None for job in self.jobs))

    @property
    def queue_position(self) -> int | None:
        """Number of jobs before the first waiting job; None if no job waits."""
        return min((job.queue_position for job in self.jobs if job.queue_position is not None), default=None)


def with_jobs(submissions: QuerySet[Submission]) -> QuerySet[Submission]:
    """Return the submissions, prefetching everything that `describe` reads."""
    measurements = ("entry__measurements__hardware", "further_entries__measurements__hardware")
    jobs = Prefetch("jobs", _job_rows().prefetch_related(*measurements))
    return submissions.select_related("system", "team", "checkpoint", "round").prefetch_related(
        jobs, "quota_uses__dataset"
    )


def load_jobs(submission: Submission) -> None:
    """Prefetch what `describe` reads of a submission that was just stored and has no results yet."""
    prefetch_related_objects([submission], Prefetch("jobs", _job_rows()))


def _job_rows() -> QuerySet[Job]:
    jobs = Job.objects.exclude(kind=Job.Kind.SHARD)
    return jobs.select_related("dataset", "entry", "waits_for", "evaluation__run").defer("evaluation__values")


def describe(submission: Submission, *, complete: bool, compare: bool = True) -> SubmissionStatus:
    """Return the status of a submission with its jobs, seed sets, and scores.

    Without private fields, jobs without a visible result are omitted. For an anonymous system, the team, model, and
    file names of the given `submission` object are then replaced, too.

    Args:
        submission: The submission, best from `with_jobs`.
        complete: Whether to include private fields; otherwise only facts that public boards show.
        compare: Whether to compare scores with the baselines of their datasets.
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
        by_dataset.setdefault(status.job.dataset.pk, []).append(status)
    parts: list[DatasetPart] = []
    for members in by_dataset.values():
        if members[0].job.seed:
            entry = members[0].entry
            scores = entry_scores(entry, compare) if entry is not None else []
            parts.append(DatasetPart(members, SeedSetStatus(members, entry, scores)))
        else:
            parts += [DatasetPart([member]) for member in members]
    unpublished_sets = [part.seeds.meaning for part in parts if part.seeds and part.seeds.lost]
    meaning = unpublished_sets[0] if unpublished_sets and state == State.DONE else _(MEANING[state])
    return SubmissionStatus(submission, state, meaning, tuple(jobs), complete, parts, compare)


def with_standings(statuses: Iterable[SubmissionStatus]) -> list[SubmissionStatus]:
    """Set the standing of each part and return the statuses. All standings are computed together."""
    statuses = list(statuses)
    parts = [part for status in statuses for part in status.parts]
    for part in parts:
        if part.entry is not None:
            part.entry.dataset = part.dataset  # saves a query
    standings_by_entry = standings([part.entry for part in parts if part.entry is not None])
    for part in parts:
        part.standing = standings_by_entry.get(part.entry.pk if part.entry else 0)
    return statuses


def describe_with_standing(submission: Submission, *, complete: bool, compare: bool = True) -> SubmissionStatus:
    """Return the status of one submission with the standings of its results."""
    return with_standings([describe(submission, complete=complete, compare=compare)])[0]


def outcome_text(status: SubmissionStatus, dataset: Dataset | None = None) -> str:
    """Return the outcome of a submission as plain text, one line per dataset or for `dataset` only.

    All jobs must have ended, and the status must come from `with_standings`.
    """
    return "\n".join(part.outcome for part in status.parts if dataset in (None, part.dataset))


def describe_job(job: Job, *, complete: bool, compare: bool = True) -> JobStatus:
    """Return the present status of one job: its state in words, place in the queue, scores, problems, and log.

    Unless `complete` is true, the entry is given only if everyone may see it, and problems, log, and error are empty.
    """
    state = State(job.state)
    is_visible = job.entry is not None and (complete or job.entry.visibility in _FOR_EVERYONE)
    entry = job.entry if is_visible else None
    is_awaiting_judgements = awaits_judgements(job)
    waits = state in WAITING and job.lease_expires_at is None and not is_awaiting_judgements
    # Find an obstacle only for unclaimed jobs; a job that waits for shards has the obstacle of the shards.
    is_unclaimed = state not in TERMINAL and job.lease_expires_at is None
    obstacle = find_obstacle(job) if is_unclaimed and complete and not is_awaiting_judgements else None
    alive, refusing = count_workers(job.queue) if waits else (0, 0)
    problems, runs_model = job.report.get("problems", []), job.kind == Job.Kind.MODEL
    return JobStatus(
        job=job,
        state=state,
        meaning=obstacle.text if obstacle else _describe_state(job, state, entry),
        queue_position=queue_position(job),
        workers_alive=alive,
        workers_refusing=refusing,
        obstacle=obstacle,
        scores=job_scores(job, entry, compare) if state == State.DONE else (),
        entry=entry,
        awaits_judgements=is_awaiting_judgements,
        model=model_part(job, entry, complete=complete) if runs_model else ModelPart(),
        problems=(model_problems(problems) if runs_model else problems) if complete else (),
        log=job.log.splitlines() if complete else (),
        error=_failure_cause(job) if complete else "",
    )


#: Visibilities of entries with public scores on the submission's page, since a board shows or showed them.
_FOR_EVERYONE = (Entry.Visibility.PUBLIC, Entry.Visibility.WITHDRAWN, Entry.Visibility.SUPERSEDED)


def _describe_state(job: Job, state: State, entry: Entry | None) -> str:
    """Return the job's state in a sentence for the submitter, such as that it waits for judgments or a retry."""
    if entry is not None and is_held(entry):
        return describe_held(entry)
    if state in WAITING and job.lease_expires_at is not None:
        return _("A worker is checking the file.")
    if awaits_judgements(job):
        next_step = (
            _("Your run is valid and will be scored with all others when the first judgments arrive.")
            if job.kind == Job.Kind.SCORE
            else _("The job begins when the first judgments arrive.")
        )
        return f"{_('Awaiting judgments: the dataset is collecting runs.')} {next_step}"
    if state in WAITING and job.not_before and job.not_before > timezone.now():
        message_after_attempts = _("Tried {n} times; the next attempt begins at {at}.")
        message = message_after_attempts if job.attempts else _("The next attempt begins at {at}.")
        return message.format(n=job.attempts, at=format_moment(job.not_before, "seconds"))
    return _(MEANING[state])


def _failure_cause(job: Job) -> str:
    """Return why the job failed, was rejected, or timed out; empty for other jobs."""
    if job.error_code in MODEL_FAILURES:
        return MODEL_FAILURES[job.error_code].meaning
    if job.state == State.FAILED:
        reference = _(" The error id in our log is {id}.").format(id=job.fault) if job.fault else ""
        return _(MEANING[State.FAILED]) + reference
    return _(MEANING[State(job.state)]) if job.state in (State.REJECTED, State.TIMED_OUT) else ""
