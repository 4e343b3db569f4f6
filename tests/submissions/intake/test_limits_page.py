"""`docs/limits.md` says what a fresh installation does, and forgets no limit that is a setting."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

from allauth.account import app_settings
from django.conf import settings
from django.urls import reverse

from evaluation.archives.compression import FileLimits
from leaderboard.systems import challenges
from submissions.accounts import access, passwords, teams, throttling
from submissions.checkpoints import concurrency
from submissions.intake import files
from submissions.intake.checkpoints import readiness
from submissions.jobs.checkpoints import running
from submissions.notifications import webhooks
from submissions.quotas import ledger
from submissions.uploads import handler
from submissions.uploads import service as upload_service

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "limits.md").read_text()
CONSTANTS: dict[str, ModuleType] = {
    "readiness.REFUSED_CHECKPOINTS_PER_HOUR": readiness,
    "running.CHECK_SECONDS": running,
    "teams.MAX_TEAMS": teams,
    "teams.MAX_INVITATIONS": teams,
    "webhooks.LIMIT": webhooks,
    "challenges.MAX_OPEN": challenges,
    "passwords.CHARACTERS": passwords,
    "access.STAFF_SESSION_HOURS": access,
    "access.LIMIT": access,
    "access.MAX_PASSKEYS": access,
    "throttling.VISITOR_CHECKS": throttling,
    "files.MAX_FILES": files,
    "checkpoints.concurrency.MAX_CHECKS": concurrency,
    "ledger.REFUSALS_PER_DAY": ledger,
    "uploads.service.MAX_USER_CHUNKS": upload_service,
    "uploads.service.UPLOADS_PER_PERSON": upload_service,
    "uploads.service.UPLOAD_BYTES_PER_PERSON": upload_service,
    "uploads.service.UPLOAD_LIFETIME_SECONDS": upload_service,
}
#: The proxy's locations as patterns, with what each says.
LOCATIONS = {
    ("" if kind.strip() == "~" else "^") + place: rules
    for kind, place, rules in re.findall(
        r"^    location (~ |= |)(\S+) \{\n(.*?)^    \}",
        (ROOT / "docker" / "nginx.conf.template").read_text(),
        re.MULTILINE | re.DOTALL,
    )
}
#: Settings that limit something, by how they are called.
LIMITING = re.compile(r"_PER_(PERSON|DAY)$|_AT_ONCE(_BYTES)?$|_LIMIT_BYTES$|_LIFETIME_SECONDS$|_WALL_CLOCK_SECONDS$")


def rows() -> dict[str, str]:
    """The page's limits by the name of their setting."""
    return dict(re.findall(r"\| `([A-Za-z_.]+)` \| `([^`]+)` \|$", PAGE, re.MULTILINE))


def value_of(name: str) -> str:
    """Return the value of the setting on this site."""
    head, _, last = name.rpartition(".")
    if name in CONSTANTS:
        return str(getattr(CONSTANTS[name], last)).strip("()")
    if head == "ACCOUNT_RATE_LIMITS":
        return str(settings.ACCOUNT_RATE_LIMITS[last])
    if head == "DEFAULT_THROTTLE_RATES":
        return str(settings.REST_FRAMEWORK[head][last])
    if head == "Limits":
        return str(getattr(FileLimits(), last))
    if name == "access.LIFETIME":
        return str(access.LIFETIME.days)
    if name.startswith("ACCOUNT_"):
        return str(getattr(app_settings, name.removeprefix("ACCOUNT_")))
    return str(getattr(settings, name))


def test_each_limit_is_what_the_site_has() -> None:
    said = rows()
    assert said == {name: value_of(name) for name in said}


def test_no_limit_is_forgotten() -> None:
    wanted = {f"ACCOUNT_RATE_LIMITS.{name}" for name in settings.ACCOUNT_RATE_LIMITS}
    wanted |= {f"DEFAULT_THROTTLE_RATES.{name}" for name in settings.REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"]}
    wanted |= {name for name in dir(settings) if LIMITING.search(name)}
    wanted |= set(CONSTANTS) | {"DISK_RESERVE_BYTES"}
    assert len(wanted) > 35
    assert wanted <= set(rows())


def test_the_proxy_has_what_the_page_says_of_it() -> None:
    proxy = (ROOT / "docker" / "nginx.conf.template").read_text()
    for row in (
        "| page views per second | 20 (burst 100) | |",
        "| writes per second | 5 (burst 50) | |",
        "| files being sent | 4 | 40 |",
        "| other requests in progress | 100 | 1,000 |",
        "| the same in the admin | 100 | 200 |",
        "| answers being read, with 16 MiB stored for each | 100 | |",
    ):
        assert row in PAGE
    assert "zone=readers:10m rate=20r/s" in proxy
    assert "zone=writers:10m rate=5r/s" in proxy
    assert set(re.findall(r"zone=(readers|writers) burst=(\d+)", proxy)) == {
        ("readers", "100"),
        ("writers", "50"),
    }
    assert set(re.findall(r"limit_conn senders (\d+)", proxy)) == {"4"}
    assert set(re.findall(r"limit_conn all_senders (\d+)", proxy)) == {"40"}
    assert "proxy_max_temp_file_size 16m;" in proxy
    assert set(re.findall(r"limit_conn (askers|all_askers|all_curators|readers_at_once) (\d+)", proxy)) == {
        ("askers", "100"),
        ("all_askers", "1000"),
        ("all_curators", "200"),
        ("readers_at_once", "100"),
    }


def test_the_proxy_stores_large_bodies_for_views_that_take_files_alone_and_few_at_once() -> None:
    """Tables that curators bring are far below what every page takes."""
    large = {place: rules for place, rules in LOCATIONS.items() if "${UPLOAD_LIMIT}" in rules}
    small = {f"admin:leaderboard_{table}_table" for table in handler._TABLES} | {"admin:leaderboard_entry_report"}
    small.add("admin:leaderboard_dataset_changelist")  # query tags
    for name in handler.TAKE_FILES:
        address = reverse(name, args=[1] if name.endswith("_change") else [])
        assert any(re.search(place, address) for place in large) == (name not in small), name
    for place, rules in large.items():
        assert "limit_conn senders" in rules, place
        assert ("limit_conn all_senders" in rules) != ("proxy_request_buffering off" in rules), place
    for place, zone in (("^/", "all_askers"), ("^/admin/", "all_curators")):
        assert f"limit_conn {zone} " in LOCATIONS[place]
    for place, rules in LOCATIONS.items():  # who only reads is not counted among all
        assert "limit_conn all_" not in rules or "if ($reads) { return" in rules, place
    for place in ("^@pages", "^@curation"):
        assert "client_max_body_size 1;" in LOCATIONS[place]
        assert "limit_conn all_" not in LOCATIONS[place]
    assert not any(re.search(place, "/admin/login/") for place in large)
