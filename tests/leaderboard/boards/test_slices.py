"""Boards over a slice of the queries: values, tests, the filter, exports, and the refusal for hidden judgments."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evaluation.core.problems import InvalidContent
from evaluation.engines import RetrievalTask, retrieve
from evaluation.judgements.slices import length_class
from evaluation.statistics.comparison import compare_paired
from leaderboard.boards.model import Board
from leaderboard.boards.pages import dataset_page
from leaderboard.boards.state import BoardState
from leaderboard.core.audit import acting
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import AuditRecord, Benchmark, BoardChange, Dataset, Visibility
from leaderboard.results.profiles.store import profile_collection, store_collection_profile
from leaderboard.results.publishing.visibility import mark_published
from leaderboard.results.slices import HIDDEN_REASON, read_slices, set_tags
from tests.factories import make_a_curator
from tests.leaderboard.entries import make_source, report
from tests.leaderboard.entries_by_query import row_of
from tests.leaderboard.open_runs import lines, open_dataset, run_for
from tests.leaderboard.tiny_collection import HEADER, lines_of

pytestmark = pytest.mark.django_db

#: Twelve short queries and three long questions. The first document of each pair is relevant.
SHORT, LONG = 12, 3
NAMES = [f"s{number:02}" for number in range(SHORT)] + [f"t{number}" for number in range(LONG)]
PAIRS = {name: [f"{name}-a", f"{name}-b"] for name in NAMES}


def make_sliced_dataset(tmp_path: Path, **options: Any) -> Dataset:
    """Return a dataset with results of three systems; the second differs from the first on all short queries."""
    long_text = "why do the documents of this collection have so many words?"
    queries = [{"_id": name, "text": f"topic {name}" if name[0] == "s" else long_text} for name in NAMES]
    documents = [
        {"_id": document, "title": "", "text": "word " * (10 if name[0] == "s" else 90)}
        for name, pair in PAIRS.items()
        for document in pair
    ]
    files = {
        "corpus.jsonl": lines_of(documents),
        "queries.jsonl": lines_of(queries),
        "qrels/test.tsv": HEADER + "".join(f"{name}\t{pair[0]}\t1\n" for name, pair in PAIRS.items()),
        "qrels/train.tsv": None,
    }
    dataset = open_dataset(tmp_path, files, measures=("nDCG@10", "R@100"), **options)
    if not dataset.hidden:
        swapped = {name: pair[::-1] for name, pair in PAIRS.items()}
        run_for(dataset, "BM25", swapped, baseline=True)
        run_for(dataset, "Short", {name: PAIRS[name] if name[0] == "s" else swapped[name] for name in NAMES})
        run_for(dataset, "Long", {name: swapped[name] if name[0] == "s" else PAIRS[name] for name in NAMES})
    return dataset


def read_board(dataset: Dataset, **state: Any) -> Board:
    page = dataset_page(dataset.slug, BoardState(**state))
    assert page is not None
    return page.board


def test_a_board_over_short_queries_ranks_tests_and_names_them(tmp_path: Path, client: Client) -> None:
    dataset = make_sliced_dataset(tmp_path)
    board = read_board(dataset, slice="length:short")
    assert [row.entry.system for row in board.rows] == ["Short", "BM25", "Long"]
    best = row_of(board, "Short")
    worst = 1 / np.log2(3)
    assert (best.rank, best.value("nDCG@10")) == (1, 1.0)
    assert best.value("delta") == pytest.approx(1 - worst)
    assert best.certainty is not None
    assert best.certainty.delta_interval == pytest.approx((1 - worst, 1 - worst), abs=1e-6)
    assert best.certainty.wins == SHORT
    assert best.differs
    assert row_of(board, "Long").value("nDCG@10") == pytest.approx(worst)
    assert row_of(read_board(dataset), "Long").value("nDCG@10") == pytest.approx((SHORT * worst + LONG) / 15)

    page = client.get(f"/datasets/{dataset.slug}/?slice=length:short").content.decode()
    headline = re.sub(r"<[^>]*>", "", page.partition('<p class="headline">')[2].partition("</p>")[0])
    assert " ".join(headline.split()).startswith("On 12 short queries (of 15), Short leads BM25 by ")
    assert "Exploratory: not corrected for the choice of slice." in page
    assert '<option value="length:short" selected>short queries (12)</option>' in page
    assert '<option value="">all queries (15)</option>' in page
    assert 'value="length:long"' not in page, "three queries are too few to be offered"
    few = client.get(f"/datasets/{dataset.slug}/?slice=length:long").content.decode()
    assert '<option value="length:long" selected>long queries (3)</option>' in few


def test_slices_of_few_queries_have_values_but_no_tests(tmp_path: Path) -> None:
    board = read_board(make_sliced_dataset(tmp_path), slice="length:long")
    assert [row.entry.system for row in board.rows] == ["Long", "BM25", "Short"]
    assert board.slice is not None
    assert board.slice.text == "3 long queries (of 15)"
    assert all(row.certainty is None for row in board.rows)
    assert board.verdict is None
    assert "Slices of fewer than 10 queries have no intervals or tests." in board.notes
    assert not any("being computed" in note for note in board.notes)


def test_reported_results_have_no_score_in_a_slice(tmp_path: Path) -> None:
    dataset = make_sliced_dataset(tmp_path)
    report(dataset, make_source("paper"), "Paper", ndcg=0.9)
    assert row_of(read_board(dataset), "Paper").value("nDCG@10") == 0.9
    board = read_board(dataset, slice="length:short")
    row = row_of(board, "Paper")
    assert (row.value("nDCG@10"), row.rank) == (None, None)
    assert "no per-query values on these judgments" in board.notes[0]


def test_exports_and_the_api_have_the_slice(tmp_path: Path, client: Client) -> None:
    dataset = make_sliced_dataset(tmp_path)
    address = f"/datasets/{dataset.slug}/board"
    answer = client.get(f"/api/v1/datasets/{dataset.slug}/board/?slice=length:short").json()
    short = {"name": "length:short", "label": "short queries", "queries": 12, "judged_queries": 15}
    assert answer["slice"] == short
    assert short in answer["slice_choices"]
    assert answer["title"] == f"{dataset.name}, 12 short queries (of 15)"
    assert answer["permalink"].endswith("?slice=length:short") or "slice=length%3Ashort" in answer["permalink"]
    assert json.loads(client.get(f"{address}.json?slice=length:short").content)["rows"] == answer["rows"]
    response = client.get(f"{address}.csv?slice=length:short")
    rows = list(csv.DictReader(io.StringIO(response.content.decode().lstrip("\ufeff"))))
    assert [float(row["nDCG@10"]) for row in rows] == [row["values"]["nDCG@10"] for row in answer["rows"]]
    assert "tiny-length-short.csv" in response["Content-Disposition"]
    past_page = client.get(answer["permalink"].removeprefix("http://testserver")).content.decode()
    assert "12 short queries (of 15)" in past_page


def test_an_unknown_slice_is_an_error_that_lists_the_choices(tmp_path: Path, client: Client) -> None:
    dataset = make_sliced_dataset(tmp_path)
    response = client.get(f"/api/v1/datasets/{dataset.slug}/board/?slice=length:tiny")
    assert response.status_code == 400
    assert "Choose one of: length:short, length:long, type:keywords, type:question" in response.json()["detail"]
    assert client.get(f"/datasets/{dataset.slug}/?slice=<b>").status_code == 400
    Benchmark.objects.create(slug="bench", name="Bench")
    assert client.get("/benchmarks/bench/?slice=length:short").status_code == 400


def test_document_length_slices_need_a_profile(tmp_path: Path) -> None:
    dataset = make_sliced_dataset(tmp_path)
    assert not any(each.name.startswith("documents") for each in read_board(dataset).slices.slices)
    work = tmp_path / "work"
    work.mkdir()
    findings = profile_collection(dataset, work)
    assert findings is not None
    store_collection_profile(findings)
    counts = {each.name: each.size for each in read_board(dataset).slices.slices}
    assert (counts["documents:short"], counts["documents:long"]) == (SHORT, LONG)
    Dataset.objects.update(documents_visibility=Visibility.CURATORS)
    assert not any(each.name.startswith("documents") for each in read_board(dataset).slices.slices)
    Dataset.objects.update(queries_visibility=Visibility.CURATORS)
    assert read_board(dataset).slices.slices == []


@pytest.mark.parametrize("protection", ["standard", "competition"])
def test_hidden_judgments_have_no_slices_anywhere(
    protection: str, tmp_path: Path, client: Client, admin_client: Client
) -> None:
    dataset = make_sliced_dataset(tmp_path)
    permalink = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()["permalink"]
    permalink = permalink.removeprefix("http://testserver").partition("?")[0]
    Dataset.objects.update(hidden=True, protection=protection)
    assert read_slices(dataset.current_qrels_id, "") == ((), HIDDEN_REASON)
    with pytest.raises(UnknownChoice):
        read_board(dataset, slice="length:short")
    url = f"/datasets/{dataset.slug}/"
    addresses = [url, f"/api/v1{url}board/", permalink, *(f"{url}board.{ending}" for ending in ("csv", "json", "md"))]
    for visitor in (client, admin_client):
        for address in addresses:
            response = visitor.get(f"{address}?slice=length:short")
            assert response.status_code == 400, address
            assert "would reveal hidden judgments" in response.content.decode(), address
        page = visitor.get(url).content.decode()
        assert HIDDEN_REASON in page
        assert 'name="slice"' not in page


def test_curators_tag_queries_and_permalinks_keep_the_tags_of_their_time(tmp_path: Path, client: Client) -> None:
    dataset = make_sliced_dataset(tmp_path)
    person, curator = make_a_curator(), Client()
    curator.force_login(person)
    actions = reverse("admin:leaderboard_dataset_changelist")
    fields = {"action": "tag_queries", "_selected_action": [dataset.pk], "confirmed": "yes", "why": "for a test"}

    def tag(text: str) -> Any:
        file = SimpleUploadedFile("tags.tsv", text.encode())
        return curator.post(actions, {**fields, "tags": file} if text else fields, follow=True)

    def answer(path: str = f"/api/v1/datasets/{dataset.slug}/board/") -> Any:
        return client.get(path + "?slice=tag:hard").json()

    rejection = tag("s00\thard\nelsewhere\thard\n")
    assert rejection.status_code == 400
    assert "1 query not in the dataset: elsewhere" in rejection.content.decode()
    page = tag("query-id\ttag\ns00\thard\ns01\thard\nt0\thard\nt0\tnews\n").content.decode()
    assert "tiny: 3 queries have tags." in page
    assert AuditRecord.objects.get(action="tags").reason == "for a test"
    first = answer()
    assert (first["slice"]["label"], first["slice"]["queries"]) == ("queries tagged “hard”", 3)
    assert first["rows"][0]["values"]["nDCG@10"] == pytest.approx((2 + 1 / np.log2(3)) / 3)

    BoardChange.objects.update(at=timezone.now() - timedelta(days=2))
    moment = f"/datasets/{dataset.slug}/at/{(timezone.now() - timedelta(days=1)):%Y-%m-%dT%H:%M:%SZ}/board.json"
    arguments = [dataset.slug, "--tags", str(tmp_path / "later.tsv"), "--by", person.email, "--why", "for a test"]
    (tmp_path / "later.tsv").write_text("s05\thard\n")
    call_command("tag_queries", *arguments, stdout=io.StringIO())
    assert answer()["slice"]["queries"] == 1
    assert answer(moment)["slice"]["queries"] == 3
    assert "tiny: 0 queries have tags." in tag("").content.decode()
    assert client.get(f"/api/v1/datasets/{dataset.slug}/board/?slice=tag:hard").status_code == 400
    Dataset.objects.update(hidden=True)
    page = tag("s05\thard\n").content.decode()
    assert "The queries of tiny cannot be tagged, because its judgments are hidden." in page


def test_the_command_and_the_form_read_tag_files_as_imports_do(tmp_path: Path) -> None:
    dataset, person, curator = make_sliced_dataset(tmp_path), make_a_curator(), Client()
    curator.force_login(person)
    fields = {"action": "tag_queries", "_selected_action": [dataset.pk], "confirmed": "yes", "why": "for a test"}
    text = "query-id\ttag\ns00\thard\n"

    def tag(content: bytes) -> tuple[str, str]:
        """Return the answers of the command and of the form, in lower case."""
        path, out = tmp_path / "tags.tsv.gz", io.StringIO()
        path.write_bytes(content)
        arguments = [dataset.slug, "--tags", str(path), "--by", person.email, "--why", "for a test"]
        try:
            call_command("tag_queries", *arguments, stdout=out)
        except CommandError as error:
            out.write(str(error))
        actions = reverse("admin:leaderboard_dataset_changelist")
        page = curator.post(actions, {**fields, "tags": SimpleUploadedFile(path.name, content)}, follow=True)
        return out.getvalue().lower(), page.content.decode().lower()

    for content in (text.encode(), gzip.compress(text.encode())):
        for answer in tag(content):
            assert "1 query has tags" in answer
    for content, command_words, page_words in (
        (b"", "the file has no tags", "file is empty"),
        (text.encode("utf-16"), "not two fields with a tab", "not two fields with a tab"),
        (text.replace("hard", "caf\xe9").encode("latin-1"), "not utf-8: 1 line", "not utf-8: 1 line"),
        (gzip.compress(b"s00\thard\n" * 500_000), "the tags are longer than 4,194,304 bytes", "the tags are longer"),
    ):
        from_command, from_page = tag(content)
        assert command_words in from_command, from_command
        assert page_words in from_page
    dataset.refresh_from_db()
    assert dataset.tags_sha256, "the tags remain"


def test_an_import_stores_the_tags_of_a_collection_and_names_their_errors(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path, {"tags.tsv": "query-id\ttag\nq1\thard\nq3\ttrain\n"})
    assert [each.name for each in read_slices(dataset.current_qrels_id, dataset.tags_sha256).slices] == ["tag:hard"]
    assert open_dataset(tmp_path).tags_sha256 == dataset.tags_sha256, "an import without tags keeps them"
    with pytest.raises(InvalidContent, match=r"tags.tsv: not two fields with a tab between them: 1 line") as error:
        open_dataset(tmp_path, {"tags.tsv": "q1\thard\nq2 hard\n"})
    assert error.value.report.problems[0].lines == (2,)
    with pytest.raises(InvalidContent, match=r"tags.tsv: 1 query not in the dataset: q9"):
        open_dataset(tmp_path, {"tags.tsv": "q9\thard\n"})


def test_tags_of_unknown_queries_and_too_many_tags_are_refused(tmp_path: Path) -> None:
    dataset = make_sliced_dataset(tmp_path)
    tags = tmp_path / "tags.tsv"
    tags.write_text("".join(f"x{number}\ttag{number}\n" for number in range(31)))
    with acting(None, "because"), pytest.raises(InvalidContent) as error:
        set_tags(dataset, tags)
    assert [problem.code for problem in error.value.report.problems] == ["unknown_query", "too_many_tags"]
    assert Dataset.objects.get().tags_sha256 == ""


def test_slices_of_a_real_collection_equal_pytrec_eval(shared_folder: Path, tmp_path: Path) -> None:
    folder = shared_folder / "data" / "nfcorpus"
    imported = import_dataset(folder, ImportOptions(slug="nfcorpus", hidden=False))
    mark_published(imported.dataset)
    dataset = Dataset.objects.select_related("current_version", "current_qrels").get()
    qrels: dict[str, dict[str, int]] = {}
    with (folder / "qrels" / "test.tsv").open(encoding="utf-8") as file:
        for query, document, grade in list(csv.reader(file, delimiter="\t"))[1:]:
            qrels.setdefault(query, {})[document] = int(grade)
    records = [json.loads(line) for line in (folder / "queries.jsonl").read_text("utf-8").splitlines()]
    texts = {record["_id"]: record["text"] for record in records if record["_id"] in qrels}
    (tmp_path / "queries.jsonl").write_text(lines_of([{"_id": query, "text": text} for query, text in texts.items()]))
    values = {}
    for name, engine in (("BM25", "bm25"), ("RM3", "bm25-rm3")):
        run_path = tmp_path / f"{engine}.txt"
        retrieve(RetrievalTask(engine, folder / "corpus.jsonl", tmp_path / "queries.jsonl", run_path))
        rankings: dict[str, list[str]] = {}
        for line in run_path.read_text("utf-8").splitlines():
            query, _, document, *_ = line.split()
            rankings.setdefault(query, []).append(document)
        rankings = {query: documents[:90] for query, documents in rankings.items()}
        run_for(dataset, name, rankings, baseline=name == "BM25")
        run = pytrec_eval.parse_run(io.StringIO(lines(rankings)))
        values[name] = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"}).evaluate(run)
    short = [query for query in sorted(qrels) if length_class(texts[query]) == "short"]
    expected = {
        name: np.array([scores.get(query, {}).get("ndcg_cut_10", 0.0) for query in short])
        for name, scores in values.items()
    }
    board = read_board(dataset, slice="length:short")
    assert board.slice is not None
    assert (board.slice.size, board.slice.total) == (len(short), 323) == (192, 323)
    for name, column in expected.items():
        assert row_of(board, name).value("nDCG@10") == pytest.approx(column.mean(), abs=1e-9)
    paired = compare_paired(expected["RM3"], expected["BM25"])
    certainty = row_of(board, "RM3").certainty
    assert certainty is not None
    assert certainty.delta_interval == pytest.approx((paired.low, paired.high), abs=1e-6)
    assert certainty.p_baseline == pytest.approx(paired.p, rel=1e-3)


def test_systems_are_compared_by_slice(tmp_path: Path, client: Client) -> None:
    dataset = make_sliced_dataset(tmp_path)
    slugs = dict(dataset.entries.values_list("system__name", "system__slug"))
    page = client.get(f"/compare/?system={slugs['BM25']}&system={slugs['Short']}").content.decode()
    table = page.partition('id="by-slice"')[2].partition("</table>")[0]
    rows = [
        [" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
    ]
    assert rows[:3] == [
        ["Queries", "Number", "BM25", "Short", "Δ"],
        ["short queries", "12", "0.631", "1.000", "+0.369 95% CI +0.369 to +0.369"],
        ["long queries", "3", "0.631", "0.631", "±0.000"],
    ]
    assert f'href="/datasets/{dataset.slug}/?slice=length%3Ashort"' in table
    assert '<td class="n up is-lost" data-of="Δ">' in table
    Dataset.objects.update(hidden=True)
    page = client.get(f"/compare/?system={slugs['BM25']}&system={slugs['Long']}").content.decode()
    assert "Scores by slice" not in page
