"""Codes are registered where they are raised: the page of formats explains each, docs/api.md names those of answers."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from django.test import Client
from rest_framework import exceptions

import evaluation.archives
import evaluation.runs
import leaderboard.api
import leaderboard.core
import submissions
from evaluation.checkpoints.findings import CODES
from evaluation.core.problems import PROBLEM_CODES, codes_about
from evaluation.execution.failures import MODEL_FAILURES
from leaderboard.core.http.errors import BROKEN, DATABASE_AWAY, DISK_FULL, TOO_SLOW
from leaderboard.views.reference import REQUEST_KINDS

RAISING = (evaluation.archives, evaluation.runs, leaderboard.api, leaderboard.core, submissions)
#: Registers what a web process registers, and prints it.
WEB = """
import django
django.setup()
from django.urls import get_resolver
from evaluation.core.problems import PROBLEM_CODES
get_resolver().url_patterns
print(*PROBLEM_CODES)
"""


def test_a_web_process_knows_every_code() -> None:
    for package in RAISING:
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(".__main__"):
                import_module(module.name)
    words = [sys.executable, "-c", WEB]
    done = subprocess.run(words, env=dict(os.environ), capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == set(PROBLEM_CODES)


def test_the_documentation_of_the_api_names_each_code_of_an_answer() -> None:
    text = Path("docs/api.md").read_text()
    faults = {fault.code for fault in (BROKEN, DATABASE_AWAY, DISK_FULL, TOO_SLOW)}
    refusals = {
        each.default_code
        for each in vars(exceptions).values()
        if isinstance(each, type) and issubclass(each, exceptions.APIException)
    } - {"error", "invalid"}
    asked = {*codes_about("request"), *faults, *refusals, *("bad-address", "not_found", "hub_missing")}
    # what is in a zip is told as what is in any file
    asked -= {"member_name", "member_kind"}
    assert sorted(code for code in asked if f"`{code}`" not in text) == []


@pytest.mark.django_db
def test_the_page_has_a_line_for_each(client: Client) -> None:
    page = client.get("/formats/").content.decode()
    codes = set(PROBLEM_CODES) | set(CODES) | set(MODEL_FAILURES)
    assert [code for code in codes if page.count(f'<tr id="{code}">') != 1] == []
    folds = page.split('<details class="code-list">')[1:]
    for kind, code in (("Warnings", "ties"), ("Files and uploads", "upload_offset"), ("Rounds", "tag_needed")):
        assert [f'id="{code}"' in fold for fold in folds] == [kind in fold.partition("<span")[0] for fold in folds]
    assert len(folds) == 2 + len(REQUEST_KINDS) + 2, "a link to a code opens its folded table"
