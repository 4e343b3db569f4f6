"""How often hidden judgements may be read: so many submissions a day and a month, per person and per team.

The ledger (`QuotaUse`) is written here alone: `charge` when a submission is stored, `settle_quota` when its jobs end,
`recording_refusals` when a file is refused. See docs/decisions/0018-quotas-and-young-teams.md.
"""
