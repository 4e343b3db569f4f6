"""Results that are held: a competition's Ladder found no significant change, and so nobody is told more than that."""

from __future__ import annotations

from leaderboard.models import Entry


def shown_instead(entry: Entry) -> Entry | None:
    """The best result that the held one's team has on the board, or keeps for itself; None where it has none.

    Of its team alone: what its submitter knows from another team is not for this one to read.
    """
    told = Entry.objects.filter(
        dataset=entry.dataset_id,
        comparison_group=entry.comparison_group,
        system__team=entry.system.team_id,
        system__team__isnull=False,
        visibility__in=(Entry.Visibility.PUBLIC, Entry.Visibility.PRIVATE, Entry.Visibility.SUPERSEDED),
    )
    measure = entry.dataset.primary_measure
    return max(told.order_by("pk"), key=lambda each: each.scores.get(measure, float("-inf")), default=None)
