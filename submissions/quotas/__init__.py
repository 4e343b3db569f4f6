"""Daily and monthly quotas of submissions to hidden datasets, per user and per team.

Only this package writes the ledger (`QuotaUse`): `charge` when a submission is stored, `settle_quota` when its jobs
end, `recording_refusals` when a file is refused. See docs/decisions/0018-quotas-and-young-teams.md.
"""
