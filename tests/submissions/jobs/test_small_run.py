"""How often a small run is read, and how many queries it takes, from its upload to its published row."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from leaderboard.models import Dataset, Entry
from tests.structure.walk import opened_runs
from tests.submissions.clients import Api
from tests.submissions.collections import run_text
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db

#: Those of an accepted upload to a dataset with open judgements, and those of its job, savepoints included.
MAX_UPLOAD_QUERIES, MAX_JOB_QUERIES = 31, 75


def test_a_small_run_is_read_three_times(demo: Dataset, baseline: None, api: Api) -> None:
    """Once as it comes in, which gives its checksum, once by the upload and once by the worker."""
    with opened_runs() as upload:
        api.submit(run_text(skip=2))
    with opened_runs() as job:
        work()
    assert Entry.objects.filter(system__name="My system", visibility=Entry.Visibility.PUBLIC).exists()
    assert (len(upload), len(job)) == (1, 1), (upload, job)


def test_a_small_run_takes_few_queries(demo: Dataset, baseline: None, api: Api) -> None:
    api.submit(run_text(skip=2), system="First")
    work()
    with CaptureQueriesContext(connection) as upload:
        accepted = api.submit(run_text(skip=3), system="Second")
    with CaptureQueriesContext(connection) as job:
        work()
    assert accepted.status == 201
    assert len(upload) <= MAX_UPLOAD_QUERIES, [query["sql"] for query in upload]
    assert len(job) <= MAX_JOB_QUERIES, [query["sql"] for query in job]
