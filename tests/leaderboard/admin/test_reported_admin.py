"""A curator enters what publications report, and takes it back."""

from __future__ import annotations

import csv
import html
import io
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard.models import AuditRecord, Entry, Source, System
from tests.factories import make_user
from tests.leaderboard.entries import score, scored_dataset
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db

ADDRESS = "/admin/leaderboard/entry/report/"
NEW = {
    "title": "On owls", "authors": "Owl, O.", "year": 2026, "venue": "SIGIR",
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
    """Store without looking at the preview."""
    return look(client, **fields, confirmed="Store")


def look(client: Client, **fields: Any) -> Any:
    way = "csv" if "csv" in fields or "table" in fields else "form"
    return client.post(f"{ADDRESS}?by={way}", {"why": "as printed", **fields})


def hidden_fields(page: str) -> dict[str, str]:
    """Return the values that the form of a preview submits again."""
    inputs = re.findall(r'<input type="hidden" name="(\w+)"(?: value="([^"]*)")?', page)
    return {name: html.unescape(value) for name, value in inputs if name != "csrfmiddlewaretoken"}


def table(*rows: str) -> SimpleUploadedFile:
    return SimpleUploadedFile("figures.csv", (HEAD + "\n".join(rows)).encode())


def board() -> str:
    return Client().get("/datasets/nuts/?provenance=reported").content.decode()


def test_optional_fields_are_folded_until_they_have_an_error_or_a_value(curator: Client) -> None:
    def open_groups(page: str) -> list[str]:
        return re.findall(r"<details class=\"module[^\"]*\" open>\s*<summary><strong>([^<]+)", page)

    assert open_groups(curator.get(ADDRESS).content.decode()) == ["New publication"]
    refused = look(curator, **FIGURE | {"latency": "fast"}).content.decode()
    assert "Nothing was stored. Correct the fields below." in refused
    assert open_groups(refused) == ["New publication", "More details"]


def test_the_csv_page_describes_each_column(curator: Client) -> None:
    page = curator.get(f"{ADDRESS}?by=csv").content.decode()
    cells = re.findall(r"<td><code>(\w+)</code></td>\s*<td>(.*?)</td>", page, re.DOTALL)
    columns = {name: " ".join(words.split()) for name, words in cells}
    assert columns["index_size"] == "For example 1200000000, 1.2 GB, or 800 MiB"
    assert columns["value"].startswith("Required. Printed value")
    assert columns["dataset"] == "Required. Slug of the dataset, as in /datasets/slug/"


def test_a_figure_of_a_new_publication_is_on_the_board_with_its_citation(curator: Client) -> None:
    assert "You see a preview" in curator.get(ADDRESS).content.decode()
    assert send(curator, **NEW, **FIGURE).status_code == 302
    entry = Entry.objects.get(provenance="reported")
    assert (entry.scores, entry.locator, entry.source and entry.source.key) == (
        {"nDCG@10": 0.515},
        "Table 2",
        "owl-2026",
    )
    assert entry.figures[0]["as_printed"] == "51.5"
    page = board()
    assert "Owl" in page
    assert "0.515" in page
    cited = Client().get(f"/systems/{entry.system.slug}/").content.decode()
    assert "On owls" in cited
    assert "@inproceedings{owl-2026," in Source.objects.get().bibtex
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
        "measure: An earlier entry has another value",
    ):
        assert words in page
    assert not Source.objects.exists()
    assert not Entry.objects.filter(provenance="reported").exists()
    assert send(curator, **NEW, csv=table(rows[0], rows[3] + "sparse")).status_code == 400
    assert send(curator, **NEW, csv=table(rows[0], rows[3] + "learned-sparse")).status_code == 302
    assert set(System.objects.filter(source__key="owl-2026").values_list("name", flat=True)) == {
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


COSTS = {
    "latency": "0.058 s", "hardware": "1 A100 GPU", "index_size": "1.5 GiB", "cost": "0.19", "parameters": "110M",
}  # fmt: skip


def exported(query: str = "") -> dict[str, dict[str, str]]:
    """The rows of the board's CSV by system, with columns named without their units."""
    text = Client().get(f"/datasets/nuts/board.csv{query}").content.decode()
    rows = csv.DictReader(io.StringIO(text))
    return {row["system"]: {name.partition(" [")[0]: value for name, value in row.items()} for row in rows}


def test_costs_are_previewed_and_stored_in_the_units_of_boards(curator: Client) -> None:
    preview = look(curator, **NEW, **FIGURE, **COSTS)
    page = preview.content.decode()
    assert preview.status_code == 200
    assert not Source.objects.exists()
    assert not AuditRecord.objects.filter(action="reported figure entered").exists()
    values = {change["field"]: (change["old"], change["new"]) for change in preview.context["rows"][0]["changes"]}
    assert values == {
        "architecture": ("", "dense"),
        "nDCG@10": ("", "0.515"), "latency, 1 A100 GPU": ("", "58 ms"), "index size": ("", "1.61 GB"),
        "cost": ("", "0.19 USD per 1,000 queries"), "parameters": ("", "110 M"), "page or table": ("", "Table 2"),
    }  # fmt: skip
    assert "Owl on Nuts (new system)" in page
    assert "New publication" in page
    fields = hidden_fields(page)
    back = curator.post(f"{ADDRESS}?by=form", {**fields, "back": "Back"}).content.decode()
    assert 'value="1.5 GiB"' in back
    assert 'value="On owls"' in back
    assert curator.post(f"{ADDRESS}?by=form", {**fields, "confirmed": "Store"}).status_code == 302
    row = exported()["Owl"]
    assert {key: row[key] for key in ("nDCG@10", "latency", "index-size", "cost", "declared-parameters")} == {
        "nDCG@10": "0.515", "latency": "58.0", "index-size": "1.610612736", "cost": "0.19",
        "declared-parameters": "110.0",
    }  # fmt: skip
    assert exported("?sort=cost&columns=efficiency")["Owl"]["cost"] == "0.19"
    answer = Client().get("/api/v1/datasets/nuts/board/").json()
    values = next(each["values"] for each in answer["rows"] if each["system"] == "Owl")
    assert (values["cost"], values["latency"], values["index-size"]) == (0.19, 58.0, 1.610612736)
    column = next(each for each in answer["columns"] if each["key"] == "cost")
    assert column["unit"] == "USD per 1,000 queries, self-reported"
    assert (
        "printed as 1.5 GiB" in Client().get("/datasets/nuts/?provenance=reported&columns=efficiency").content.decode()
    )


def test_a_preview_shows_what_is_replaced_and_a_cost_is_withdrawn_alone(curator: Client) -> None:
    send(curator, **NEW, **FIGURE, **COSTS)
    known = {"publication": Source.objects.get().pk}
    again = look(curator, **known, **{**FIGURE, "value": "0.5"}, **{**COSTS, "cost": "0.25"})
    assert [tuple(each.values()) for each in again.context["rows"][0]["changes"]] == [
        ("nDCG@10", "0.515", "0.005"),
        ("cost", "0.19 USD per 1,000 queries", "0.25 USD per 1,000 queries"),
    ]
    assert "0.5 percent is a share of 0.005" in again.content.decode()
    assert "new system" not in again.content.decode()
    unchanged = look(curator, **known, **FIGURE).content.decode()
    assert "Nothing will change" in unchanged
    assert 'name="confirmed"' not in unchanged
    entry = Entry.objects.get(provenance="reported")
    assert entry.figures[1]["name"] == "latency"
    chosen = {"action": "withdraw", "_selected_action": entry.pk, "confirmed": "yes", "why": "a misprint"}
    assert curator.post("/admin/leaderboard/entry/", {**chosen, "measure": "cost"}).status_code == 302
    assert "cost" not in exported()["Owl"]
    assert exported()["Owl"]["latency"] == "58.0"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("index_size", "1,2 GB", "Enter a number"),
        ("index_size", "1.2 pages", "optionally: B, kB, MB"),
        ("parameters", "many", "optionally: K, M, B"),
        ("cost", "$0.19", "optionally: no unit"),
        ("parameters", "999999999B", "more than any model has"),
        ("hardware", "", "Enter the hardware"),
        ("title", "ON OWLS", "This publication exists"),
        ("url", "owls", "Enter a valid URL"),
    ],
)
def test_a_mistake_is_explained_at_its_field(curator: Client, field: str, value: str, words: str) -> None:
    Source.objects.create(key="owls", title="On owls", authors="Owl, O.", year=2026)
    answer = send(curator, **{**NEW, "title": "On more owls", **FIGURE, **COSTS, field: value})
    assert answer.status_code == 400
    assert words in answer.content.decode()
    assert not Entry.objects.filter(provenance="reported").exists()


def test_a_csv_has_the_columns_of_the_form_and_comes_back_from_its_preview(curator: Client) -> None:
    head = HEAD.strip() + ",latency,hardware,index_size,cost,parameters"
    rows = [
        'nuts,Owl,nDCG@10,0.5,,Table 2,dense,58,1 CPU,"1,200,000,000",0.19,110M',
        "nuts,Owl,R@100,0.9,,Table 2,dense,58,1 CPU,,0.2,",
        "nuts,Hawk,R@100,0.8,,Table 2,dense,58,,,,",
    ]
    wrong = look(curator, **NEW, table="\n".join([head, *rows]))
    assert {(tuple(each["lines"]), each["message"].partition(":")[0]) for each in wrong.context["problems"]} == {
        ((3,), "cost"),
        ((4,), "hardware"),
    }
    assert rows[1] in wrong.content.decode()
    rows[1:] = [rows[1].replace("0.2", "0.19"), rows[2].replace(",58", ",")]
    preview = look(curator, **NEW, csv=SimpleUploadedFile("rows.csv", "\n".join([head, *rows]).encode()))
    assert [row["name"] for row in preview.context["rows"]] == ["Owl on Nuts (new system)", "Hawk on Nuts (new system)"]
    assert not System.objects.filter(source__isnull=False).exists()
    fields = hidden_fields(preview.content.decode())
    assert rows[0] in html.unescape(curator.post(f"{ADDRESS}?by=csv", {**fields, "back": "Back"}).content.decode())
    assert curator.post(f"{ADDRESS}?by=csv", {**fields, "confirmed": "Store"}).status_code == 302
    assert (exported()["Owl"]["index-size"], exported()["Hawk"]["R@100"]) == ("1.2", "0.8")
    assert System.objects.get(name="Owl").parameter_count == 110_000_000


def test_the_command_stores_what_the_page_does(curator: Client, tmp_path: Path) -> None:
    path, person = tmp_path / "rows.csv", make_user("Cora", is_staff=True, is_superuser=True).email
    path.write_text(
        HEAD.strip() + ",cost\nnuts,Owl,nDCG@10,0.5,,Table 2,dense,0.19\nnuts,Owl,nDCG@10,5,,Table 2,dense,\n"
    )

    def run(**options: Any) -> str:
        out = io.StringIO()
        call_command("import_reported", str(path), by=person, why="as printed", stdout=out, **options)
        return out.getvalue()

    new = {"title": "On owls", "authors": "Otto Owl and Eva Owl", "year": "2026", "url": "10.1145/3404835"}
    with pytest.raises(CommandError, match=r"(?s)value: 5 is not a share.*line 3"):
        run(**new)
    with pytest.raises(CommandError, match="--year: This field is required"):
        run(**{**new, "year": ""})
    path.write_text(path.read_text().rpartition("nuts")[0])
    shown = run(**new, dry_run=True)
    assert "Owl on Nuts (new system): nDCG@10: 0.500; cost: 0.19 USD per 1,000 queries" in shown
    assert not Source.objects.exists()
    assert "Published: 1 reported figure of On owls (Owl and Owl 2026)" in run(**new)
    assert (Source.objects.get().url, exported()["Owl"]["cost"]) == ("https://doi.org/10.1145/3404835", "0.19")
    with pytest.raises(CommandError, match="There is no publication On hawks"):
        run(publication="On hawks")
    assert "Published: 1 reported figure" in run(publication="on owls")
    assert Entry.objects.filter(provenance="reported").count() == 1


def test_publications_are_named_by_title(curator: Client) -> None:
    send(curator, **NEW, **FIGURE)
    for address in (ADDRESS, "/admin/leaderboard/system/", "/admin/leaderboard/benchmark/add/"):
        assert "On owls (Owl 2026)" in curator.get(address).content.decode(), address
    listed = curator.get("/admin/leaderboard/source/?q=on+owls").content.decode()
    assert ">On owls</a>" in listed
    assert "owl-2026" not in listed
    assert "Owl" in curator.get("/admin/leaderboard/entry/?q=on+owls").content.decode()
