"""Curation in the admin: a reason for each change, its history and record, and two curators at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from leaderboard.models import AuditRecord, Benchmark, BenchmarkMember, Dataset, Source, User
from tests.curating import filled, save
from tests.factories import make_dataset, make_user, team_of
from tests.leaderboard.entries import make_source, scored_dataset

pytestmark = pytest.mark.django_db


def signed_in(name: str) -> tuple[Client, User]:
    """A curator with every right, at a browser of their own."""
    person, client = make_user(name, is_staff=True, is_superuser=True), Client()
    client.force_login(person)
    return client, person


def change_page(row: Dataset | Source | Benchmark) -> str:
    """Where the row is edited."""
    return reverse(f"admin:leaderboard_{row._meta.model_name}_change", args=[row.pk])


def test_a_change_of_public_text_needs_a_reason_and_is_recorded_with_it() -> None:
    carol, person = signed_in("Carol")
    dataset = make_dataset(name="Old", licence="CC BY")
    answer = save(carol, change_page(dataset), why="", name="New")
    assert "Give a reason in a few words" in answer.content.decode()
    dataset.refresh_from_db()
    assert dataset.name == "Old"
    assert save(carol, change_page(dataset), why="its authors renamed it", name="New").status_code == 302
    newest = dataset.history.latest()
    assert (newest.history_user, newest.history_change_reason) == (person, "its authors renamed it")
    record = AuditRecord.objects.get(action="edited")
    assert (record.actor, record.reason, record.dataset) == (person, "its authors renamed it", dataset)
    assert (record.before, record.after) == ({"name": "Old"}, {"name": "New"})
    page = carol.get(reverse("admin:leaderboard_dataset_history", args=[dataset.pk])).content.decode()
    assert all(text in page for text in ("Carol", "its authors renamed it", "“Old”", "“New”"))
    assert "style=" not in page


def test_history_tells_what_was_absent_and_lists_in_words() -> None:
    carol, _ = signed_in("Carol")
    dataset = scored_dataset(slug="nuts")
    qrels = dataset.current_qrels
    for present, measures in ((None, ["nDCG@10"]), (qrels, ["nDCG@10", "AP"])):
        dataset.current_qrels, dataset.measures = present, measures
        dataset.save()
    page = carol.get(reverse("admin:leaderboard_dataset_history", args=[dataset.pk])).content.decode()
    assert "<del>(empty)</del>" in page
    assert "<ins>“nDCG@10, AP”</ins>" in page
    assert "Deleted" not in page


def test_of_two_curators_the_second_sees_what_the_first_changed() -> None:
    (carol, _), (dan, _) = signed_in("Carol"), signed_in("Dan")
    source = make_source("paper")
    address = change_page(source)
    stale = {**filled(dan, address), "venue": "SIGIR", "why": "venue found"}
    assert save(carol, address, why="as printed", title="On nests").status_code == 302

    answer = dan.post(address, stale)
    text = answer.content.decode()
    assert "The form was not saved, because the object changed while you were editing it." in text
    assert "Carol changed it at" in text
    assert "(“as printed”): title from “On paper” to “On nests”." in text
    assert 'value="SIGIR"' in text
    assert 'value="venue found"' in text
    source.refresh_from_db()
    assert (source.title, source.venue) == ("On nests", "")

    again = answer.context["adminform"].form
    sent = {**stale, "title": "On nests", "rendered_from": again["rendered_from"].value()}
    assert dan.post(address, sent).status_code == 302
    source.refresh_from_db()
    assert (source.title, source.venue) == ("On nests", "SIGIR")


def test_rows_edited_on_the_same_page_are_part_of_the_lock() -> None:
    (carol, _), (dan, _) = signed_in("Carol"), signed_in("Dan")
    benchmark = Benchmark.objects.create(slug="few", name="Few")
    member = BenchmarkMember.objects.create(benchmark=benchmark, dataset=scored_dataset())
    stale = {**filled(dan, change_page(benchmark)), "name": "Fewer", "why": "short"}
    assert save(carol, change_page(benchmark), **{"members-0-counted": None}).status_code == 302
    assert "The form was not saved" in dan.post(change_page(benchmark), stale).content.decode()
    member.refresh_from_db()
    benchmark.refresh_from_db()
    assert (member.counted, benchmark.name) == (False, "Few")


def test_a_form_that_does_not_say_what_it_was_made_from_is_not_saved() -> None:
    carol, _ = signed_in("Carol")
    source = make_source("paper")
    answer = save(carol, change_page(source), rendered_from=None, title="Else")
    assert "The version of the form is missing" in answer.content.decode()


def test_deleting_needs_a_reason() -> None:
    carol, person = signed_in("Carol")
    source = make_source("paper")
    address = reverse("admin:leaderboard_source_delete", args=[source.pk])
    assert 'name="why"' in carol.get(address).content.decode()
    assert "Give a reason" in carol.post(address, {"post": "yes"}, follow=True).content.decode()
    assert carol.post(address, {"post": "yes", "why": "never printed"}).status_code == 302
    assert not Source.objects.exists()
    record = AuditRecord.objects.get(action="deleted")
    assert (record.actor, record.reason) == (person, "never printed")


@pytest.mark.parametrize(
    "arguments",
    [
        "tag_queries DATASET --tags FILE",
        "import_judgements DATASET FILE --conflicts keep",
        "import_table systems FILE",
        "import_reported FILE --publication KEY",
        "import_mteb_results FILE --source https://example.org/results",
        "approve_teams FILE",
        "import_runs FILE --dataset DATASET --team TEAM --architecture dense",
        "import_dataset FILE --slug new --name New",
        "import_dataset FOLDER --slug new --name New --baseline FILE",
        "restore_backup FILE",
    ],
)
def test_a_command_names_a_missing_file(arguments: str, tmp_path: Path) -> None:
    curator, dataset, source = signed_in("Carol")[1], make_dataset(hidden=False), make_source("lovelace-2020")
    words = {"FILE": str(tmp_path / "missing"), "DATASET": dataset.slug, "FOLDER": str(tmp_path), "KEY": source.key}
    words["TEAM"] = team_of(curator).slug
    command = [words.get(word, word) for word in arguments.split()]
    if command[0] != "restore_backup":
        command += ["--by", curator.email, "--why", "for a test"]
    with pytest.raises(CommandError) as refused:
        call_command(*command)
    text = str(refused.value)
    assert "missing" in text
    assert "Errno" not in text
