"""Curation: importing a zip in the admin, and what cannot be edited by hand."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from leaderboard.core.permissions import make_curator
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import (
    AuditRecord,
    Benchmark,
    BenchmarkMember,
    Dataset,
    Entry,
    Qrels,
    Team,
    Visibility,
    WorkRequest,
)
from tests.curating import save
from tests.factories import make_a_curator, make_user
from tests.importing import IMPORT, send
from tests.leaderboard.entries import make_source, make_system, report, score, scored_dataset
from tests.leaderboard.tiny_collection import good_files, write_folder, write_zip
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db


@pytest.fixture
def curator(client: Client) -> Client:
    """Signed in with every right."""
    client.force_login(make_user("Carol", is_staff=True, is_superuser=True))
    return client


def test_a_curator_imports_a_zip(tmp_path: Path, curator: Client) -> None:
    form = curator.get(IMPORT)
    assert b'enctype="multipart/form-data"' in form.content
    answer = send(curator, write_zip(tmp_path / "a.zip"), name="Tiny", judgements="open", measures="P@5, AP")
    assert "Imported Tiny version 1" in answer.content.decode()
    dataset = Dataset.objects.get(slug="tiny")
    assert (dataset.hidden, dataset.measures) == (False, ["nDCG@10", "P@5", "AP"])
    assert WorkRequest.objects.get(kind=WorkRequest.Kind.BASELINE).dataset == dataset
    assert (
        "No changes: Tiny version 1 has exactly this content"
        in send(curator, write_zip(tmp_path / "b.zip")).content.decode()
    )


def test_every_problem_of_a_zip_is_listed_under_the_name_it_was_sent_with(tmp_path: Path, curator: Client) -> None:
    changes = {"queries.jsonl": None, "corpus.jsonl": good_files()["corpus.jsonl"] + "nonsense\n"}
    answer = send(curator, write_zip(tmp_path / "a.zip", changes))
    text = answer.content.decode()
    assert answer.status_code == 400
    assert "Nothing was imported: 2 problems." in text
    assert "queries.jsonl is missing" in text
    assert re.search(r'<td class="n">\s+6\s+</td>', text)
    assert "in total" not in text
    (tmp_path / "not.zip").write_text("no zip")
    refused = send(curator, tmp_path / "not.zip").content.decode()
    assert "tiny.zip is neither a folder nor a zip" in refused
    assert "Choose a folder" not in refused
    assert not Dataset.objects.exists()


def test_a_zip_of_topics_is_imported_with_the_field_that_was_chosen(tmp_path: Path, curator: Client) -> None:
    path = tmp_path / "topics.zip"
    topics = "<topics><topic number='1'><query>a</query><narrative>b c</narrative></topic></topics>"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("corpus.jsonl", good_files()["corpus.jsonl"])
        archive.writestr("qrels.txt", "1 0 d1 1\n")
        archive.writestr("topics.xml", topics)
    wrong = send(curator, path, topic_field="description").content.decode()
    assert "topics.xml: a topic has no description" in wrong
    assert "these topics have narrative, title" in wrong
    assert "Imported" in send(curator, path, topic_field="narrative").content.decode()
    version = Dataset.objects.get().current_version
    assert version is not None
    assert (version.statistics["topic_field"], version.statistics["words_per_query"]) == ("narrative", 2)


def test_problems_of_a_zip_name_the_fields_of_the_form(tmp_path: Path, curator: Client) -> None:
    parts = dict.fromkeys(["queries.jsonl", "corpus.jsonl", "qrels/test.tsv", "qrels/train.tsv"])
    page = send(curator, write_zip(tmp_path / "a.zip", parts | {"document-ids.txt": "d1\n"})).content.decode()
    assert "For a collection without documents, use “Runs only”." in page
    assert "If there are none yet, use “Collecting”." in page
    assert not re.search("[^-]--[a-z]+", re.search(r'<table class="problems">.*?</table>', page, re.DOTALL)[0])  # type: ignore[index]


def test_importing_takes_the_right_to_add_datasets(client: Client) -> None:
    client.force_login(make_user("Sam", is_staff=True))
    assert client.get(IMPORT).status_code == 403
    client.force_login(make_user("Bob"))
    assert client.get(IMPORT).status_code in (302, 403)


def test_what_is_hidden_is_opened_by_who_may_read_it(tmp_path: Path, client: Client) -> None:
    dataset = import_dataset(write_folder(tmp_path), ImportOptions(slug="tiny")).dataset
    Dataset.objects.filter(pk=dataset.pk).update(queries_visibility=Visibility.CURATORS)
    person = make_a_curator()
    client.force_login(person)
    sent = write_zip(tmp_path / "a.zip", {"qrels/test.tsv": None})  # what everyone has, without judgements
    opening = {"judgements": "open", "split": "test", "collecting": "on"}
    refused = send(client, sent, **opening, queries_visibility="public")
    assert refused.status_code == 400
    assert refused.content.decode().count("Ask a user who may read hidden judgments to do this") == 2
    page = client.get(reverse("admin:leaderboard_dataset_change", args=[dataset.pk]))
    assert "queries_visibility" in page.content.decode()
    save(client, page.request["PATH_INFO"], name="Tiny one", queries_visibility="public")
    dataset.refresh_from_db()
    assert (dataset.name, dataset.hidden, dataset.queries_visibility) == (
        "Tiny one",
        True,
        Visibility.CURATORS,
    )
    told = send(client, sent, split="test", collecting="on")
    assert "hidden judgments, which you may not read" in told.content.decode()
    alone = write_zip(tmp_path / "b.zip", {"qrels/test.tsv": None, "qrels/train.tsv": None})
    assert send(client, alone, split="test", collecting="on").status_code == 200  # with all that is hidden as it was
    make_curator(person, read_qrels=True)
    assert "Imported Tiny" in send(client, sent, **opening).content.decode()
    dataset.refresh_from_db()
    assert (dataset.hidden, AuditRecord.objects.get(action="settings").actor) == (False, person)


def test_who_may_not_open_what_only_collects_is_told_what_it_would_open(tmp_path: Path, client: Client) -> None:
    client.force_login(make_a_curator())
    sent = write_zip(tmp_path / "a.zip", {"qrels/test.tsv": None})
    assert (
        "Imported"
        in send(client, sent, name="Tiny", judgements="hidden", split="test", collecting="on").content.decode()
    )
    refused = send(client, sent, judgements="open", split="test", collecting="on")
    text = refused.content.decode()
    assert refused.status_code == 400
    assert "This would publish all runs on Tiny once it is judged, and its judgments." in text
    assert "hidden judgments of" not in text


def test_asking_for_a_baseline_takes_the_right_to_change_datasets_and_is_recorded(
    tmp_path: Path, client: Client
) -> None:
    dataset = import_dataset(write_folder(tmp_path), ImportOptions(slug="tiny")).dataset
    WorkRequest.objects.all().delete()
    reader, person = make_user("Rita", is_staff=True), make_a_curator()
    reader.user_permissions.add(Permission.objects.get(codename="view_dataset"))
    sent = {"action": "make_baseline", "_selected_action": [dataset.pk]}
    for who, requests in ((reader, 0), (person, 1)):
        client.force_login(who)
        client.post("/admin/leaderboard/dataset/", sent)
        assert WorkRequest.objects.filter(kind=WorkRequest.Kind.BASELINE).count() == requests
    assert AuditRecord.objects.get(action="baseline requested").actor == person


def test_another_language_is_one_code_and_makes_bm25_again(tmp_path: Path, curator: Client) -> None:
    answer = send(curator, write_zip(tmp_path / "a.zip"), language="Swahili (Kenya)")
    assert "is neither the code nor the English name of a language" in answer.content.decode()
    answer = send(curator, write_zip(tmp_path / "a.zip"), language="swa-Latn")
    assert "There is no analyzer for Swahili" in answer.content.decode()
    dataset = Dataset.objects.get()
    assert dataset.language == "sw"
    WorkRequest.objects.all().delete()
    page = reverse("admin:leaderboard_dataset_change", args=[dataset.pk])
    refused = save(curator, page, language="germn")
    assert "Did you mean de (German)?" in refused.content.decode()
    assert save(curator, page, language="German").status_code == 302
    assert "BM25 baseline will be rebuilt" in curator.get(page).content.decode()
    dataset.refresh_from_db()
    assert dataset.language == "de"
    assert WorkRequest.objects.get(kind=WorkRequest.Kind.BASELINE).dataset == dataset
    assert save(curator, page, language="deu", task="Toys").status_code == 302
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.BASELINE).count() == 1


@pytest.mark.parametrize(
    "model", ["dataset", "datasetversion", "qrels", "benchmark", "system", "entry", "team", "user", "source"]
)
def test_lists_and_pages_open(model: str, tmp_path: Path, curator: Client) -> None:
    load_reported()
    import_dataset(write_folder(tmp_path), ImportOptions(slug="tiny"))
    assert curator.get(reverse(f"admin:leaderboard_{model}_changelist")).status_code == 200
    from django.apps import apps

    row = apps.get_model("leaderboard", model).objects.first()
    if row is not None:
        assert curator.get(reverse(f"admin:leaderboard_{model}_change", args=[row.pk])).status_code == 200


def test_judgements_are_metadata_only(tmp_path: Path, curator: Client) -> None:
    named = {name: content.replace("d3", "judged-document") for name, content in good_files().items()}
    import_dataset(write_folder(tmp_path, named), ImportOptions(slug="tiny"))
    page = curator.get(reverse("admin:leaderboard_qrels_change", args=[Qrels.objects.get().pk])).content.decode()
    assert "judged queries" in page
    assert "judged-document" not in page
    assert 'name="_save"' not in page


def test_scores_and_deciding_settings_cannot_be_edited(tmp_path: Path, curator: Client) -> None:
    load_reported()
    entry = Entry.objects.filter(dataset__slug="fiqa").first()
    assert entry is not None
    page = curator.get(reverse("admin:leaderboard_entry_change", args=[entry.pk])).content.decode()
    assert 'name="scores"' not in page
    dataset = Dataset.objects.get(slug="fiqa")
    url = reverse("admin:leaderboard_dataset_change", args=[dataset.pk])
    page = curator.get(url).content.decode()
    assert all(f'name="{name}"' not in page for name in ("hidden", "measures", "slug", "relevance_level"))
    assert save(curator, url, name="FiQA", hidden="on", slug="other").status_code == 302
    revision = dataset.board_revision
    dataset.refresh_from_db()
    assert (dataset.name, dataset.slug, dataset.hidden) == ("FiQA", "fiqa", False)
    assert dataset.board_revision == revision + 1


def test_boards_follow_when_a_system_or_its_team_is_edited(curator: Client) -> None:
    team = Team.objects.create(slug="owls", name="Owls")
    dataset = scored_dataset()
    system = make_system("Tawny", team=team)
    entry = score(dataset, system, ndcg=0.5)
    board, visitor = f"/datasets/{dataset.slug}/", Client()
    assert "Tawny" in visitor.get(board).content.decode()
    address = reverse("admin:leaderboard_system_change", args=[system.pk])
    save(curator, address, name="Barn", training_declared="on", training_datasets=f"{dataset.slug}\r\n\r\n")
    page = visitor.get(board).content.decode()
    assert ("Barn" in page, "Tawny" in page, "Owls" in page) == (True, False, True)
    entry.refresh_from_db()
    assert entry.training == Entry.Training.IN_DOMAIN
    save(curator, reverse("admin:leaderboard_team_change", args=[team.pk]), name="Falcons")
    page = visitor.get(board).content.decode()
    assert ("Falcons" in page, "Owls" in page) == (True, False)


def test_boards_of_reported_figures_follow_too(curator: Client) -> None:
    load_reported()
    entry = Entry.objects.filter(dataset__slug="fiqa").select_related("system").first()
    assert entry is not None
    assert entry.system.name in Client().get("/datasets/fiqa/").content.decode()
    save(curator, reverse("admin:leaderboard_system_change", args=[entry.system.pk]), name="Barn")
    assert "Barn" in Client().get("/datasets/fiqa/").content.decode()


def test_boards_follow_when_a_publication_is_edited(curator: Client) -> None:
    source = make_source("paper")
    dataset = scored_dataset(slug="cited")
    report(dataset, source, "Barn", ndcg=0.5)
    benchmark = Benchmark.objects.create(slug="few", name="Few", source=source)
    BenchmarkMember.objects.create(benchmark=benchmark, dataset=scored_dataset(slug="member"))
    before = dict(Dataset.objects.values_list("slug", "board_revision"))
    visitor = Client()
    assert "Lovelace" in visitor.get("/datasets/cited/").content.decode()
    address = reverse("admin:leaderboard_source_change", args=[source.pk])
    assert save(curator, address, title="On owls", authors="Emmy Noether", year=1921).status_code == 302
    page = visitor.get("/datasets/cited/").content.decode()
    assert ("Noether" in page, "Lovelace" in page) == (True, False)
    after = dict(Dataset.objects.values_list("slug", "board_revision"))
    assert {slug: after[slug] - before[slug] for slug in before} == {"cited": 1, "member": 1}


def test_the_page_of_a_dataset_follows_when_it_leaves_a_benchmark_or_the_benchmark_goes(
    curator: Client,
) -> None:
    benchmark = Benchmark.objects.create(slug="few", name="Few and far between")
    for slug in ("stays", "leaves"):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=scored_dataset(slug=slug))

    def named() -> list[str]:
        pages = {slug: Client().get(f"/datasets/{slug}/").content.decode() for slug in ("stays", "leaves")}
        return [slug for slug, page in pages.items() if benchmark.name in page]

    assert named() == ["stays", "leaves"]
    address = reverse("admin:leaderboard_benchmark_change", args=[benchmark.pk])
    assert save(curator, address, **{"members-1-DELETE": "on"}).status_code == 302
    assert named() == ["stays"]
    gone = reverse("admin:leaderboard_benchmark_delete", args=[benchmark.pk])
    assert curator.post(gone, {"post": "yes", "why": "never announced"}).status_code == 302
    assert named() == []


def test_the_admin_signs_in_where_everyone_does(client: Client) -> None:
    answer = client.get("/admin/", follow=True)
    assert answer.redirect_chain[-1][0].startswith("/accounts/login/") or "login" in answer.redirect_chain[-1][0]
    assert b"this_is_the_login_form" not in answer.content


def test_pages_have_no_inline_script_or_style(tmp_path: Path, curator: Client) -> None:
    for url in (IMPORT, reverse("admin:leaderboard_dataset_changelist")):
        page = curator.get(url).content.decode()
        assert "style=" not in page
        assert all("src=" in tag or 'type="application/json"' in tag for tag in page.split("<script")[1:] if tag)
