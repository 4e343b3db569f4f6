"""How often hidden judgements may be read: so many submissions a day and a month, per person and per team.

The ledger (`QuotaUse`) is written here alone: `charge` when a submission is stored, `settle` when its jobs end,
`reading_for` when a file is refused. See docs/decisions/0026-quotas-and-flags.md.
"""

from submissions.quotas.counting import Quota, Window, limits_of, quota_of, quotas_of
from submissions.quotas.ledger import (
    QuotaSpent,
    Refusals,
    charge,
    hold,
    reading_for,
    refund,
    refund_use,
    refusals_of,
    refuse_unapproved,
    settle,
)

__all__ = [
    "Quota",
    "QuotaSpent",
    "Refusals",
    "Window",
    "charge",
    "hold",
    "limits_of",
    "quota_of",
    "quotas_of",
    "reading_for",
    "refund",
    "refund_use",
    "refusals_of",
    "refuse_unapproved",
    "settle",
]
