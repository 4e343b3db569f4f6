"""How often hidden judgements may be read: so many submissions a day and a month, per person and per team.

The ledger (`QuotaUse`) is written here alone: `charge` when a submission is stored, `settle_quota` when its jobs end,
`recording_refusals` when a file is refused. See docs/decisions/0026-quotas-and-flags.md.
"""

from submissions.quotas.counting import Quota, Window, limits_of, quota_of, quotas_of
from submissions.quotas.ledger import (
    QuotaSpent,
    Refusals,
    charge,
    lock_quota,
    recording_refusals,
    refund,
    refund_use,
    refusals_of,
    refuse_unapproved,
    settle_quota,
)

__all__ = [
    "Quota",
    "QuotaSpent",
    "Refusals",
    "Window",
    "charge",
    "limits_of",
    "lock_quota",
    "quota_of",
    "quotas_of",
    "recording_refusals",
    "refund",
    "refund_use",
    "refusals_of",
    "refuse_unapproved",
    "settle_quota",
]
