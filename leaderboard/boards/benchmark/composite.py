"""Datasets whose score is the mean of their parts' (CQADupStack's forums): their entries, made from the parts'.

A system has a score on the whole where it has one on every part, on their present versions and judgements. Only what
was scored here is put together: a mean of figures that a paper prints for the parts is printed nowhere.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import NamedTuple

from leaderboard.boards.model import Member
from leaderboard.models import Entry
from leaderboard.results.board_rows.entry_rows import SCORED, EntryRow, present_group
from leaderboard.results.board_rows.rows import BoardRows, LineKey
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


def is_mean_of_parts(group: str) -> bool:
    """Whether a comparison group is of composed entries."""
    return group.startswith(GROUP)


def has_hidden_part(parts: Sequence[Member]) -> bool:
    """Whether the mean over these parts is of rounded values: judgements of some are hidden."""
    return any(part.facts.hidden for part in parts)


def compose(member: Member, rows: Mapping[int, BoardRows]) -> Whole:
    """Return a dataset's own rows with the entries that follow from those of its parts, once all parts are public.

    Composed entries are public and have negative ids. They have neither measured costs nor tests.
    """
    own = rows[member.dataset_id]
    if not member.parts or not all(part.listed for part in member.parts):
        return Whole(own, {})
    parts, of_parts = member.parts, [rows[part.dataset_id] for part in member.parts]
    groups = [
        present_group(
            part.facts.version_id,
            part.facts.qrels_id,
            ((row.comparison_group, row.is_baseline) for _, row in stored.results),
        )
        for part, stored in zip(parts, of_parts, strict=True)
    ]
    lines = [_lines_in(stored, group) for stored, group in zip(of_parts, groups, strict=True)]
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
