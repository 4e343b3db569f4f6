"""Migrations on main are never edited, and each app has one last migration."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from django.db.migrations.loader import MigrationLoader
from django.test import override_settings

ROOT = Path(__file__).resolve().parents[2]
#: Lines as `sha256sum leaderboard/migrations/[!_]*.py submissions/migrations/[!_]*.py` prints them.
LANDED = ROOT / "tests" / "structure" / "migrations.sha256"


def test_no_landed_migration_was_edited() -> None:
    landed = {path: sha256 for sha256, path in map(str.split, LANDED.read_text().splitlines())}
    present = {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()
        for app in ("leaderboard", "submissions")
        for path in (ROOT / app / "migrations").glob("[!_]*.py")
    }
    edited = sorted(path for path in landed if present.get(path) != landed[path])
    assert not edited, (
        f"{', '.join(edited)}: databases have applied this migration. Restore it and add a new migration."
    )
    unlisted = sorted(present.keys() - landed.keys())
    assert not unlisted, f"add the output of `sha256sum {' '.join(unlisted)}` to {LANDED.relative_to(ROOT)}"


def test_each_app_has_one_last_migration() -> None:
    with override_settings(MIGRATION_MODULES={}):
        conflicts = MigrationLoader(None, ignore_no_migrations=True).detect_conflicts()
    assert not conflicts, f"let one of these depend on the other, and renumber it: {conflicts}"


@pytest.mark.parametrize(("app", "number"), [("leaderboard", "0008"), ("submissions", "0006")])
def test_migrations_of_texts_are_found_by_number_and_unapplied_in_one_step(app: str, number: str) -> None:
    with override_settings(MIGRATION_MODULES={}):
        loader = MigrationLoader(None, ignore_no_migrations=True)
    replaced = loader.get_migration_by_prefix(app, number)
    migration = loader.disk_migrations[app, "reworded_texts_in_one_step"]
    assert migration.replaces == [(app, replaced.name)]
    state: Any = object()  # It has nothing to render.
    assert migration.unapply(state, None) is state
