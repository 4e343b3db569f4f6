"""Work for a site under faults, and the count of what was lost or done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from leaderboard.models import BoardChange, Dataset, Entry, Evaluation, Run
from leaderboard.systems.records import SystemFields
from submissions.checkpoints.service import checkpoint_folder
from submissions.intake.files import IncomingFile
from submissions.intake.runs import accept_submission
from submissions.jobs.checkpoints import running
from submissions.models import TERMINAL, Job, Notice, QuotaUse, State, Submission
from submissions.notifications.sending import has_notifications, send_notifications
from tests.factories import make_user
from tests.faults.site import Site
from tests.submissions.collections import make_collection, run_text
from tests.submissions.model_jobs import import_small, make_submission, queue_model


class Work:
    """An open and a hidden dataset, and a person who submits runs to both at once."""

    def __init__(self, folder: Path, *, name: str = "faults") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        limits = {"daily_quota": 10_000, "monthly_quota": 10_000}
        self.open = make_collection(folder, f"{name}-open")
        self.hidden = make_collection(folder, f"{name}-hidden", hidden=True, **limits)
        self.person = make_user(name.title())
        self.count = 0

    def submit(self, datasets: Sequence[Dataset] = ()) -> Submission:
        """One more system's runs, each unlike all others, through the door that pages and API use."""
        self.count += 1
        datasets = datasets or (self.open, self.hidden)
        files = []
        for dataset in datasets:
            path = self.folder / f"{dataset.slug}-{self.count}.txt"
            path.write_text(run_text(depth=20 + self.count % 40, skip=self.count % 3, tag=f"run{self.count}"))
            files.append(IncomingFile(path.name, path, dataset.slug))
        system = SystemFields(f"{self.person.name} {self.count}", "dense")
        return accept_submission(self.person, system, files)


class ModelWork:
    """A small dataset with its BM25, and people who bring models that the toy engine runs."""

    def __init__(self, folder: Path, site: Site) -> None:
        self.open = import_small(folder)
        site.wait_for(lambda: Job.objects.filter(kind=Job.Kind.BASELINE, state=State.DONE), "BM25")
        self.count = 0

    def submit(self) -> Submission:
        """One more model, of somebody new, so that nothing is found encoded."""
        self.count += 1
        submission = make_submission(f"Toy {self.count}", pause=0.01)
        assert submission.checkpoint is not None
        # It has no weights that the library could look at.
        (checkpoint_folder(submission.checkpoint) / running.NOTE).write_text(running.releases())
        queue_model(self.open, submission)
        return submission


def ended(submissions: Iterable[Submission]) -> bool:
    """Whether all of their jobs have."""
    keys = [submission.pk for submission in submissions]
    return not Job.objects.filter(submission__in=keys).exclude(state__in=TERMINAL).exists()


def idle() -> bool:
    """Whether nothing at all is under way, nor asked for."""
    from leaderboard.models import WorkRequest

    asked = WorkRequest.objects.filter(taken_at=None).exclude(kind=WorkRequest.Kind.NOTIFY)
    return not Job.objects.exclude(state__in=TERMINAL).exists() and not asked.exists()


def lost() -> list[str]:
    """Accepted jobs of submissions that did not come to a result."""
    jobs = Job.objects.exclude(submission=None).exclude(state=State.DONE)
    return [f"job {job.pk} is {job.state} ({job.error_code}): {job.log[-400:]}" for job in jobs]


def tell_everybody() -> None:
    """Have people told of all that ended, twice over: the second time there is nothing to tell."""
    for _ in range(40):
        if not has_notifications():
            break
        send_notifications()
    send_notifications()


def doubled() -> list[str]:
    """What is there more than once, or not at all, of all that each finished job makes exactly once."""
    told = Notice.objects.values_list("person", "path")
    submissions = Submission.objects.filter(jobs__state=State.DONE).distinct()
    found = [
        *_not_once("entries", Entry.objects.values_list("system", "dataset")),
        *_not_once("runs", Run.objects.values_list("system", "version")),
        *_not_once("evaluations", Evaluation.objects.values_list("run__system", "run__version", "qrels")),
        *_not_once("publications", _publications()),
        *_not_once("charges", QuotaUse.objects.values_list("submission", "dataset")),
        *_not_once("notices", told),
    ]
    done = Job.objects.filter(state=State.DONE).exclude(submission=None)
    sent = Entry.objects.exclude(system__team=None)
    counts = {
        "entries": (sent.count(), done.count()),
        "evaluations": (Evaluation.objects.filter(entry__in=sent).count(), done.count()),
        "publications": (
            _publications().filter(entry__in=sent).count(),
            done.filter(dataset__hidden=False).count(),
        ),
        "notices": (told.count(), submissions.count()),
        "charges": (
            QuotaUse.objects.filter(refunded_at=None).count(),
            Submission.objects.filter(jobs__dataset__hidden=True).distinct().count(),
        ),
    }
    return found + [f"{have} {name}, {want} expected" for name, (have, want) in counts.items() if have != want]


def _publications() -> Any:
    """Changes of open boards that say that an entry came."""
    return BoardChange.objects.filter(
        kind=BoardChange.Kind.PUBLISHED, dataset__hidden=False, entry__isnull=False
    ).values_list("entry")


def _not_once(name: str, keys: Any) -> list[str]:
    return [f"{count} {name} of {key}" for key, count in Counter(keys).items() if count != 1]
