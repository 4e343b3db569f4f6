"""Which runs a model may build on: what it re-ranks, and what is fused."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Q, QuerySet

from evaluation.core.problems import ProblemCode
from evaluation.runs.score import check_run
from leaderboard.core import anonymity
from leaderboard.core.storage.runs import run_path
from leaderboard.datasets.qrels import scoring_target
from leaderboard.models import Dataset, Entry, Run, Team, Visibility
from submissions.core.errors import Refused
from submissions.models import Job, Submission

RUN_TWICE = ProblemCode("run_twice", "The same run was named twice.", "Name each run once.")
NO_USABLE_RUN = ProblemCode("no_usable_run", "There is no run of this name on the dataset that your team may build "
    "on.", "Your own, the site's, or one whose owner lets others build on it.")  # fmt: skip
FEW_QUERIES = ProblemCode("few_queries", "A run to build on that names too few queries of a dataset with hidden "
    "judgements.", "One that names at least 90% of its queries, or the site's own BM25.")  # fmt: skip

#: Of the queries of a dataset with hidden judgements, what a submitter's run must name to be built on.
LEAST_COVERAGE = 0.9


@dataclass(frozen=True, slots=True)
class RunSource:
    """Results that a model may build on, named as requests name them: a submission's id, or one of our systems."""

    reference: str
    system: str
    owner: str
    configuration: str
    datasets: tuple[str, ...]


def sources_for(teams: Iterable[Team]) -> list[RunSource]:
    """Everything that these teams may build on, their own first, newest first."""
    own = {team.pk for team in teams}
    entries = (
        _usable_entries(own)
        .select_related("system__team", "dataset", "evaluation__run")
        .order_by("-published_at", "-pk")
    )
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        if _is_current(entry):
            groups.setdefault(entry.submission_reference or entry.system.slug, []).append(entry)
    sources = []
    for reference, group in sorted(groups.items(), key=lambda item: item[1][0].system.team_id not in own):
        system = group[0].system
        owner = anonymity.public_team_name(system) if system.team else "the site's own"
        owner = "yours" if system.team_id in own else owner
        datasets = tuple(dict.fromkeys(entry.dataset.slug for entry in group))
        sources.append(RunSource(reference, system.name, owner, group[0].configuration, datasets))
    return sources


def runs_for(references: Sequence[str], dataset: Dataset, team: Team) -> list[Run]:
    """Return the run of each reference on the dataset. Raises Refused if the team may use none."""
    runs = [_run_of(reference, dataset, team) for reference in references]
    if len({run.pk for run in runs}) != len(runs):
        raise Refused.of(
            RUN_TWICE, f"The same run on {dataset} was named twice.", "Name each run that is fused once."
        )
    return runs


def source_runs(submission: Submission, *, complete: bool) -> list[Run]:
    """Return the public runs that the submission's jobs re-rank or fuse, annotated with `is_public`.

    With `complete`, as its team sees it, those of the team's own that are not public too.
    """
    keys = {key for job in submission.jobs.all() for key in job.payload.get("run_ids", [])}
    public = Exists(Entry.objects.public().filter(evaluation__run=OuterRef("pk")))
    shown = Q(is_public=True) | Q(system__team=submission.team) if complete else Q(is_public=True)
    runs = Run.objects.filter(pk__in=keys).annotate(is_public=public).filter(shown)
    if not complete:
        if submission.system.anonymous_until is not None:
            return []
        runs = runs.exclude(anonymity.anonymous_now("system__"))
    return list(runs.select_related("system", "version__dataset").order_by("version", "pk"))


def _run_of(reference: str, dataset: Dataset, team: Team) -> Run:
    named = Q(submission_reference=reference) | Q(
        system__slug=reference, system__team=None, submission_reference=""
    )
    entries = (
        _usable_entries({team.pk})
        .filter(named, dataset=dataset)
        .select_related("evaluation__run__version", "system")
        .prefetch_related("jobs")
    )
    usable = [entry for entry in entries.order_by("-published_at", "-pk") if _is_current(entry)]
    # Of a submission with variants, the one that stands for it: its job's own entry.
    main = next((entry for entry in usable if entry.jobs.all()), usable[0] if usable else None)
    if main is None or main.evaluation is None:
        raise Refused.of(
            NO_USABLE_RUN,
            f"“{reference}” has no run on {dataset} that your team may build on.",
            "Name a submission of your own, one whose owner lets others build on it, or one of the site's own "
            "systems such as bm25; its run has to be of the dataset's present version.",
        )
    run = main.evaluation.run
    if not dataset.hidden or main.system.team_id is None:
        return run
    # A result that is built on a run of few queries would tell how each of these was judged.
    job: Job | None = next(iter(main.jobs.all()), None)
    covered = job.report.get("statistics", {}).get("known_queries") if job else None
    if covered is None:  # it was not counted when the run was scored
        covered = check_run(run_path(run.sha256), scoring_target(run.version)).statistics.known_queries
    queries = int(run.version.statistics["queries"])
    if int(covered) < LEAST_COVERAGE * queries:
        raise Refused.of(
            FEW_QUERIES,
            f"“{reference}” names {int(covered):,} of the {queries:,} queries of {dataset}, which has hidden "
            "judgements.",
            f"To be built on there, a run names at least {100 * LEAST_COVERAGE:.0f}% of the queries. Submit one for "
            "all of them, or build on BM25.",
        )
    return run


def _usable_entries(own: set[int]) -> QuerySet[Entry]:
    """Entries whose runs these teams may use: their own, the site's, and public ones that their owners lent.

    Runs over queries that are not public are never used across teams.
    """
    public = Q(visibility=Entry.Visibility.PUBLIC)
    lent = Q(evaluation__run__reusable=True, dataset__queries_visibility=Visibility.PUBLIC)
    mine = Q(system__team__in=own) & ~Q(visibility=Entry.Visibility.WITHDRAWN)
    house = Q(system__team=None, system__source=None)
    return Entry.objects.filter(mine | (public & (lent | house)), evaluation__isnull=False)


def _is_current(entry: Entry) -> bool:
    """Whether the run answers the dataset as it is now."""
    return (
        entry.evaluation is not None and entry.evaluation.run.version_id == entry.dataset.current_version_id
    )
