"""Board rows as plain values, their ranking groups, and revision keys of pages."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db import connection

from leaderboard.models import REFERENCE_TYPES, Architecture, Entry, short_citation
from leaderboard.results.mteb import revision_placeholder
from leaderboard.results.values import published_value


class EntryRow(NamedTuple):
    """An entry with all values that boards show. `published` is ISO text whose first ten characters are the day.

    `scores`, `deviations` (over seeds), and `private_scores` (of a competition, empty until revealed) are published
    values by measure. `figures` are reported values besides the scores, `measured` its efficiency measurements, and
    `bibtex` the citation of the system. `model` is the name or URL of its model; empty for anonymous systems.
    `version_label` and `split` are those of the judgments that it was scored on.
    """

    system: str
    slug: str
    architecture: str
    provenance: str
    scores: Mapping[str, float]
    comparison_group: str
    training: str
    visibility: str
    published: str
    pk: int
    system_id: int = 0
    source_id: int | None = None
    team: str | None = None
    team_slug: str | None = None
    source_authors: str | None = None
    source_year: int | None = None
    source_key: str | None = None
    configuration: str = ""
    figures: Sequence[Mapping[str, Any]] = ()
    is_baseline: int = 0
    withdrawal_reason: str = ""
    moderation_reason: str = ""
    missing_queries: int | None = None
    submission: str = ""
    locator: str = ""
    seed_count: int = 0
    deviations: Mapping[str, float] = MappingProxyType({})
    private_scores: Mapping[str, float] = MappingProxyType({})
    late: int = 0
    pooled: int = 0
    run_type: str = ""
    challenged: int = 0
    licence: str = ""
    commercial_use: int | None = None
    open_weights: int | None = None
    closed_api: int = 0
    year: int | None = None
    parameter_count: int | None = None
    maximum_length: int | None = None
    measured: Sequence[Mapping[str, Any]] = ()
    bibtex: str = ""
    model: str = ""
    version_label: str = ""
    split: str = ""

    @property
    def reference_name(self) -> str:
        return REFERENCE_TYPES.get(self.run_type, "")

    @property
    def source(self) -> str:
        """Short citation of the publication, or an empty string."""
        return short_citation(self.source_authors, self.source_year)

    @property
    def parameters(self) -> int | None:
        """Number of model parameters, counted by Runboard or declared; 0 for lexical systems, None if unknown."""
        return self._latest_figure("parameters", self.parameter_count)

    @property
    def model_bytes(self) -> int | None:
        """Size of the checkpoint's files; 0 for lexical systems, None if unknown."""
        return self._latest_figure("model_bytes", None)

    def _latest_figure(self, name: str, default: int | None) -> int | None:
        """Return a measured property of the model, or else the default, which is 0 for lexical systems."""
        figures = [value for each in self.measured if (value := each["figures"].get(name)) is not None]
        figure = figures[-1] if figures else default
        return 0 if figure is None and self.architecture == Architecture.LEXICAL else figure

    @property
    def reported_by(self) -> int | None:
        """Id of the publication that reports the entry, or None for a scored one."""
        return self.source_id if self.provenance == REPORTED else None

    @property
    def revision_placeholder(self) -> str:
        """Placeholder of MTEB instead of the model's revision, a key of `marks.REVISION_MARKS`, or empty text."""
        return revision_placeholder(self.locator, self.configuration) if self.provenance == REPORTED else ""

    @property
    def reported_group(self) -> str:
        """Results that a reported one is ranked with: of one source and dataset revision, on any hardware."""
        hardware = self.configuration.partition(";")[0]
        return self.comparison_group.removesuffix(f":{hardware}") if hardware else self.comparison_group

    def with_rounded_scores(self) -> "EntryRow":
        """Return the row with scores and deviations rounded as for hidden judgments. Reported rows are unchanged."""
        if self.provenance == REPORTED:
            return self
        scores, deviations = (
            {measure: published_value(value, hidden=True) for measure, value in values.items()}
            for values in (self.scores, self.deviations)
        )
        return self._replace(scores=scores, deviations=deviations)

    @property
    def is_public(self) -> bool:
        return self.visibility == Entry.Visibility.PUBLIC


#: Unique sort key of entries: publication time, then id.
publication_order = attrgetter("published", "pk")
#: Values that stored rows omit.
DEFAULTS: Mapping[str, Any] = EntryRow._field_defaults
#: All fields, so that merging a stored row into them needs no resizing.
_BLANK_ROW: Mapping[str, Any] = {**dict.fromkeys(EntryRow._fields), **DEFAULTS}
_get_fields = itemgetter(*EntryRow._fields)


def flatten_row(stored_row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a stored row as one flat mapping of `EntryRow` fields.

    Earlier releases nested the fields under `line` and `entry`, next to `measured` and `bibtex`.
    """
    if "entry" not in stored_row:
        return stored_row
    parts = {**stored_row["line"], **stored_row["entry"]}
    return {**parts, "measured": stored_row["measured"], "bibtex": stored_row["bibtex"]}


def entry_row(stored_row: Mapping[str, Any]) -> EntryRow:
    """Build an `EntryRow` from a stored row, with defaults for fields that an earlier release lacked."""
    return EntryRow._make(_get_fields({**_BLANK_ROW, **flatten_row(stored_row)}))


#: A dataset and its twin, whose contamination gaps depend on each other.
_DATASET_CONDITION = (
    " WHERE slug = %s OR twin_of_id = (SELECT id FROM leaderboard_dataset WHERE slug = %s) "
    "OR id = (SELECT twin_of_id FROM leaderboard_dataset WHERE slug = %s)"
)
_REVISION = "SELECT COUNT(*), SUM(board_revision), MAX(updated_at) FROM leaderboard_dataset"
_BENCHMARK_CONDITION = (
    " WHERE id IN (SELECT member.dataset_id FROM leaderboard_benchmarkmember member "
    "JOIN leaderboard_benchmark benchmark ON benchmark.id = member.benchmark_id WHERE benchmark.slug = %s)"
)
#: Datasets with results of the system, its parent, or its variants. Inputs of its runs belong to the same datasets.
_SYSTEM_CONDITION = (
    " WHERE id IN (SELECT dataset_id FROM leaderboard_entry WHERE system_id IN ("
    "SELECT id FROM leaderboard_system WHERE slug = %s "
    "UNION SELECT variant_of_id FROM leaderboard_system WHERE slug = %s "
    "UNION SELECT kin.id FROM leaderboard_system kin "
    "JOIN leaderboard_system itself ON itself.id = kin.variant_of_id WHERE itself.slug = %s))"
)


def dataset_revision(slug: str) -> str:
    """Return a key that changes with the boards of the dataset and its twin, in one query.

    Constant if no dataset has this slug.
    """
    return _revision(_REVISION + _DATASET_CONDITION, slug, slug, slug)


def benchmark_revision(slug: str) -> str:
    """Return a key that changes with any of the benchmark's datasets, in one query.

    Constant if no benchmark has this slug.
    """
    return _revision(_REVISION + _BENCHMARK_CONDITION, slug)


def system_revision(slug: str) -> str:
    """Return a key that changes with any board that shows the system or its variants, in one query."""
    return _revision(_REVISION + _SYSTEM_CONDITION, slug, slug, slug)


def site_revision() -> str:
    """Return a key that changes with any board, in one query."""
    return _revision(_REVISION)


def _revision(query: str, *parameters: str) -> str:
    """Return a key from a query of `_REVISION`: number of datasets, sum of revisions, and time of the last change.

    Revisions only grow, so their sum identifies a state; the time distinguishes a restored database. The query is raw
    SQL because every request runs it: building a query set takes longer than serving a cached page.
    """
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return ":".join(map(str, cursor.fetchone()))


#: Values of `Row.ranked_in`.
REPORTED = "reported"
SCORED = "scored"
#: Scored results of closed APIs, which cannot be reproduced.
CLOSED = "closed"
STALE = "stale"
#: Private results of the reader's own team.
PRIVATE = "private"
#: Results that a curator removed from the ranking: listed last, with the reason and without scores.
QUARANTINED = "quarantined"
#: References for answers, such as closed-book runs.
REFERENCE = "reference"
#: Results on a past board that were removed later without a public reason; they have no mark.
GONE = "gone"
#: Groups without ranks, which do not affect the ranks of others or the best values.
UNRANKED = frozenset({STALE, PRIVATE, QUARANTINED, REFERENCE})
CLOSED_NOTE = "c: closed APIs, which cannot be reproduced; ranked separately."


def present_group(version_id: int | None, qrels_id: int | None, entry_groups: Iterable[tuple[str, bool | int]]) -> str:
    """Return the comparison group of a board's current results, or an empty string if there is none.

    It is the last group with the dataset's current version and qrels that has a baseline, or the last one if none has.
    `entry_groups` are the entries' groups, by date of publication, each with whether the entry is the group's baseline.
    """
    prefix = f"scored:{version_id}:{qrels_id}:"
    groups = [(group, is_baseline) for group, is_baseline in entry_groups if group.startswith(prefix)]
    candidates = [group for group, is_baseline in groups if is_baseline] or [group for group, _ in groups]
    return candidates[-1] if candidates else ""


def ranking_group(entry: EntryRow, current_group: str) -> str:
    """Return the group in which a row is ranked (REPORTED, SCORED, CLOSED), or STALE or REFERENCE without a rank.

    A result that was not reported is STALE if its comparison group is not the current one.
    """
    if entry.provenance == REPORTED:
        return REPORTED
    if entry.comparison_group != current_group:
        return STALE
    if entry.run_type in REFERENCE_TYPES:
        return REFERENCE
    return CLOSED if entry.closed_api else SCORED


def rank_values(values: Iterable[float], *, lower_is_better: bool = False) -> dict[float, int]:
    """Return the rank of each value, 1 being the best; equal values share a rank (1, 1, 3)."""
    ranks: dict[float, int] = {}
    for rank, value in enumerate(sorted(values, reverse=not lower_is_better), start=1):
        ranks.setdefault(value, rank)
    return ranks
