"""Runs that look like probes are flagged for the curator; their senders notice nothing."""

from __future__ import annotations

import json

import pytest
from django.test import Client
from django.urls import reverse

from leaderboard.datasets.qrels import topic_texts
from leaderboard.models import Dataset, DatasetVersion, Entry, Visibility
from submissions.models import Flag, Job, RunSignature
from submissions.quotas.probes import differing_queries
from tests.submissions.clients import Api, upload
from tests.submissions.collections import DOCUMENTS, QUERIES, run_text
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


@pytest.fixture(autouse=True)
def no_quota(secret: Dataset) -> None:
    Dataset.objects.update(daily_quota=None, monthly_quota=None)


def probe(base: int, step: int, changes: int = 1) -> str:
    """A run of which in this step some queries have other documents in front."""
    lines = []
    for number, query in enumerate(QUERIES):
        first = 600 + 40 * step if (number - step) % len(QUERIES) < changes else base * 40
        lines += [
            f"{query} Q0 {document} {rank} {1000 - rank}.5 t{step}\n"
            for rank, document in enumerate(DOCUMENTS[first : first + 20], 1)
        ]
    return "".join(lines)


def send(api: Api, content: str, label: str, system: str = "My system") -> str:
    answer = api.submit(content, dataset="secret", configuration=label, system=system)
    assert answer.status == 201, answer.body
    work()
    return str(answer.body["id"])


def flags(**chosen: object) -> list[str]:
    return list(Flag.objects.filter(**chosen).order_by("pk").values_list("kind", flat=True))


def test_a_normal_run_with_one_query_changed_is_flagged_at_once(api: Api) -> None:
    first = send(api, probe(0, 0, 0), "a")
    assert flags() == []
    second = send(api, probe(0, 1), "b")
    assert flags(submission=second) == ["nearly_the_same"]
    details = Flag.objects.get().details
    assert details["submission"] == first
    assert (details["compared"], details["same_documents"]) == (12, 11)
    assert Entry.objects.filter(visibility="public").count() == 2


def test_a_flag_lists_the_queries_that_differ_if_they_are_public(
    api: Api, secret: Dataset, admin_client: Client
) -> None:
    send(api, probe(0, 0, 0), "a")
    send(api, probe(0, 1), "b")
    flag = Flag.objects.get()
    page = reverse("admin:submissions_flag_change", args=[flag.pk])
    Dataset.objects.update(queries_visibility=Visibility.PUBLIC)
    query, version = list(QUERIES)[1], DatasetVersion.objects.get(dataset=secret)
    text = topic_texts(version.topics_sha256)[query]
    assert differing_queries(Flag.objects.get()) == [(query, text, False)]
    assert f"<code>{query}</code> {text}" in admin_client.get(page).content.decode()
    Dataset.objects.update(queries_visibility=Visibility.CURATORS)
    assert differing_queries(Flag.objects.get()) == []
    assert "those that differ are not listed" in admin_client.get(page).content.decode()


def test_a_walk_of_two_queries_at_a_time_is_flagged_at_the_third(api: Api) -> None:
    for step in range(3):
        send(api, probe(0, 2 * step, 2), f"c{step}")
    # 10 of 12 queries are those of the base: the first two differ in four.
    assert flags(kind="nearly_the_same") == []
    send(api, probe(0, 0, 0), "base")
    assert flags(kind="nearly_the_same") == ["nearly_the_same"]
    assert len(Flag.objects.get(kind="nearly_the_same").details["chain"]) == 3


def test_runs_of_their_own_are_not_flagged(api: Api) -> None:
    for number in range(4):
        send(api, run_text(skip=30 * number, tag=f"t{number}"), f"c{number}")
    assert "nearly_the_same" not in flags()


def test_few_queries_and_few_documents_are_flagged(api: Api) -> None:
    send(api, run_text(QUERIES[:5], depth=4), "a")
    assert sorted(flags()) == ["few_documents", "few_queries"]
    assert Flag.objects.get(kind="few_queries").details == {"answered": 5, "topics": 12}


def test_the_same_scores_again_are_flagged_and_only_as_that(api: Api) -> None:
    first = send(api, run_text(tag="a"), "a")
    second = send(api, run_text(tag="a"), "b")
    assert flags(submission=second) == ["same_scores"]
    assert Flag.objects.get().details == {"submission": first}


def test_the_first_documents_again_over_another_tail_are_nearly_the_same(api: Api) -> None:
    send(api, run_text(depth=20), "a")
    send(api, run_text(depth=400), "b")
    assert "nearly_the_same" in flags()


def test_seeds_of_one_set_are_not_held_against_each_other(api: Api) -> None:
    files = [upload(probe(0, step), f"seed{step}.txt") for step in range(1, 6)]
    answer = api.submit(file=files, dataset=["secret"] * 5)
    assert answer.status == 201, answer.body
    work()
    assert Job.objects.filter(state="done").count() == 5
    assert flags() == []
    assert RunSignature.objects.count() == 5


def test_what_another_team_sent_is_recognised(api: Api, stranger: Api) -> None:
    first = send(api, probe(0, 0, 0), "a")
    second = send(stranger, probe(0, 1), "b", "Another")
    assert flags(submission=second) == ["nearly_the_same"]
    assert Flag.objects.get().details["submission"] == first
    assert flags(submission=first) == []


def test_open_datasets_are_not_looked_at(api: Api, demo: Dataset) -> None:
    for label in ("a", "b"):
        api.submit(run_text(QUERIES[:3], depth=2 + len(label), tag=label), configuration=label)
        work()
    assert not Flag.objects.exists()
    assert not RunSignature.objects.exists()


def test_a_flag_tells_nothing_of_judgements_and_its_sender_nothing_of_the_flag(api: Api) -> None:
    send(api, probe(0, 0, 0), "a")
    second = send(api, probe(0, 1), "b")
    told = json.dumps(list(Flag.objects.values_list("details", flat=True)))
    assert not any(f'"{query}"' in told for query in QUERIES)
    assert "flag" not in json.dumps(api.get(f"submissions/{second}/").body).lower()
