"""Database models of the leaderboard. Each module docstring names the code that writes its tables."""

# ruff: noqa: F401
from leaderboard.models.accounts import Invitation, Membership, Team, TeamRedirect, User
from leaderboard.models.agreements import Acceptance, Agreement
from leaderboard.models.curation import AuditRecord, Challenge, JudgementImport, Pool, Rescore
from leaderboard.models.datasets import (
    VISIBILITIES,
    WITHOUT_AGREEMENT,
    Benchmark,
    BenchmarkMember,
    Dataset,
    DatasetFile,
    DatasetQuerySet,
    DatasetVersion,
    Protection,
    Qrels,
    Visibility,
)
from leaderboard.models.efficiency import HardwareClass, Measurement, Price
from leaderboard.models.history import BenchmarkCertainty, BenchmarkVersion, BoardChange, Certainty, EntryVersion
from leaderboard.models.profiles import CollectionProfile, Overlap, RunProfile
from leaderboard.models.results import (
    REFERENCE_TYPES,
    Entry,
    EntryQuerySet,
    Evaluation,
    EvaluationPart,
    Run,
    RunType,
    Seed,
    can_be_best,
)
from leaderboard.models.rounds import Round, RoundQuerySet, RoundSummary
from leaderboard.models.systems import (
    DECLARED_NUMBERS,
    Architecture,
    DeclaredNumber,
    DeclaredNumbers,
    Source,
    System,
    SystemRedirect,
    architecture_choices,
    short_citation,
)
from leaderboard.models.topic_sources import TopicBatch, TopicSource
from leaderboard.models.work_requests import WorkRequest
