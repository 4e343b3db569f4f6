"""Put entries on boards and take them off: the only writer of `Entry` and `Seed`."""

from leaderboard.publishing.described import (
    boards_of_source,
    boards_of_team,
    challenge_changed,
    hold_systems,
    source_changed,
    system_changed,
    team_changed,
)
from leaderboard.publishing.holding import settle_places, shown_instead
from leaderboard.publishing.marks import EntryMarks, mark_pooled
from leaderboard.publishing.moderation import CannotModerate, quarantine, restore, unpublish
from leaderboard.publishing.refreshed import refresh_scores
from leaderboard.publishing.reported import ReportedEntry, publish_reported
from leaderboard.publishing.revealing import CannotReveal, Revealed, reveal_private
from leaderboard.publishing.scored import SEEDS, publish_entry, publish_seed_set
from leaderboard.publishing.shown import name_baseline, set_visibility, withdraw_entries
from leaderboard.publishing.values import (
    HIDDEN_DECIMALS,
    comparison_group,
    published_scores,
    published_statistics,
    published_value,
    training_exposure,
)

__all__ = [
    "HIDDEN_DECIMALS",
    "SEEDS",
    "CannotModerate",
    "CannotReveal",
    "EntryMarks",
    "ReportedEntry",
    "Revealed",
    "boards_of_source",
    "boards_of_team",
    "challenge_changed",
    "comparison_group",
    "hold_systems",
    "mark_pooled",
    "name_baseline",
    "publish_entry",
    "publish_reported",
    "publish_seed_set",
    "published_scores",
    "published_statistics",
    "published_value",
    "quarantine",
    "refresh_scores",
    "restore",
    "reveal_private",
    "set_visibility",
    "settle_places",
    "shown_instead",
    "source_changed",
    "system_changed",
    "team_changed",
    "training_exposure",
    "unpublish",
    "withdraw_entries",
]
