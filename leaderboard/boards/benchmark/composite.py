"""Datasets whose score is the mean of their parts' (CQADupStack's forums): their entries, made from the parts'.

A system has a score on the whole where it has one on every part, on their present versions and judgements. Only what
was scored here is put together: a mean of figures that a paper prints for the parts is printed nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from operator import is_not
from typing import NamedTuple

from leaderboard.boards.facts import DatasetPart, Member
from leaderboard.core.cache.memory import TTLCache
from leaderboard.models import Entry
from leaderboard.results.history.entry_columns import DatasetEntries, LineKey, Published
from leaderboard.results.history.entry_rows import EntryRow
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


class ComposedEntries(NamedTuple):
    """The entries of the whole, and by entry the ids of those that it is the mean of, in the order of the parts."""

    entries: DatasetEntries
    made_of: Sequence[Sequence[int]]


class _Value(NamedTuple):
    """What a line has on one part."""

    scores: Mapping[str, float]
    published: Published
    provenance: str
    is_baseline: bool
    training: str


#: What was made, with the very entries that it was made of: other ones never meet it.
_composed: TTLCache[tuple[Sequence[DatasetPart], Sequence[DatasetEntries], ComposedEntries]] = TTLCache(32)
_joined: TTLCache[tuple[DatasetEntries, DatasetEntries, DatasetEntries]] = TTLCache(32)


def is_mean_of_parts(group: str) -> bool:
    """Whether a comparison group is of composed entries."""
    return group.startswith(GROUP)


def has_hidden_part(parts: Sequence[DatasetPart]) -> bool:
    """Whether the mean over these parts is of rounded values: judgements of some are hidden."""
    return any(part.facts.hidden for part in parts)


def add_composed_entries(
    members: Sequence[Member], entries: Mapping[int, DatasetEntries]
) -> Mapping[int, DatasetEntries]:
    """The entries by dataset, those of members with parts together with what is composed of the parts."""
    wholes = {member.dataset_id: _whole(member, entries) for member in members if member.parts}
    return {**entries, **wholes} if wholes else entries


def _whole(member: Member, entries: Mapping[int, DatasetEntries]) -> DatasetEntries:
    own, composed = entries[member.dataset_id], compose(member.parts, entries).entries
    key = f"{member.dataset_id}:{member.revision.key} {_key_of(member.parts)}"
    known = _joined.get(key)
    if known is None or known[0] is not composed or known[1] is not own:
        known = composed, own, join_entries(composed, own)
        _joined.put(key, known)
    return known[2]


def compose(parts: Sequence[DatasetPart], entries: Mapping[int, DatasetEntries]) -> ComposedEntries:
    """The entries that follow from those of all parts; none while a part is not published."""
    used = [entries[part.dataset_id] for part in parts]
    key = _key_of(parts)
    known = _composed.get(key)
    if known is None or known[0] != parts or any(map(is_not, known[1], used)):
        known = parts, used, _compose(parts, entries)
        _composed.put(key, known)
    return known[2]


def _key_of(parts: Sequence[DatasetPart]) -> str:
    """Names the parts as they are, or as they were: neither pushes the other out."""
    return ",".join(f"{part.dataset_id}:{part.revision.key}" for part in parts)


def _compose(parts: Sequence[DatasetPart], entries: Mapping[int, DatasetEntries]) -> ComposedEntries:
    if not all(part.listed for part in parts):
        return _as_entries([], "", None)
    groups = [_present_group(part, entries[part.dataset_id]) for part in parts]
    of_parts = [_of_group(entries[part.dataset_id], group) for part, group in zip(parts, groups, strict=True)]
    names = sha256("\n".join(groups).encode()).hexdigest()[:12]
    complete = [
        (line, [of_part[line] for of_part in of_parts])
        for line in of_parts[0]
        if all(line in of_part for of_part in of_parts)
    ]
    complete.sort(key=lambda item: max(value.published for value in item[1]))
    return _as_entries(complete, f"{GROUP}parts-{names}", HIDDEN_DECIMALS if has_hidden_part(parts) else None)


def _present_group(part: DatasetPart, entries: DatasetEntries) -> str:
    facts = part.facts
    return present_group(
        facts.version_id, facts.qrels_id, zip(entries.groups, entries.baselines, strict=True)
    )


def _of_group(entries: DatasetEntries, wanted: str) -> dict[LineKey, _Value]:
    """By line what it has in a comparison group: the latest, but the baseline stays."""
    found: dict[LineKey, _Value] = {}
    columns = (entries.lines, entries.groups, entries.scores, entries.published, entries.provenances)
    for line, group, *values in zip(*columns, entries.baselines, entries.trainings, strict=True):
        value = _Value(*values)
        if (
            group == wanted
            and group
            and (value.is_baseline or line not in found or not found[line].is_baseline)
        ):
            found[line] = value
    return found


def _as_entries(
    complete: Sequence[tuple[LineKey, list[_Value]]], group: str, decimals: int | None
) -> ComposedEntries:
    scores = [_means([value.scores for value in values], decimals) for _, values in complete]
    entries = DatasetEntries(
        lines=[line for line, _ in complete],
        published=[max(value.published for value in values) for _, values in complete],
        provenances=[_provenance(values) for _, values in complete],
        sources=[None] * len(complete),
        groups=[group] * len(complete),
        baselines=[int(all(value.is_baseline for value in values)) for _, values in complete],
        trainings=[_training(values) for _, values in complete],
        scores=scores,
        kinds={(None, group)} if complete else set(),
        measures={None: set().union(*scores)} if complete else {},
        costs=[],
    )
    return ComposedEntries(entries, [[value.published[1] for value in values] for _, values in complete])


def _means(of_parts: Sequence[Mapping[str, float]], decimals: int | None) -> dict[str, float]:
    """By measure that all parts have, the mean; of hidden judgements no more decimals than their own values."""
    names = [name for name in of_parts[0] if all(name in scores for scores in of_parts)]
    means = {name: sum(scores[name] for scores in of_parts) / len(of_parts) for name in names}
    return means if decimals is None else {name: round(value, decimals) for name, value in means.items()}


def _provenance(values: Sequence[_Value]) -> str:
    """Measured where all parts are."""
    found = {value.provenance for value in values}
    return found.pop() if len(found) == 1 else SCORED


def _training(values: Sequence[_Value]) -> str:
    found = {value.training for value in values}
    return next(training for training in _MOST_SEEN_FIRST if training in found)


def rows_of_whole(composed: ComposedEntries, rows_of_first_part: Sequence[EntryRow]) -> list[EntryRow]:
    """Composed entries as a dataset's board reads them: all that is known of a system is on the first part's rows.

    They are no entries of their own, and have negative ids: nothing was measured or tested of them.
    """
    known = {row.pk: row for row in rows_of_first_part}
    made, rows = composed.entries, []
    of_first_part = [ids[0] for ids in composed.made_of]
    columns = (of_first_part, made.scores, made.published, made.provenances, made.groups)
    for pk, scores, published, provenance, group, is_baseline, training in zip(
        *columns, made.baselines, made.trainings, strict=True
    ):
        rows.append(
            known[pk]._replace(
                provenance=provenance,
                scores=scores,
                figures=(),
                comparison_group=group,
                is_baseline=is_baseline,
                training=training,
                missing_queries=None,
                submission="",
                locator="",
                published=published[0],
                pk=-pk,
                seed_count=0,
                deviations={},
            )
        )
    return rows


def join_entries(composed: DatasetEntries, own: DatasetEntries) -> DatasetEntries:
    """Both as the entries of one dataset."""
    measures = {
        source: composed.measures.get(source, set()) | own.measures.get(source, set())
        for source in {*composed.measures, *own.measures}
    }
    return replace(
        own,
        lines=[*composed.lines, *own.lines],
        published=[*composed.published, *own.published],
        provenances=[*composed.provenances, *own.provenances],
        sources=[*composed.sources, *own.sources],
        groups=[*composed.groups, *own.groups],
        baselines=[*composed.baselines, *own.baselines],
        trainings=[*composed.trainings, *own.trainings],
        scores=[*composed.scores, *own.scores],
        kinds=composed.kinds | own.kinds,
        measures=measures,
    )
