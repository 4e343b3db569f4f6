"""The people who submit, and their clients, as fixtures."""

from __future__ import annotations

import pytest
from django.test import Client

from leaderboard.models import User
from tests.factories import make_user
from tests.submissions.clients import Api


@pytest.fixture
def alice(db: None) -> User:
    """Somebody who submits."""
    return make_user("Alice")


@pytest.fixture
def curator(db: None) -> User:
    """Somebody who has every right of curation."""
    return make_user("Cora", is_staff=True, is_superuser=True)


@pytest.fixture
def api(alice: User) -> Api:
    """The API as Alice."""
    return Api(alice)


@pytest.fixture
def stranger(db: None) -> Api:
    """The API as somebody else."""
    return Api(make_user("Bob"))


@pytest.fixture
def nobody(db: None) -> Api:
    """The API without a token."""
    return Api(None)


@pytest.fixture
def signed_in(alice: User) -> Client:
    """The site as Alice."""
    client = Client()
    client.force_login(alice)
    return client
