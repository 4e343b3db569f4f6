"""Rows of boards as plain values, the groups that they are ranked in, and the text that changes with every board."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db import connection

from leaderboard.models import Architecture, Entry
from leaderboard.results.values import published_value


class EntryRow(NamedTuple):
    """One entry with all that boards show of it. `published` is ISO text, its first ten characters the day.

    `scores`, `deviations` (over seeds) and `private_scores` (of a competition, empty until they are revealed) are
    published values by measure. `figures` are those beside the scores, `measured` what was measured of it, `bibtex` is
    what there is to cite for the system.
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

    @property
    def source(self) -> str:
        """The publication in a few words, empty where there is none."""
        return short_citation(self.source_authors, self.source_year)

    @property
    def parameters(self) -> int | None:
        """Number of the model's weights, counted here or else declared; 0 for a lexical system, None if unknown."""
        counts = (each["figures"].get("parameters") for each in reversed(self.measured))
        counted = next((count for count in counts if count is not None), self.parameter_count)
        return 0 if counted is None and self.architecture == Architecture.LEXICAL else counted

    @property
    def reported_by(self) -> int | None:
        """The id of the publication that reports it, None where it was scored here."""
        return self.source_id if self.provenance == REPORTED else None

    def rounded(self) -> "EntryRow":
        """Return the row as of judgements that are hidden now; what a paper prints is no secret, and stays."""
        if self.provenance == REPORTED:
            return self
        scores, deviations = (
            {measure: published_value(value, hidden=True) for measure, value in values.items()}
            for values in (self.scores, self.deviations)
        )
        return self._replace(scores=scores, deviations=deviations)

    @property
    def is_public(self) -> bool:
        """Whether it stands on the board for everyone."""
        return self.visibility == Entry.Visibility.PUBLIC


#: What a stored row leaves out.
DEFAULTS: Mapping[str, Any] = EntryRow._field_defaults
_fields_of = itemgetter(*EntryRow._fields)


def flatten_row(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """A stored row as the fields of an `EntryRow`: those of an earlier release lie in several parts."""
    if "entry" not in stored:
        return stored
    parts = {**stored["line"], **stored["entry"]}
    return {**parts, "measured": stored["measured"], "bibtex": stored["bibtex"]}


def entry_row(stored: Mapping[str, Any]) -> EntryRow:
    """The row as boards read it; what an old one lacks is empty."""
    return EntryRow._make(_fields_of({**DEFAULTS, **flatten_row(stored)}))


def short_citation(authors: str | None, year: int | None) -> str:
    """`Thakur et al. 2021` from `Nandan Thakur and Nils Reimers and …`."""
    if not authors:
        return ""
    names = [name.strip().split(" ")[-1] for name in authors.split(" and ")]
    if len(names) == 2 and names[1] != "others":
        return f"{names[0]} and {names[1]} {year}"
    return f"{names[0]}{' et al.' if len(names) > 1 else ''} {year}"


#: A dataset and its twin, each of whose boards says what follows from the other's.
_OF_DATASET = (
    " WHERE slug = %s OR twin_of_id = (SELECT id FROM leaderboard_dataset WHERE slug = %s) "
    "OR id = (SELECT twin_of_id FROM leaderboard_dataset WHERE slug = %s)"
)
_REVISION = "SELECT COUNT(*), SUM(board_revision), MAX(updated_at) FROM leaderboard_dataset"
_OF_BENCHMARK = (
    " WHERE id IN (SELECT member.dataset_id FROM leaderboard_benchmarkmember member "
    "JOIN leaderboard_benchmark benchmark ON benchmark.id = member.benchmark_id WHERE benchmark.slug = %s)"
)
#: Those on which it, what it is a variant of, or a variant of it has a result. What its runs were made of was found for
#: the same datasets.
_OF_SYSTEM = (
    " WHERE id IN (SELECT dataset_id FROM leaderboard_entry WHERE system_id IN ("
    "SELECT id FROM leaderboard_system WHERE slug = %s "
    "UNION SELECT variant_of_id FROM leaderboard_system WHERE slug = %s "
    "UNION SELECT kin.id FROM leaderboard_system kin "
    "JOIN leaderboard_system itself ON itself.id = kin.variant_of_id WHERE itself.slug = %s))"
)


def dataset_revision(slug: str) -> str:
    """What changes whenever the page of the dataset does; empty where there is no such page. One query."""
    return _revision(_REVISION + _OF_DATASET, slug, slug, slug)


def benchmark_revision(slug: str) -> str:
    """What changes whenever one of the benchmark's datasets does; empty where there is none. One query."""
    return _revision(_REVISION + _OF_BENCHMARK, slug)


def system_revision(slug: str) -> str:
    """What changes whenever a board does that the system or its kin stands on. One query."""
    return _revision(_REVISION + _OF_SYSTEM, slug, slug, slug)


def site_revision() -> str:
    """What changes whenever any board does. One query."""
    return _revision(_REVISION)


def _revision(query: str, *parameters: str) -> str:
    """Counters only grow, so that their sum stands for all of them; the times tell a restored database from its future.

    In SQL, because this is asked on every request: a query set would take longer to build than a kept page to serve.
    """
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return ":".join(map(str, cursor.fetchone()))


#: Values of `Row.ranked_in`.
REPORTED = "reported"
SCORED = "scored"
#: Scored, but behind somebody's paid interface: nobody can repeat it.
CLOSED = "closed"
STALE = "stale"
#: Of the reader's own team, for their eyes alone.
PRIVATE = "private"
#: Taken out of the ranking by a curator: it stands last, with the reason and without a number.
QUARANTINED = "quarantined"
#: On an old board: shown then, and by now no longer, of which no reason is public. It has no mark.
GONE = "gone"
#: These rows have no rank, and move neither those of others nor what is best.
UNRANKED = frozenset({STALE, PRIVATE, QUARANTINED})
CLOSED_NOTE = "c: closed APIs, which cannot be reproduced; ranked separately."


def present_group(
    version_id: int | None, qrels_id: int | None, found: Iterable[tuple[str, bool | int]]
) -> str:
    """The comparison group that the dataset's present version, judgements and measures give; others are stale.

    `found` are the entries' groups, each with whether the entry is the group's baseline, by date of publication.
    Empty where there is none.
    """
    prefix = f"scored:{version_id}:{qrels_id}:"
    groups = [(group, is_baseline) for group, is_baseline in found if group.startswith(prefix)]
    chosen = [group for group, is_baseline in groups if is_baseline] or [group for group, _ in groups]
    return chosen[-1] if chosen else ""


def ranked_in(provenance: str, group: str, present: str, *, closed_api: bool = False) -> str:
    """Whom a row is ranked among: reported figures and closed interfaces apart, stale results not at all."""
    if provenance == Entry.Provenance.REPORTED:
        return REPORTED
    if group != present:
        return STALE
    return CLOSED if closed_api else SCORED


def rank_values(values: Iterable[float], *, lower_is_better: bool = False) -> dict[float, int]:
    """The place of each value, the best has 1; equal values share theirs: 1, 1, 3."""
    found: dict[float, int] = {}
    for place, value in enumerate(sorted(values, reverse=not lower_is_better), start=1):
        found.setdefault(value, place)
    return found
