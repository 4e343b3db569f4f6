"""Two systems that are one, with what was submitted for them."""

from django.db import transaction

from leaderboard.models import System
from leaderboard.results.publishing.descriptions import lock_systems
from leaderboard.systems import records
from submissions.models import Submission


@transaction.atomic
def merge_systems(duplicate: System, into: System) -> System:
    """Move the duplicate's submissions and everything else of it to the other system, in one transaction.

    Submissions stay their team's and their submitter's. Raises leaderboard.systems.records.CannotMerge with all
    conflicts, and nothing is changed. Call within `leaderboard.core.audit.acting`.
    """
    lock_systems(duplicate, into)
    conflicts = records.conflicts_of(duplicate, into)
    if conflicts:
        raise records.CannotMerge(conflicts)
    Submission.objects.filter(system=duplicate).update(system=into)
    return records.merge_systems(duplicate, into)
