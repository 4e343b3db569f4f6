"""Datasets whose score is the mean of their parts' (CQADupStack's forums): their entries, made from the parts'.

A system has a score on the whole where it has one on every part, on their present versions and judgements. Only what
was scored here is put together: a mean of figures that a paper prints for the parts is printed nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from operator import attrgetter, is_not
from typing import NamedTuple

from leaderboard.boards.facts import DatasetPart, Member
from leaderboard.core.cache.memory import TTLCache
from leaderboard.models import Entry
from leaderboard.results.board_rows.entry_rows import EntryRow
from leaderboard.results.board_rows.rows import BoardRows, LineKey
from leaderboard.results.kinds import SCORED, present_group
from leaderboard.results.protection import HIDDEN_DECIMALS

#: How the comparison groups of composed entries begin: their dataset has neither version nor judgements of its own,
#: so that boards take this group for its present one.
GROUP = "scored:None:None:"

#: What a system had seen of the whole is the least that it had not seen of a part.
_MOST_SEEN_FIRST = (
    Entry.Training.IN_DOMAIN.value,
    Entry.Training.UNDECLARED.value,
    Entry.Training.ADAPTED.value,
    Entry.Training.ZERO_SHOT.value,
)
_date = attrgetter("published", "pk")


class Whole(NamedTuple):
    """The rows of a whole, and by the id of a composed one the ids of those that it is the mean of."""

    rows: BoardRows
    made_of: Mapping[int, Sequence[int]]


#: What was made, with the very rows that it was made of: other ones never meet it.
_remembered: TTLCache[tuple[Sequence[DatasetPart], Sequence[BoardRows], Whole]] = TTLCache(32)


def is_mean_of_parts(group: str) -> bool:
    """Whether a comparison group is of composed entries."""
    return group.startswith(GROUP)


def has_hidden_part(parts: Sequence[DatasetPart]) -> bool:
    """Whether the mean over these parts is of rounded values: judgements of some are hidden."""
    return any(part.facts.hidden for part in parts)


def wholes_of(members: Sequence[Member], rows: Mapping[int, BoardRows]) -> dict[int, Whole]:
    """The members that are the mean of their parts, by their datasets' ids."""
    return {
        member.dataset_id: compose(rows[member.dataset_id], member.parts, rows)
        for member in members
        if member.parts
    }


def compose(own: BoardRows, parts: Sequence[DatasetPart], rows: Mapping[int, BoardRows]) -> Whole:
    """A dataset's `own` rows, with the entries that follow from its parts'; without these while a part is not public.

    Composed entries are none of their own, and have negative ids: nothing was measured or tested of them.
    """
    if not parts or not all(part.listed for part in parts):
        return Whole(own, {})
    used = [own, *(rows[part.dataset_id] for part in parts)]
    # With the revisions, so that parts as they were and as they are do not push each other out.
    key = ",".join(f"{part.dataset_id}:{part.revision.key}" for part in parts)
    known = _remembered.get(key)
    if known is None or known[0] != parts or any(map(is_not, known[1], used)):
        known = parts, used, _compose(used, parts)
        _remembered.put(key, known)
    return known[2]


def _compose(used: Sequence[BoardRows], parts: Sequence[DatasetPart]) -> Whole:
    own, *of_parts = used
    groups = [_present_group(part, rows) for part, rows in zip(parts, of_parts, strict=True)]
    lines = [_lines_in(rows, group) for rows, group in zip(of_parts, groups, strict=True)]
    complete = [
        [of_part[key] for of_part in lines] for key in lines[0] if all(key in of_part for of_part in lines)
    ]
    complete.sort(key=lambda values: max(map(_date, values)))
    names = sha256("\n".join(groups).encode()).hexdigest()[:12]
    decimals = HIDDEN_DECIMALS if has_hidden_part(parts) else None
    composed = [_composed(values, f"{GROUP}parts-{names}", decimals) for values in complete]
    entries = sorted([*composed, *own.entries], key=attrgetter("published"))
    made_of = {row.pk: [value.pk for value in values] for row, values in zip(composed, complete, strict=True)}
    return Whole(BoardRows(own.dataset_id, entries), made_of)


def _present_group(part: DatasetPart, rows: BoardRows) -> str:
    found = ((row.comparison_group, row.is_baseline) for _, row in rows.results)
    return present_group(part.facts.version_id, part.facts.qrels_id, found)


def _lines_in(rows: BoardRows, group: str) -> dict[LineKey, EntryRow]:
    """By line what it has in a comparison group: the latest, but the baseline stays."""
    found: dict[LineKey, EntryRow] = {}
    for key, row in rows.results if group else ():
        if row.comparison_group == group and (
            row.is_baseline or key not in found or not found[key].is_baseline
        ):
            found[key] = row
    return found


def _composed(values: Sequence[EntryRow], group: str, decimals: int | None) -> EntryRow:
    """The mean of what a line has on the parts. All that is known of its system is on the first part's row."""
    provenances, trainings = {value.provenance for value in values}, {value.training for value in values}
    return values[0]._replace(
        provenance=provenances.pop() if len(provenances) == 1 else SCORED,  # measured where all parts are
        scores=_means([value.scores for value in values], decimals),
        figures=(),
        comparison_group=group,
        is_baseline=int(all(value.is_baseline for value in values)),
        training=next(training for training in _MOST_SEEN_FIRST if training in trainings),
        missing_queries=None,
        submission="",
        locator="",
        published=max(value.published for value in values),
        pk=-values[0].pk,
        seed_count=0,
        deviations={},
        measured=(),
    )


def _means(of_parts: Sequence[Mapping[str, float]], decimals: int | None) -> dict[str, float]:
    """By measure that all parts have, the mean; of hidden judgements no more decimals than their own values."""
    names = [name for name in of_parts[0] if all(name in scores for scores in of_parts)]
    means = {name: sum(scores[name] for scores in of_parts) / len(of_parts) for name in names}
    return means if decimals is None else {name: round(value, decimals) for name, value in means.items()}
