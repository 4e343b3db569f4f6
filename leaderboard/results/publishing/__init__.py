"""Put entries on boards and take them off: the only writer of `Entry` and `Seed`."""

from leaderboard.results.publishing.descriptions import (
    boards_of_source,
    boards_of_team,
    challenge_changed,
    hold_systems,
    source_changed,
    system_changed,
    team_changed,
)
from leaderboard.results.publishing.ladder_places import settle_places, shown_instead
from leaderboard.results.publishing.moderation import CannotModerate, quarantine, restore, unpublish
from leaderboard.results.publishing.provenance import EntryMarks, mark_pooled
from leaderboard.results.publishing.reported import ReportedEntry, publish_reported
from leaderboard.results.publishing.republish import refresh_scores
from leaderboard.results.publishing.revealing import CannotReveal, Revealed, reveal_private
from leaderboard.results.publishing.scored import SEEDS, publish_entry, publish_seed_set
from leaderboard.results.publishing.telling import decide_again, tell_due
from leaderboard.results.publishing.visibility import name_baseline, set_visibility, withdraw_entries
from leaderboard.results.values import (
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
    "decide_again",
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
    "tell_due",
    "training_exposure",
    "unpublish",
    "withdraw_entries",
]
