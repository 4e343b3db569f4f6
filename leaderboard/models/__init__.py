"""The tables that boards are made of. Each has one writer, named in its docstring."""

from leaderboard.models.benchmarks import Benchmark, BenchmarkMember
from leaderboard.models.datasets import Dataset, DatasetFile, DatasetVersion, Qrels
from leaderboard.models.efficiency import HardwareClass, Measurement, Price
from leaderboard.models.people import Membership, Team, User
from leaderboard.models.requests import WorkRequest
from leaderboard.models.results import Entry, Evaluation, Run
from leaderboard.models.systems import Architecture, Source, System

__all__ = [
    "Architecture",
    "Benchmark",
    "BenchmarkMember",
    "Dataset",
    "DatasetFile",
    "DatasetVersion",
    "Entry",
    "Evaluation",
    "HardwareClass",
    "Measurement",
    "Membership",
    "Price",
    "Qrels",
    "Run",
    "Source",
    "System",
    "Team",
    "User",
    "WorkRequest",
]
