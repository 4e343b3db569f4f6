"""The first start of a site, while another process migrates its database."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission

from leaderboard.management.supervisor.site import database_is_outdated


@pytest.mark.django_db(transaction=True)
def test_a_database_is_outdated_until_all_permissions_are_added() -> None:
    assert not database_is_outdated()
    Permission.objects.filter(content_type__app_label="socialaccount").delete()
    assert database_is_outdated(), "`migrate` still writes after its last migration"
