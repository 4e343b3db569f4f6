"""Selection of the runs that an engine re-ranks or fuses."""

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
NO_USABLE_RUN = ProblemCode(
    "no_usable_run",
    "The dataset has no run of this name that your team may use.",
    "Name your own run, a run of the site, or a reusable run of another team.",
)
FEW_QUERIES = ProblemCode(
    "few_queries",
    "The run to re-rank or fuse covers too few queries of a hidden dataset.",
    "Name a run that covers at least 90% of the queries, or the site's BM25.",
)

#: Minimum share of a hidden dataset's queries that a submitted run must cover to be re-ranked or fused.
MIN_COVERAGE = 0.9


@dataclass(frozen=True, slots=True)
class RunSource:
    """Runs that a model may use. `reference` is a submission id or the slug of a system that the site provides."""

    reference: str
    system: str
    owner: str
    configuration: str
    datasets: tuple[str, ...]


def get_sources(teams: Iterable[Team]) -> list[RunSource]:
    """Return the runs that the teams may use on current versions, grouped by submission or system of the site.

    The teams' own runs come first. Within each part, the newest come first.
    """
    team_ids = {team.pk for team in teams}
    entries = (
        _usable_entries(team_ids)
        .select_related("system__team", "dataset", "evaluation__run")
        .order_by("-published_at", "-pk")
    )
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        if _is_current(entry):
            groups.setdefault(entry.submission_reference or entry.system.slug, []).append(entry)
    sources = []
    for reference, group in sorted(groups.items(), key=lambda item: item[1][0].system.team_id not in team_ids):
        system = group[0].system
        owner = anonymity.public_team_name(system) if system.team else "the site's own"
        owner = "yours" if system.team_id in team_ids else owner
        datasets = tuple(dict.fromkeys(entry.dataset.slug for entry in group))
        sources.append(RunSource(reference, system.name, owner, group[0].configuration, datasets))
    return sources


def select_runs(references: Sequence[str], dataset: Dataset, team: Team) -> list[Run]:
    """Return the run of each reference on the dataset.

    A reference is a submission id or the slug of a system that the site provides. Raises Refused for runs that the team
    may not use, for repeated runs, and, on hidden datasets, for runs that cover few queries.
    """
    runs = [_find_run(reference, dataset, team) for reference in references]
    if len({run.pk for run in runs}) != len(runs):
        raise Refused.for_problem(RUN_TWICE, f"The same run on {dataset} was named twice.", "Name each run only once.")
    return runs


def source_runs(submission: Submission, *, complete: bool) -> list[Run]:
    """Return the runs that the submission's jobs re-rank or fuse, annotated with `is_public`.

    With `complete`, the view of its own team, these are the public runs and the team's private runs. Other users see
    only public runs whose systems are not anonymous, and none if the submission's system is or was anonymous.
    """
    keys = {key for job in submission.jobs.all() for key in job.payload.get("run_ids", [])}
    is_public = Exists(Entry.objects.public().filter(evaluation__run=OuterRef("pk")))
    is_visible = Q(is_public=True) | Q(system__team=submission.team) if complete else Q(is_public=True)
    runs = Run.objects.filter(pk__in=keys).annotate(is_public=is_public).filter(is_visible)
    if not complete:
        if submission.system.anonymous_until is not None:
            return []
        runs = runs.exclude(anonymity.anonymous_now("system__"))
    return list(runs.select_related("system", "version__dataset").order_by("version", "pk"))


def _find_run(reference: str, dataset: Dataset, team: Team) -> Run:
    """Return the newest usable run with this reference on the dataset, preferring a submission's main result.

    Raises Refused if there is none, or if a team's run on a hidden dataset covers too few queries.
    """
    matches_reference = Q(submission_reference=reference) | Q(
        system__slug=reference, system__team=None, submission_reference=""
    )
    entries = (
        _usable_entries({team.pk})
        .filter(matches_reference, dataset=dataset)
        .select_related("evaluation__run__version", "system")
        .prefetch_related("jobs")
    )
    usable_entries = [entry for entry in entries.order_by("-published_at", "-pk") if _is_current(entry)]
    # Among variants of a submission, prefer the main result, which is the entry of its job.
    main_entry = next(
        (entry for entry in usable_entries if entry.jobs.all()), usable_entries[0] if usable_entries else None
    )
    if main_entry is None or main_entry.evaluation is None:
        raise Refused.for_problem(
            NO_USABLE_RUN,
            f"“{reference}” has no run on {dataset} that your team may use.",
            "Name your own submission, a reusable one, or a system that this site provides, "
            "such as bm25; its run must be of the dataset's current version.",
        )
    run = main_entry.evaluation.run
    if not dataset.hidden or main_entry.system.team_id is None:
        return run
    # The result of a run with few queries would reveal the judgments of each query.
    job: Job | None = next(iter(main_entry.jobs.all()), None)
    covered_queries = job.report.get("statistics", {}).get("known_queries") if job else None
    if covered_queries is None:  # the queries were not counted when the run was scored
        covered_queries = check_run(run_path(run.sha256), scoring_target(run.version)).statistics.known_queries
    queries = int(run.version.statistics["queries"])
    if int(covered_queries) < MIN_COVERAGE * queries:
        raise Refused.for_problem(
            FEW_QUERIES,
            f"“{reference}” covers {int(covered_queries):,} of the {queries:,} queries of {dataset}, which "
            "is a hidden dataset.",
            f"Runs to re-rank or fuse on it must cover at least {100 * MIN_COVERAGE:.0f}% of the queries. "
            "Submit a run for all queries, or use BM25.",
        )
    return run


def _usable_entries(team_ids: set[int]) -> QuerySet[Entry]:
    """Return the entries with runs that the teams may use: their own, the site's, and reusable public ones.

    Runs over restricted queries are never shared between teams.
    """
    is_public = Q(visibility=Entry.Visibility.PUBLIC)
    is_reusable = Q(evaluation__run__reusable=True, dataset__queries_visibility=Visibility.PUBLIC)
    belongs_to_teams = Q(system__team__in=team_ids) & ~Q(visibility=Entry.Visibility.WITHDRAWN)
    belongs_to_site = Q(system__team=None, system__source=None)
    return Entry.objects.filter(
        belongs_to_teams | (is_public & (is_reusable | belongs_to_site)), evaluation__isnull=False
    )


def _is_current(entry: Entry) -> bool:
    return entry.evaluation is not None and entry.evaluation.run.version_id == entry.dataset.current_version_id
