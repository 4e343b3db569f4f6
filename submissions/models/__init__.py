"""Database tables of submissions: work, uploads, quotas, notices, and tokens. Each table names its writer."""

from submissions.models.notifications import AccountMail, Delivery, Notice, NoticeKind, NoticePreference, Webhook
from submissions.models.quotas import Flag, QuotaException, QuotaUse, RunSignature
from submissions.models.switches import Switch, is_on
from submissions.models.tokens import ApiToken, Scope
from submissions.models.uploads import UPLOAD_LIFETIME_SECONDS, Checkpoint, Encoding, Shard, Upload
from submissions.models.work import (
    ENDED_BY_OTHERS,
    TERMINAL,
    WAITING,
    Job,
    JobQuerySet,
    StageTime,
    State,
    Submission,
    Worker,
    new_identifier,
)

__all__ = [
    "ENDED_BY_OTHERS", "TERMINAL", "UPLOAD_LIFETIME_SECONDS", "WAITING", "AccountMail", "ApiToken", "Checkpoint",
    "Delivery", "Encoding", "Flag", "Job", "JobQuerySet", "Notice", "NoticeKind", "NoticePreference", "QuotaException",
    "QuotaUse", "RunSignature", "Scope", "Shard", "StageTime", "State", "Submission", "Switch", "Upload", "Webhook",
    "Worker", "is_on", "new_identifier",
]  # fmt: skip
