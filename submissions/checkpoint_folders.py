"""Where rebuilt checkpoints lie: a folder for every team and one of the house, so that owners share nothing."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from leaderboard.store import Area
from submissions.models import Checkpoint

#: The folder of checkpoints that belong to no team: the site's own.
HOUSE = "house"


def folder_of(checkpoint: Checkpoint) -> Path:
    """Where the checkpoint's rebuilt files lie."""
    owner = HOUSE if checkpoint.team_id is None else str(checkpoint.team_id)
    return Path(settings.VAR) / Area.CHECKPOINTS.value / owner / checkpoint.model_sha256
