"""A curator enters what publications report, and takes it back."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from leaderboard.models import AuditRecord, Entry, Source, System
from tests.factories import make_user
from tests.leaderboard.entries import score, scored_dataset
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db

ADDRESS = "/admin/leaderboard/entry/report/"
NEW = {
    "key": "owls-2026", "title": "On owls", "authors": "Owl, O.", "year": 2026, "venue": "SIGIR",
    "url": "https://example.org/owls",
}  # fmt: skip
FIGURE = {
    "dataset": "nuts", "system": "Owl", "measure": "ndcg@10", "value": "51.5", "scale": "percent", "locator": "Table 2",
    "architecture": "dense",
}  # fmt: skip
HEAD = "dataset,system,measure,value,scale,locator,architecture\n"


@pytest.fixture
def curator(client: Client) -> Client:
    client.force_login(make_user("Carol", is_staff=True, is_superuser=True))
    score(scored_dataset(slug="nuts", name="Nuts"), "Barn owl", ndcg=0.5)
    return client


def send(client: Client, **fields: Any) -> Any:
    return client.post(ADDRESS, {"why": "as printed", **fields})


def table(*rows: str) -> SimpleUploadedFile:
    return SimpleUploadedFile("figures.csv", (HEAD + "\n".join(rows)).encode())


def board() -> str:
    return Client().get("/datasets/nuts/?provenance=reported").content.decode()


def test_a_figure_of_a_new_publication_is_on_the_board_with_its_citation(curator: Client) -> None:
    assert "Single figure" in curator.get(ADDRESS).content.decode()
    assert send(curator, **NEW, **FIGURE).status_code == 302
    entry = Entry.objects.get(provenance="reported")
    assert (entry.scores, entry.locator, entry.source and entry.source.key) == (
        {"nDCG@10": 0.515},
        "Table 2",
        "owls-2026",
    )
    assert entry.figures[0]["as_printed"] == "51.5"
    page = board()
    assert "Owl" in page
    assert "0.515" in page
    cited = Client().get(f"/systems/{entry.system.slug}/").content.decode()
    assert "On owls" in cited
    assert "@inproceedings{owls-2026," in Source.objects.get().bibtex
    record = AuditRecord.objects.get(action="reported figure entered")
    assert (record.actor_name, record.reason, record.after["value"]) == ("Carol", "as printed", "51.5")


def test_three_mistakes_of_a_table_are_told_in_one_answer_by_line(curator: Client) -> None:
    rows = ("nuts,Owl,nDCG@10,0.5,,Table 2,dense", "bolts,Owl,nDCG@10,0.4,,Table 2,dense",
            "nuts,Owl,nDCG@10,51.5,,Table 2,dense", "nuts,Hawk,nDCG@10,0.3,,Table 2,")  # fmt: skip
    answer = send(curator, **NEW, csv=table(*rows))
    page = answer.content.decode()
    assert answer.status_code == 400
    assert {tuple(each["lines"]) for each in answer.context["problems"]} == {(3,), (4,), (5,)}
    for words in (
        "There is no dataset bolts",
        "51.5 is not a share",
        "Choose an architecture",
        "An earlier line has the same figure",
    ):
        assert words in page
    assert not Source.objects.exists()
    assert not Entry.objects.filter(provenance="reported").exists()
    assert send(curator, **NEW, csv=table(rows[0], rows[3] + "sparse")).status_code == 400
    assert send(curator, **NEW, csv=table(rows[0], rows[3] + "learned-sparse")).status_code == 302
    assert set(System.objects.filter(source__key="owls-2026").values_list("name", flat=True)) == {
        "Owl",
        "Hawk",
    }


def test_a_figure_is_corrected_withdrawn_and_entered_again(curator: Client) -> None:
    send(curator, **NEW, **FIGURE)
    known = {"publication": Source.objects.get().pk}
    assert send(curator, **known, **{**FIGURE, "value": "52.5", "architecture": ""}).status_code == 302
    entry = Entry.objects.get(provenance="reported")
    assert entry.scores == {"nDCG@10": 0.525}
    chosen = {"action": "withdraw", "_selected_action": entry.pk, "confirmed": "yes", "why": "a misprint"}
    refused = curator.post("/admin/leaderboard/entry/", {**chosen, "measure": "AP"})
    assert "has no AP" in refused.content.decode()
    assert curator.post("/admin/leaderboard/entry/", chosen).status_code == 302
    assert "0.525" not in board()
    assert AuditRecord.objects.filter(reason="a misprint").exists()
    assert send(curator, **known, **FIGURE).status_code == 302
    assert "0.515" in board()


def test_what_a_curator_entered_beside_the_sites_own_tables_stays(curator: Client) -> None:
    load_reported()
    entry = Entry.objects.filter(source__key="beir-2021", dataset__slug="scifact").first()
    assert entry is not None
    entry.dataset.measures = [*entry.dataset.measures, "R@1000"]
    entry.dataset.save()
    fields = {**FIGURE, "dataset": "scifact", "system": entry.system.name, "measure": "R@1000"}
    assert send(curator, publication=entry.source_id, **fields).status_code == 302
    load_reported()
    entry.refresh_from_db()
    assert entry.scores["R@1000"] == 0.515
    assert "nDCG@10" in entry.scores


def test_who_may_not_add_publications_enters_nothing(client: Client) -> None:
    client.force_login(make_user("Looker", is_staff=True))
    assert client.get(ADDRESS).status_code == 403
