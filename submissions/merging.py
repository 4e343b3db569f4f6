"""Two systems that are one, with what was submitted for them."""

from __future__ import annotations

from django.db import transaction

from leaderboard import merging_systems
from leaderboard.models import System
from leaderboard.publishing import hold_systems
from submissions.models import Submission


@transaction.atomic
def merge_systems(duplicate: System, into: System) -> System:
    """Move the duplicate's submissions and everything else of it to the other system, in one transaction.

    Submissions stay their team's and their submitter's. Raises leaderboard.merging_systems.CannotMerge with all
    conflicts, and nothing is changed. Call within `leaderboard.audit.acting`.
    """
    hold_systems(duplicate, into)
    conflicts = merging_systems.conflicts_of(duplicate, into)
    if conflicts:
        raise merging_systems.CannotMerge(conflicts)
    Submission.objects.filter(system=duplicate).update(system=into)
    return merging_systems.merge_systems(duplicate, into)
