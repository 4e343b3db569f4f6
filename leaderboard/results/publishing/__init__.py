"""Put entries on boards and take them off: the only writer of `Entry` and `Seed`."""

# ruff: noqa: F401
from leaderboard.results.publishing.descriptions import (
    boards_of_source,
    boards_of_team,
    challenge_changed,
    lock_systems,
    source_changed,
    system_changed,
    team_changed,
)
from leaderboard.results.publishing.ladder_places import best_shown_result, update_shown
from leaderboard.results.publishing.protection import CannotReveal, reveal_private
from leaderboard.results.publishing.reported import ReportedEntry, publish_reported
from leaderboard.results.publishing.republish import refresh_scores
from leaderboard.results.publishing.scheduling import publish_due, reconsider_held
from leaderboard.results.publishing.scored import (
    SEEDS,
    EntryOrigin,
    mark_pooled,
    publish_entry,
    publish_seed_set,
)
from leaderboard.results.publishing.visibility import (
    CannotModerate,
    name_baseline,
    quarantine,
    restore,
    set_visibility,
    unpublish,
    withdraw_entries,
)
from leaderboard.results.values import (
    HIDDEN_DECIMALS,
    comparison_group,
    published_scores,
    published_statistics,
    published_value,
    training_exposure,
)
