"""All settings, read from the environment; a reader that fails says what would be right.

Nothing set gives the embedded default: SQLite and an own Valkey under `RUNBOARD_VAR`. `docs/operations.md` lists
the variables. Each file beside this one has the settings of one concern; a name is set in one of them alone.
"""

from __future__ import annotations

from leaderboard.settings.api import *
from leaderboard.settings.applications import *
from leaderboard.settings.database import *
from leaderboard.settings.files import *
from leaderboard.settings.logs import *
from leaderboard.settings.models import *
from leaderboard.settings.people import *
from leaderboard.settings.queue import *
from leaderboard.settings.security import *
from leaderboard.settings.site import *
