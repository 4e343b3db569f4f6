"""Entries of composite datasets, whose scores are means over their parts (such as CQADupStack's forums).

A system has a score on the composite if it has one on the current version and judgments of every part. Only scored
results are combined: publications do not print means of their figures for the parts.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import NamedTuple

from leaderboard.boards.model import Member
from leaderboard.models import Entry
from leaderboard.results.board_rows.entry_rows import SCORED, EntryRow, present_group, publication_order
from leaderboard.results.board_rows.rows import BoardRows, LineKey

#: Prefix of the comparison groups of composed entries. Their dataset has neither a version nor judgments of
#: its own, so boards accept this group as its current one.
GROUP_PREFIX = "scored:None:None:"

#: Training exposures, the most severe first: a composite has the most severe one of its parts.
_SEVEREST_FIRST = (
    Entry.Training.IN_DOMAIN.value,
    Entry.Training.UNDECLARED.value,
    Entry.Training.ADAPTED.value,
    Entry.Training.ZERO_SHOT.value,
)


class CompositeRows(NamedTuple):
    """Rows of a composite dataset.

    `components` maps the id of each composite entry to the ids of the entries averaged in it.
    """

    rows: BoardRows
    components: Mapping[int, Sequence[int]]


def is_mean_of_parts(group: str) -> bool:
    """Return whether a comparison group has composed entries."""
    return group.startswith(GROUP_PREFIX)


def has_hidden_part(parts: Sequence[Member]) -> bool:
    """Return whether a mean over these parts includes rounded values, because judgments of some are hidden."""
    return any(part.facts.hidden for part in parts)


def compose_rows(member: Member, rows: Mapping[int, BoardRows]) -> CompositeRows:
    """Return a dataset's rows, including entries composed from its parts once all parts are public.

    Composed entries are public and have negative ids. They have neither measured costs nor tests.
    """
    dataset_rows = rows[member.dataset_id]
    if not member.parts or not all(part.listed for part in member.parts):
        return CompositeRows(dataset_rows, {})
    parts, rows_by_part = member.parts, [rows[part.dataset_id] for part in member.parts]
    groups = [
        present_group(
            part.facts.version_id,
            part.facts.qrels_id,
            ((row.comparison_group, row.is_baseline) for _, row in part_rows.results),
        )
        for part, part_rows in zip(parts, rows_by_part, strict=True)
    ]
    lines = [_latest_results(part_rows, group) for part_rows, group in zip(rows_by_part, groups, strict=True)]
    complete_lines = [
        [part_lines[key] for part_lines in lines] for key in lines[0] if all(key in part_lines for part_lines in lines)
    ]
    complete_lines.sort(key=lambda values: max(map(publication_order, values)))
    digest = sha256("\n".join(groups).encode()).hexdigest()[:12]
    composed = [_compose_entry(values, f"{GROUP_PREFIX}parts-{digest}") for values in complete_lines]
    if has_hidden_part(parts):  # The means include hidden judgments.
        composed = [row.with_rounded_scores() for row in composed]
    entries = sorted([*composed, *dataset_rows.entries], key=attrgetter("published"))
    components = {row.pk: [value.pk for value in values] for row, values in zip(composed, complete_lines, strict=True)}
    return CompositeRows(BoardRows(dataset_rows.dataset_id, entries), components)


def _latest_results(rows: BoardRows, group: str) -> dict[LineKey, EntryRow]:
    """Return each line's latest result in a comparison group; a baseline is only replaced by a baseline."""
    result_by_line: dict[LineKey, EntryRow] = {}
    for key, row in rows.results if group else ():
        if row.comparison_group == group and (
            row.is_baseline or key not in result_by_line or not result_by_line[key].is_baseline
        ):
            result_by_line[key] = row
    return result_by_line


def _compose_entry(values: Sequence[EntryRow], group: str) -> EntryRow:
    """Return the mean of a line's results on the parts; other columns come from the first part."""
    provenances, trainings = {value.provenance for value in values}, {value.training for value in values}
    names = [name for name in values[0].scores if all(name in value.scores for value in values)]
    means = {name: sum(value.scores[name] for value in values) / len(values) for name in names}
    return values[0]._replace(
        provenance=provenances.pop() if len(provenances) == 1 else SCORED,  # Measured only if all parts are.
        scores=means,
        figures=(),
        comparison_group=group,
        is_baseline=int(all(value.is_baseline for value in values)),
        training=next(training for training in _SEVEREST_FIRST if training in trainings),
        missing_queries=None,
        submission="",
        locator="",
        version_label="",
        published=max(value.published for value in values),
        pk=-values[0].pk,
        seed_count=0,
        deviations={},
        measured=(),
    )
