"""Curation's pages and commands of pools and judgements."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard.core.storage.store import Area, put
from leaderboard.datasets.qrels import load_qrels
from leaderboard.models import AuditRecord, Dataset, DatasetVersion, JudgementImport, Pool, Qrels, User
from submissions.jobs.runner import drain_queue
from submissions.queue.queue import create_requested_jobs
from tests.factories import make_user
from tests.pages import one_line
from tests.submissions.clients import Api, upload
from tests.submissions.collections import QUERIES, run_text
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db

JUDGED_BY = {"judge_kind": "people", "judge_name": "NIST assessors"}
POOLS, IMPORTS = "/admin/leaderboard/pool/", "/admin/leaderboard/judgementimport/"


def with_rights(*codenames: str) -> User:
    """Somebody of the staff with these rights of the dataset's alone."""
    person = make_user("Judith", is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return person


@pytest.fixture
def judge(db: None) -> Client:
    """Signed in, may judge, may not read judgements."""
    client = Client()
    client.force_login(with_rights("judge_dataset"))
    return client


def scorer() -> None:
    """Take up what was asked for, and do it."""
    create_requested_jobs()
    drain_queue("score", "test-worker")


@pytest.mark.database
@pytest.mark.parametrize("address", [f"{IMPORTS}bring/", f"{POOLS}draw/"])
def test_a_nul_character_in_the_dataset_is_an_error_of_the_form(judge: Client, address: str) -> None:
    answer = judge.post(address, {"dataset": "a\0b"})
    assert answer.status_code == 400
    assert judge.get(address, {"dataset": "a\0b"}).status_code < 500


def bring(client: Client, text: str, **fields: Any) -> str:
    """Send a file; the address of the import's page."""
    data = {"dataset": "demo", "file": upload(text, "judged.qrels"), "why": "assessed", **JUDGED_BY, **fields}
    answer = client.post(f"{IMPORTS}bring/", data)
    assert answer.status_code == 302, answer.content.decode()
    return str(answer["Location"])


def test_a_pool_is_drawn_and_downloaded(demo: Dataset, api: Api, judge: Client) -> None:
    api.submit(run_text(depth=5), system="Mine")
    work()
    page = judge.get(f"{POOLS}draw/?dataset=demo").content.decode()
    assert "Mine" in page
    answer = judge.post(f"{POOLS}draw/?dataset=demo", {"dataset": "demo", "depth": 3, "why": "October"})
    address = answer["Location"]
    waiting = judge.get(address).content.decode()
    assert 'http-equiv="refresh"' in waiting
    assert "being drawn" in waiting
    scorer()
    page = judge.get(address).content.decode()
    assert 'http-equiv="refresh"' not in page
    pool = Pool.objects.get()
    for form, name in (("csv", f"pool-demo-{pool.pk}.csv"), ("trec", f"pool-demo-{pool.pk}.qrels")):
        file = judge.get(f"{POOLS}{pool.pk}/files/{form}/")
        assert file["Content-Disposition"] == f'attachment; filename="{name}"'
        assert "no-store" in file["Cache-Control"]
        assert b"q1" in b"".join(file.streaming_content)
    records = AuditRecord.objects.filter(action="pool downloaded")
    assert [(each.actor_name, each.after) for each in records] == [
        ("Judith", {"form": "trec"}),
        ("Judith", {"form": "csv"}),
    ]


def test_without_the_right_nothing_of_it_is_there(demo: Dataset, api: Api, judge: Client) -> None:
    api.submit()
    work()
    address = judge.post(f"{POOLS}draw/?dataset=demo", {"dataset": "demo", "depth": 3, "why": "x"})["Location"]
    scorer()
    brought = bring(judge, "q1 0 d1 2\n")
    other = Client()
    other.force_login(with_rights("change_dataset", "moderate_entry", "view_pool", "view_judgementimport"))
    pool = Pool.objects.get().pk
    for path in (
        POOLS,
        f"{POOLS}draw/",
        address,
        f"{POOLS}{pool}/files/csv/",
        IMPORTS,
        f"{IMPORTS}bring/",
        brought,
    ):
        assert other.get(path).status_code == 403, path
    assert "Pools" not in other.get("/admin/").content.decode()


def test_a_file_with_problems_is_listed_whole(demo: Dataset, judge: Client) -> None:
    text = "q1 0 d2 1\nq99 0 d2 1\nq1 0 nowhere 1\nq1 0 d4 many\n"
    data = {"dataset": "demo", "file": upload(text, "judged.qrels"), "why": "assessed", **JUDGED_BY}
    answer = judge.post(f"{IMPORTS}bring/", {**data, "strict": "on"})
    page = answer.content.decode()
    assert answer.status_code == 400
    assert "The file was not stored: 3 problems." in page
    assert "a query that is not in the dataset: 1 line" in page
    assert not JudgementImport.objects.exists()


def test_judgements_are_compared_and_merged_on_one_page(demo: Dataset, judge: Client) -> None:
    address = bring(judge, "q1 0 d1 2\nq1 0 d2 1\nq2 0 d4 -1\n", note="assessors of October")
    assert 'http-equiv="refresh"' in judge.get(address).content.decode()
    scorer()
    page = judge.get(address).content.decode()
    assert "keep the old grade" in page
    assert "Old grade" not in page.replace("Old grades are shown", "")  # no right to read judgements
    refused = judge.post(address, {"policy": "keep", "merge": "Merge"})
    assert refused.status_code == 400  # it does not say why
    judge.post(address, {"policy": "highest", "merge": "Merge", "why": "two assessors agree"})
    scorer()
    demo.refresh_from_db()
    assert demo.current_qrels is not None
    assert load_qrels(demo.current_qrels).as_dict()["q1"] == {"d1": 2, "d2": 1, "d3": 2, "d900": 0}
    assert "merged into qrels v2. Conflicting grades: use the higher grade" in judge.get(address).content.decode()
    late = judge.post(address, {"discard": "Discard", "why": "no"}, follow=True).content.decode()
    assert "This import is already settled" in late


def test_old_grades_are_shown_to_readers_and_that_is_recorded(demo: Dataset, judge: Client) -> None:
    address = bring(judge, "q1 0 d3 1\n")
    scorer()
    reader = Client()
    reader.force_login(with_rights("judge_dataset", "read_qrels"))
    assert '<td class="n">2</td><td class="n">1</td>' in one_line(reader.get(address).content.decode())
    assert AuditRecord.objects.get(action="read judgements").actor_name == "Judith"
    judge.get(address)
    assert AuditRecord.objects.filter(action="read judgements").count() == 1


def run(command: str, *arguments: Any, **options: Any) -> str:
    """What a command says."""
    out = StringIO()
    call_command(command, *arguments, stdout=out, **options)
    return out.getvalue()


def test_only_topics_are_pooled_and_what_was_left_out_is_said(
    demo: Dataset, api: Api, judge: Client, tmp_path: Path
) -> None:
    topics = tmp_path / "topics.jsonl"
    topics.write_text("".join(json.dumps({"_id": name, "text": "asked"}) + "\n" for name in QUERIES[:3]))
    DatasetVersion.objects.update(topics_sha256=put(Area.FILES, topics))
    api.submit(run_text(depth=5), system="Mine")
    work()
    by = {"by": with_rights("judge_dataset").email, "why": "October"}
    said = run("draw_pool", "demo", depth=4, to=tmp_path, **by)
    assert "6 pairs of 3 queries from 1 run; 6 were already judged." in said
    assert "Skipped 9 queries of the runs that the dataset does not have." in said
    page = one_line(judge.get(f"/admin/leaderboard/pool/{Pool.objects.get().pk}/change/").content.decode())
    assert "not in the dataset</dt><dd>9</dd>" in page


def test_a_grade_above_the_present_scale_is_a_slip_unless_the_scale_grew(
    demo: Dataset, judge: Client, tmp_path: Path
) -> None:
    Qrels.objects.update(statistics={"grades": {"0": 3, "1": 20}})
    data = {"dataset": "demo", "why": "assessed", **JUDGED_BY}
    refused = judge.post(f"{IMPORTS}bring/", {**data, "file": upload("q1 0 d2 9\n", "judged.qrels")})
    assert refused.status_code == 400
    assert "a grade above 1, the highest among the current judgments" in refused.content.decode()
    assert not JudgementImport.objects.exists()
    bring(judge, "q1 0 d2 2\n", scale_grew="on")
    scorer()
    assert JudgementImport.objects.get().counts["new"] == 1
    path = tmp_path / "judged.qrels"
    path.write_text("q1 0 d1 2\n")
    by = {"by": with_rights("judge_dataset").email, "why": "October", "dry_run": True}
    with pytest.raises(CommandError, match="--scale-grew"):
        run("import_judgements", "demo", str(path), **by)
    said = run("import_judgements", "demo", str(path), scale_grew=True, **by)
    assert said.startswith("0 new, 0 the same, 1 conflict (1 higher, 0 lower); 1 query, 0 of them")


def test_commands_draw_and_import_at_once(demo: Dataset, api: Api, judge: Client, tmp_path: Path) -> None:
    api.submit(run_text(depth=5), system="Mine")
    work()
    by = {"by": with_rights("judge_dataset").email, "why": "October"}
    with pytest.raises(CommandError, match="from 1 to 1,000 documents, not 0"):
        run("draw_pool", "demo", depth=0, to=tmp_path, **by)
    said = run("draw_pool", "demo", depth=4, to=tmp_path, **by)
    by["judge"] = "NIST assessors"
    pool = Pool.objects.get()
    assert f"Pool {pool.pk}: 28 pairs of 12 queries from 1 run; 20 were already judged." in said
    lines = (tmp_path / f"pool-demo-{pool.pk}.qrels").read_text().splitlines()
    judged = tmp_path / "judged.qrels"
    judged.write_text("".join(line.replace(" -1", " 1\n") for line in lines))
    tried = run("import_judgements", "demo", str(judged), dry_run=True, **by)
    assert tried.startswith("28 new, 0 the same, 0 conflicts")
    assert not JudgementImport.objects.exists()
    said = run("import_judgements", "demo", str(judged), pool=pool.pk, **by)
    assert "Qrels v2: the stored runs are being rescored." in said
    merged = JudgementImport.objects.get()
    page = judge.get(f"{IMPORTS}{merged.pk}/change/").content.decode()
    assert "compare the boards, then switch" in page
    judged.write_text("q1 0 d1 2\n")
    with pytest.raises(CommandError, match="Give --conflicts"):
        run("import_judgements", "demo", str(judged), **by)
    with pytest.raises(CommandError, match="is already being rescored"):
        run("import_judgements", "demo", str(judged), conflicts="replace", **by)
    judged.write_text("q1 0 nowhere 2\n")
    with pytest.raises(CommandError, match="a document that is not in the dataset"):
        run("import_judgements", "demo", str(judged), **by)
    assert set(JudgementImport.objects.values_list("state", flat=True)) == {"merged", "discarded"}
    scorer()  # what was asked for is done already
    assert JudgementImport.objects.filter(state="merged").count() == 1


PROBES = "".join(f"q1 0 d{number} 0\n" for number in range(1, 11))


def readings(subject: str) -> int:
    """How many readings of such judgements are recorded."""
    return AuditRecord.objects.filter(action="read judgements", subject__contains=subject).count()


def test_hidden_judgements_are_told_by_no_import_but_to_readers(secret: Dataset, judge: Client) -> None:
    address = bring(judge, PROBES, dataset="secret")
    known = bring(judge, "q1 0 d3 2\n", dataset="secret", file=upload("q1 0 d3 2\n", "known.qrels"))
    scorer()
    assert judge.get(IMPORTS).content.decode().count('class="field-conflicts">—</td>') == 2
    pages = [judge.get(each).content.decode() for each in (address, known)]
    # Of two files, one that changes nothing and one that does, nothing differs but what is theirs.
    assert not any("<td>d3</td>" in page or "New pairs" in page for page in pages)
    assert all("awaiting a curator" in page and "added or changed" not in page for page in pages)
    assert all('name="policy" value="highest"' in page for page in pages)
    compared = AuditRecord.objects.filter(action="compared with hidden judgements")
    assert [(each.actor_name, each.after) for each in compared] == [("Judith", {"qrels": 1})] * 2
    assert not readings("judged")
    reader = Client()
    reader.force_login(with_rights("judge_dataset", "read_qrels"))
    page = reader.get(address).content.decode()
    assert "<td>d3</td>" in page
    assert readings("judged.qrels") == 1
    assert "Same grade already" in reader.get(known).content.decode()
    assert readings("known.qrels") == 1


def test_hidden_judgements_are_merged_blindly(secret: Dataset, judge: Client) -> None:
    address = bring(judge, "q1 0 d3 1\nq1 0 d2 1\n", dataset="secret")
    scorer()
    judge.post(address, {"policy": "highest", "merge": "Merge", "why": "two assessors agree"})
    scorer()
    secret.refresh_from_db()
    assert secret.current_qrels is not None
    assert load_qrels(secret.current_qrels).as_dict()["q1"] == {"d1": 1, "d2": 1, "d3": 2, "d900": 0}
    page = judge.get(address).content.decode()
    assert "merged into qrels v2. Conflicting grades: use the higher grade" in page
    assert "New pairs" not in page
    told = "".join(f"{each.before} {each.after}" for each in AuditRecord.objects.all())
    assert not any(name in told for name in ("new", "same", "raised", "lowered"))


def test_commands_tell_hidden_judgements_to_readers_alone(secret: Dataset, tmp_path: Path) -> None:
    judged = tmp_path / "judged.qrels"
    judged.write_text(PROBES)
    by = {"by": with_rights("judge_dataset").email, "why": "October", "judge": "NIST assessors"}
    assert run("import_judgements", "secret", str(judged), dry_run=True, **by) == (
        "The file can be imported: 10 judgments, 0 not judged yet.\n"
    )
    with pytest.raises(CommandError, match="Give --conflicts"):
        run("import_judgements", "secret", str(judged), **by)
    assert not JudgementImport.objects.exists()
    said = run("import_judgements", "secret", str(judged), conflicts="keep", **by)
    assert "10 judgments. Only users who may read hidden judgments learn what is new" in said
    assert "conflicts" not in said
    by["by"] = with_rights("judge_dataset", "read_qrels").email
    judged.write_text("q1 0 d3 2\n")
    assert run("import_judgements", "secret", str(judged), dry_run=True, **by).startswith("0 new, 1 the same")
    assert "No changes: all judgments exist already" in run("import_judgements", "secret", str(judged), **by)
    assert readings("judged.qrels") == 2


def test_a_pool_over_hidden_judgements_is_a_reading(secret: Dataset, api: Api, judge: Client) -> None:
    Dataset.objects.update(queries_visibility="curators")
    api.submit(run_text(depth=5), dataset="secret")
    work()
    judge.post(f"{POOLS}draw/?dataset=secret", {"dataset": "secret", "depth": 4, "why": "October"})
    scorer()
    pool = Pool.objects.get()
    record = AuditRecord.objects.get(action="compared with hidden judgements")
    assert (record.actor_name, record.after) == ("Judith", {"qrels": 1})
    assert 'class="field-pairs">—</td>' in judge.get(POOLS).content.decode()
    assert not readings("Pool")
    page = judge.get(f"{POOLS}{pool.pk}/change/").content.decode()
    assert readings("Pool") == 1  # so many pairs are not judged
    assert "already judged</dt>" not in page
    assert f"{POOLS}{pool.pk}/files/csv/" not in page
    assert judge.get(f"{POOLS}{pool.pk}/files/csv/").status_code == 403  # it has the hidden queries' texts
    assert readings("Pool") == 1
    assert b"a question" not in b"".join(judge.get(f"{POOLS}{pool.pk}/files/trec/").streaming_content)
    assert readings("Pool") == 2
    reader = Client()
    reader.force_login(with_rights("judge_dataset", "read_qrels"))
    assert "already judged</dt>" in reader.get(f"{POOLS}{pool.pk}/change/").content.decode()
    assert b"a question" in b"".join(reader.get(f"{POOLS}{pool.pk}/files/csv/").streaming_content)
    assert readings("Pool") == 4
    assert AuditRecord.objects.filter(action="read hidden queries").count() == 1
