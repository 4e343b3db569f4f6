"""`manage.py redact_challenge NUMBER [--text TEXT]`: remove words from the text of a challenge."""

from functools import partial

from leaderboard.admin.results import ChallengeAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, ChallengeAdmin.take_words_out, "challenge")
