"""Rows for tests, made by hand: as few fields as a test needs, the rest as the site would make them."""

from __future__ import annotations

from itertools import count
from typing import Any

from django.utils import timezone

from leaderboard.core.permissions import make_curator
from leaderboard.models import Dataset, DatasetVersion, Team, TopicSource, User
from leaderboard.systems.records import SystemFields, create_system
from submissions.accounts.teams import personal_team
from submissions.models import Job, State, Submission

_numbers = count(1)


def make_user(name: str = "Alice", **fields: Any) -> User:
    """A person with a team of one."""
    user = User.objects.create_user(f"{name.lower()}{next(_numbers)}@example.org", "a long passphrase", name=name)
    for field, value in fields.items():
        setattr(user, field, value)
    user.save()
    personal_team(user)
    return user


def make_a_curator(name: str = "Cora") -> User:
    """A person with the rights of the group of curators."""
    user = make_user(name)
    make_curator(user)
    return User.objects.get(pk=user.pk)


def team_of(user: User) -> Team:
    """The person's own team."""
    return personal_team(user)


def make_dataset(**fields: Any) -> Dataset:
    """A published dataset without content."""
    number = next(_numbers)
    values: dict[str, Any] = {
        "slug": f"dataset-{number}",
        "name": f"Dataset {number}",
        "state": Dataset.State.PUBLISHED,
        "measures": ["nDCG@10", "AP"],
        **fields,
    }
    return Dataset.objects.create(**values)


def make_version(dataset: Dataset, **fields: Any) -> DatasetVersion:
    """A version without files."""
    number = next(_numbers)
    values: dict[str, Any] = {
        "number": number,
        "content_sha256": f"{number:064x}",
        "queries_sha256": f"{number:064x}",
        "topics_sha256": f"{number:064x}",
        **fields,
    }
    return DatasetVersion.objects.create(dataset=dataset, **values)


def make_topic_source(**fields: Any) -> TopicSource:
    """A rolling benchmark whose next renewal is due."""
    return TopicSource.objects.create(**{"slug": "rolling", "name": "Rolling", "next_at": timezone.now(), **fields})


def make_job(dataset: Dataset, **fields: Any) -> Job:
    """A job as the dispatcher makes it."""
    values: dict[str, Any] = {
        "kind": Job.Kind.SCORE,
        "queue": Job.Queue.SCORE,
        "state": State.QUEUED,
        "validated": True,
        **fields,
    }
    return Job.objects.create(dataset=dataset, **values)


def make_model_submission(team: Team, **fields: Any) -> Submission:
    """A submission of a model by the team's first member, for a system of its own."""
    system = create_system(team, SystemFields(f"System {next(_numbers)}", "dense"))
    values: dict[str, Any] = {"submitter": team.members.first(), "team": team, "system": system, **fields}
    return Submission.objects.create(kind=Submission.Kind.MODEL, **values)
