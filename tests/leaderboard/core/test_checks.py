"""What `manage.py check --deploy` says of a public site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks


@pytest.mark.parametrize(
    ("embedded", "verification", "warned"),
    [(False, "optional", True), (False, "mandatory", False), (True, "optional", False)],
)
def test_a_public_site_without_a_mail_server_is_warned(
    settings: Any, embedded: bool, verification: str, warned: bool
) -> None:
    settings.EMBEDDED, settings.ACCOUNT_EMAIL_VERIFICATION = embedded, verification
    found = [each for each in run_checks(include_deployment_checks=True) if each.id == "leaderboard.W001"]
    assert bool(found) == warned
    assert all("EMAIL_URL" in str(each.hint) for each in found)
    assert not [each for each in run_checks() if each.id == "leaderboard.W001"]


@pytest.mark.parametrize(("mode", "warned"), [(0o700, False), (0o710, True), (0o755, True), (0o704, True)])
def test_a_folder_of_state_that_others_may_enter_is_warned_of(
    settings: Any, tmp_path: Path, mode: int, warned: bool
) -> None:
    tmp_path.chmod(mode)
    settings.VAR = tmp_path
    found = [each for each in run_checks() if each.id == "leaderboard.W004"]
    assert bool(found) == warned
    assert all(each.hint == f"chmod 700 {tmp_path}" for each in found)
