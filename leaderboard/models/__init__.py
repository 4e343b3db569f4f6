"""The tables that boards are made of. Each has one writer, named in its docstring."""

from leaderboard.models.analysis import CollectionProfile, Overlap, RunProfile
from leaderboard.models.benchmarks import Benchmark, BenchmarkMember
from leaderboard.models.datasets import Dataset, DatasetFile, DatasetVersion, Qrels
from leaderboard.models.efficiency import HardwareClass, Measurement, Price
from leaderboard.models.history import BenchmarkVersion, BoardChange, Certainty, EntryVersion
from leaderboard.models.people import Membership, Team, User
from leaderboard.models.requests import WorkRequest
from leaderboard.models.results import Entry, Evaluation, Run, Seed
from leaderboard.models.systems import Architecture, Source, System

__all__ = [
    "Architecture",
    "Benchmark",
    "BenchmarkMember",
    "BenchmarkVersion",
    "BoardChange",
    "Certainty",
    "CollectionProfile",
    "Dataset",
    "DatasetFile",
    "DatasetVersion",
    "Entry",
    "EntryVersion",
    "Evaluation",
    "HardwareClass",
    "Measurement",
    "Membership",
    "Overlap",
    "Price",
    "Qrels",
    "Run",
    "RunProfile",
    "Seed",
    "Source",
    "System",
    "Team",
    "User",
    "WorkRequest",
]
