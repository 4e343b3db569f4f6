"""What boards read of a dataset's entries, made of the tables: `revisions` stores it, `rows` reads it.

A row has the fields of an `EntryRow`, but for those that are as their defaults: a field that is added there is stored
from then on, and is empty on a board whose rows lack it.
"""

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import Exists, FloatField, IntegerField, OuterRef, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from leaderboard.core import anonymity
from leaderboard.core.measures import better
from leaderboard.core.text.baselines import baseline_label
from leaderboard.models import DECLARED_NUMBERS, Challenge, Entry
from leaderboard.results import citations
from leaderboard.results.board_rows.entry_rows import DEFAULTS, EntryRow, entry_row
from leaderboard.results.board_rows.measurements import measured_of_entries

#: What boards show of the dataset itself, as columns.
DATASET_FACTS = (
    "slug", "name", "task", "domain", "language", "state", "hidden", "protection", "primary_measure", "measures",
    "current_version_id", "current_qrels_id",
)  # fmt: skip
#: Of a dataset without a version the ids of its parts, which its scores are the means of.
PARTS = "parts"

#: What a row has of its system, under the names of a system's own columns.
_OF_SYSTEM = (
    "architecture", "licence", "commercial_use", "open_weights", "closed_api", "year",
    *(each.name for each in DECLARED_NUMBERS if each.key),
)  # fmt: skip
#: Which fields a row has: raised with every change of `EntryRow`, so that the next start stores present boards anew,
#: but for a new field that is empty at first.
LAYOUT = 2
#: What is read from elsewhere.
_BESIDE = ("measured", "bibtex")


def rows_to_store(entries: QuerySet[Entry]) -> dict[int, dict[str, Any]]:
    """All that boards read of the public, withdrawn and quarantined ones of these entries, by id. Two queries, and one
    for prices."""
    of_system = {name: f"system__{name}" for name in citations.COLUMNS}
    rows = _rows(entries.filter(visibility__in=Entry.SEEN), *of_system.values())
    measured: dict[int, list[dict[str, Any]]] = {}
    for one in measured_of_entries([row["pk"] for row in rows]):
        measured.setdefault(one.entry_id, []).append(one.as_stored())
    found = {}
    for row in rows:
        cited = citations.bibtex_of({name: row.pop(column) for name, column in of_system.items()})
        whole = {**row, "measured": measured.get(row["pk"], ()), "bibtex": cited}
        stored = {name: value for name, value in whole.items() if value not in (DEFAULTS.get(name, ...), [])}
        found[row["pk"]] = {"layout": LAYOUT, **stored}
    return found


def private_rows(datasets: Collection[int], teams: Collection[int]) -> dict[int, list[EntryRow]]:
    """The private entries of these teams, by dataset; they are stored nowhere. One query, none without teams."""
    if not teams:
        return {}
    own = Entry.objects.filter(
        dataset__in=datasets, visibility=Entry.Visibility.PRIVATE, system__team__in=teams
    )
    found: dict[int, list[EntryRow]] = {}
    for row in _rows(own.order_by("published_at", "pk"), "dataset_id"):
        found.setdefault(row.pop("dataset_id"), []).append(entry_row(row))
    return found


def _rows(entries: QuerySet[Entry], *further: str) -> list[dict[str, Any]]:
    """Their fields, but for `_BESIDE`, and `further` columns. One query."""
    names = [name for name in EntryRow._fields if name not in _BESIDE]
    columns = _columns()
    rows = entries.values_list(*(columns.get(name, name) for name in names), *further)
    return [dict(zip((*names, *further), row, strict=True)) for row in rows]


def _columns() -> dict[str, Any]:
    """The columns of fields that an entry has not under their own names, or in another type."""
    challenges = Challenge.objects.filter(system=OuterRef("system"), state=Challenge.State.OPEN)
    return {
        "system": "system__name",
        "slug": "system__slug",
        "team": anonymity.team_name("system__"),
        "team_slug": anonymity.team_slug("system__"),
        "source_authors": "source__authors",
        "source_year": "source__year",
        "source_key": "source__key",
        "submission": "submission_reference",
        "published": Cast("published_at", TextField()),
        "challenged": Cast(Exists(challenges), IntegerField()),
        **{name: Cast(name, IntegerField()) for name in ("is_baseline", "late", "pooled")},
        **{name: f"system__{name}" for name in _OF_SYSTEM},
    }


def result_facts(
    dataset_id: int, entry: int, row: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """What the news say of a new result: its score, its baseline's, and the best of the others that it is ranked with.

    `facts` are the dataset's. All are published values; None where there is none. Two queries: the database finds the
    best, so that a large board costs no more than a small one.
    """
    measure: str = facts["primary_measure"]
    others = Entry.objects.filter(
        dataset=dataset_id,
        visibility=Entry.Visibility.PUBLIC,
        comparison_group=row["comparison_group"],
    ).exclude(pk=entry)
    value = Cast(KeyTextTransform(measure, "scores"), FloatField())
    order = value.asc() if better(measure) == "lower" else value.desc()
    best = others.alias(value=value).filter(value__isnull=False).order_by(order).values_list("scores").first()
    baseline = others.filter(is_baseline=True).values_list("scores", "system__name").first()
    return {
        "measure": measure,
        "value": row["scores"].get(measure),
        "baseline": baseline[0].get(measure) if baseline else None,
        "baseline_name": baseline_label(baseline[1], facts["name"]) if baseline else "",
        "best_before": best[0][measure] if best else None,
    }
