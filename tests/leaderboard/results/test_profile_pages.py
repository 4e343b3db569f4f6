"""What pages and figures show of collections and runs, and what they never show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import Client

from leaderboard.core.audit import acting
from leaderboard.core.storage.runs import store_run
from leaderboard.core.storage.store import work_folder
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.judgements.rescoring.switch import switch_board
from leaderboard.models import Dataset, Entry, Rescore, Run
from leaderboard.results.profiles.public import (
    collection_lengths,
    neighbours,
    public_overlaps,
    retrieved_lengths,
)
from leaderboard.results.profiles.store import (
    find_overlaps,
    profile_collection,
    store_collection_profile,
    store_overlaps,
)
from leaderboard.results.publishing.scored import publish_entry
from leaderboard.results.publishing.visibility import mark_published
from leaderboard.results.records import record_evaluation, record_run
from leaderboard.systems.records import house_system
from submissions.jobs.runner import drain_queue
from submissions.queue.queue import create_requested_jobs
from tests.leaderboard.figure_checks import column, drawn, trace
from tests.leaderboard.tiny_collection import good_files, lines_of, write_folder
from tests.pages import clear_page_cache

pytestmark = pytest.mark.django_db

RUN = "q1 Q0 d1 1 9 x\nq1 Q0 d5 2 8 x\nq2 Q0 d3 1 9 x\n"


def look(dataset: Dataset) -> None:
    """What a worker does."""
    dataset = Dataset.objects.get(pk=dataset.pk)
    with work_folder("statistics") as folder:
        found = profile_collection(dataset, folder)
    if found is not None:
        store_collection_profile(found)
    store_overlaps(dataset, find_overlaps(dataset))
    clear_page_cache()


def collection(
    folder: Path, slug: str = "tiny", changes: dict[str, str | None] | None = None, **options: Any
) -> Dataset:
    """A published collection with a run, looked at by a worker; open unless told otherwise."""
    path = write_folder(folder / slug, changes or {})
    imported = import_dataset(path, ImportOptions(slug=slug, name=slug.title(), **{"hidden": False, **options}))
    mark_published(imported.dataset)
    if imported.qrels is not None and not imported.dataset.runs_only:
        publish(imported.dataset, folder)
    look(imported.dataset)
    return Dataset.objects.get(pk=imported.dataset.pk)


def switch_to_new_judgements(slug: str) -> None:
    """What the rescore that an import started comes to: every run evaluated by a worker, and the switch."""
    create_requested_jobs()
    drain_queue("score", "test-worker")
    with acting(None, "more was judged"):
        switch_board(Rescore.objects.get(dataset__slug=slug))


def publish(dataset: Dataset, folder: Path, name: str = "Words", values: float = 0.5) -> Entry:
    """A public result of a run."""
    path = folder / "run.txt"
    path.write_text(RUN.replace("x", name.lower()))
    stored = store_run(path)
    system = house_system(slug=name.lower(), name=name, architecture="lexical", description="", parameters={})
    assert dataset.current_version is not None
    assert dataset.current_qrels is not None
    run = record_run(
        version=dataset.current_version,
        system=system,
        sha256=stored.sha256,
        origin=Run.Origin.RETRIEVED,
        size=stored.size,
        lines=3,
    )
    evaluation = record_evaluation(
        run=run,
        qrels=dataset.current_qrels,
        specification="1",
        measures=["nDCG@10"],
        means={"nDCG@10": values},
        per_query=np.array([[values], [values / 2]]),
        missing_queries=0,
    )
    return publish_entry(Entry(provenance=Entry.Provenance.MEASURED), evaluation)


def page_of(client: Client, slug: str = "tiny") -> str:
    clear_page_cache()
    return client.get(f"/datasets/{slug}/").content.decode()


def test_an_open_dataset_shows_a_query_with_its_best_document(client: Client, tmp_path: Path) -> None:
    collection(tmp_path)
    page = page_of(client)
    assert "query number 1" in page
    assert "words of document 1" in page
    assert "grade 2" in page
    answer = client.get("/api/v1/datasets/tiny/").json()
    assert answer["example"]["document_id"] == "d1"
    assert answer["example"]["grade"] == 2


def test_beside_hidden_judgements_a_document_stands_that_was_not_chosen_by_relevance(
    client: Client, tmp_path: Path
) -> None:
    # The first query's relevant document is the last of the corpus.
    collection(tmp_path, changes={"qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td4\t1\n"}, hidden=True)
    page = page_of(client)
    assert "words of document 1" in page
    assert "words of document 4" not in page
    assert "The document may not be relevant" in page
    assert client.get("/api/v1/datasets/tiny/").json()["example"]["grade"] is None


@pytest.mark.parametrize("kept_back", ["queries_visibility", "documents_visibility"])
def test_texts_that_stop_being_everyones_are_no_longer_shown(client: Client, tmp_path: Path, kept_back: str) -> None:
    dataset = collection(tmp_path)
    assert 'id="example"' in page_of(client)
    Dataset.objects.filter(pk=dataset.pk).update(**{kept_back: "participants"})
    page = page_of(client)
    assert 'id="example"' not in page
    assert "words of document 1" not in page
    assert client.get("/api/v1/datasets/tiny/").json()["example"] is None


def test_texts_are_escaped_and_cut_between_words(client: Client, tmp_path: Path) -> None:
    text = "<script>alert(1)</script> " + "word " * 400
    corpus = lines_of([{"_id": "d1", "title": "<b>T</b>", "text": text}]) + "".join(
        good_files()["corpus.jsonl"].splitlines(keepends=True)[1:]
    )
    collection(tmp_path, changes={"corpus.jsonl": corpus})
    page = page_of(client)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; word" in page
    assert "&lt;b&gt;T&lt;/b&gt;" in page
    assert "word word…" in page


def test_snippets_are_those_that_work(client: Client, tmp_path: Path) -> None:
    dataset = collection(tmp_path, relevance_level=2)
    Dataset.objects.filter(pk=dataset.pk).update(ir_datasets_id="beir/tiny/test", beir_name="tiny")
    page = page_of(client)
    assert "ir_datasets.load(&quot;beir/tiny/test&quot;)" in page
    assert "BEIR/datasets/tiny.zip" in page
    assert "load(split=&quot;test&quot;)" in page
    assert "curl -O http://testserver/datasets/tiny/files/corpus.jsonl.gz" in page
    score = "python -m evaluation score --qrels qrels.test.tsv.gz --relevance-level 2 --run run.txt"
    assert score in page
    tools = [snippet["tool"] for snippet in client.get("/api/v1/datasets/tiny/").json()["snippets"]]
    assert tools == ["ir_datasets", "BEIR"]


def test_hidden_judgements_are_in_no_snippet(client: Client, tmp_path: Path) -> None:
    collection(tmp_path, hidden=True)
    page = page_of(client)
    assert "files/corpus.jsonl.gz" in page
    assert "qrels.test" not in page


@pytest.mark.parametrize("hidden", [False, True])
def test_versions_of_the_judgements_say_what_changed_where_they_are_open(
    client: Client, tmp_path: Path, hidden: bool
) -> None:
    collection(tmp_path, hidden=hidden)
    more = good_files()["qrels/test.tsv"] + "q3\td1\t1\n"
    folder = write_folder(tmp_path / "more", {"qrels/test.tsv": more})
    import_dataset(folder, ImportOptions(slug="tiny", hidden=hidden))
    # Until its runs are evaluated on them and a curator has switched, nobody hears of new judgements.
    assert [each["number"] for each in client.get("/api/v1/datasets/tiny/").json()["judgements"]] == [1]
    switch_to_new_judgements("tiny")
    newest, oldest = client.get("/api/v1/datasets/tiny/").json()["judgements"]
    assert (newest["number"], newest["current"]) == (2, True)
    assert (oldest["number"], oldest["current"]) == (1, False)
    if hidden:
        assert (newest["changes"], oldest["changes"]) == ("Judgments changed.", "")
    else:
        assert newest["changes"] == "+1 judgments, +1 queries, +1 relevant."
        assert oldest["changes"] == "4 judgments of 2 queries, 3 relevant."
    assert newest["changes"] in page_of(client)


def test_a_dataset_names_its_group_and_the_group_its_parts(client: Client, tmp_path: Path) -> None:
    group = collection(tmp_path, "whole")
    part = collection(tmp_path, "part")
    Dataset.objects.filter(pk=part.pk).update(part_of=group)
    assert '<a href="/datasets/whole/">Whole</a>, which is scored' in page_of(client, "part")
    assert re.search(r'<a href="/datasets/part/">\s*Part\s*</a>', page_of(client, "whole"))


def test_collections_are_compared_where_their_documents_are_public(client: Client, tmp_path: Path) -> None:
    one, two = collection(tmp_path, "one"), collection(tmp_path, "two")
    hidden = collection(tmp_path, "hidden", hidden=True)
    kept = collection(tmp_path, "kept", documents_visibility="curators")
    assert [dataset.slug for dataset in public_overlaps().datasets] == ["hidden", "one", "two"]
    assert one.current_version_id is not None
    assert {near.slug for near in neighbours(one.current_version_id)} == {"hidden", "two"}
    Dataset.objects.filter(pk=hidden.pk).update(twin_of=one)
    assert [near.slug for near in neighbours(one.current_version_id)] == ["two"], "a twin has the same corpus"
    plot = drawn("overlap")
    assert set(column(plot, "Dataset")) == {"Hidden", "One", "Two"}
    assert column(plot, "One")[list(column(plot, "Dataset")).index("Two")] == pytest.approx(1)
    assert any("Only collections with public documents on this site" in note for note in plot.notes)
    assert 'id="overlap"' in client.get("/datasets/").content.decode()
    assert 'id="near"' in page_of(client, "one")
    assert 'id="near"' not in page_of(client, "kept")
    assert two.current_version_id != hidden.current_version_id != kept.current_version_id


def test_one_collection_alone_has_nothing_to_be_compared_with(client: Client, tmp_path: Path) -> None:
    collection(tmp_path)
    assert drawn("overlap").data == []
    assert 'id="overlap"' not in client.get("/datasets/").content.decode()


def test_lengths_are_shown_of_corpus_relevant_documents_and_runs(client: Client, tmp_path: Path) -> None:
    dataset = collection(tmp_path)
    plot = drawn("document-lengths", "dataset=tiny")
    assert column(plot, "Documents") == ["All documents", "Relevant documents", "Words"]
    assert column(plot, "Number") == [5, 3, 3]
    assert column(plot, "Median") == [6, 6, 6]
    assert column(plot, "5%") == [0, 6, 0]  # d5 is empty
    assert "first 10 documents" in plot.caption
    assert 'data-figure-url="/figures/document-lengths.json?dataset=tiny"' in page_of(client)
    lines = drawn("relevance-by-length", "dataset=tiny")
    assert column(lines, "Words") == ["0", "1", "2–3", "4–7"]
    assert trace(lines, "Relevant documents")["y"] == [0, 0, 0, 1]
    assert trace(lines, "All documents")["y"] == [pytest.approx(0.2), 0, 0, pytest.approx(0.8)]
    assert collection_lengths(dataset.slug) is not None


def test_hidden_judgements_leave_the_corpus_alone(client: Client, tmp_path: Path) -> None:
    dataset = collection(tmp_path, hidden=True)
    assert column(drawn("document-lengths", "dataset=tiny"), "Documents") == ["All documents"]
    assert drawn("relevance-by-length", "dataset=tiny").data == []
    assert drawn("difficulty", "dataset=tiny").data == []
    entries = list(Entry.objects.filter(dataset=dataset).values_list("pk", flat=True))
    assert entries
    assert retrieved_lengths(entries) == {}
    page = page_of(client)
    assert "/figures/document-lengths.json" not in page, "it would not show what systems retrieve"
    assert "/figures/relevance-by-length.json" not in page
    assert "/figures/difficulty.json" not in page


def test_a_private_result_has_no_lengths(tmp_path: Path) -> None:
    dataset = collection(tmp_path)
    (entry,) = Entry.objects.filter(dataset=dataset)
    assert set(retrieved_lengths([entry.pk])) == {entry.pk}
    Entry.objects.filter(pk=entry.pk).update(visibility=Entry.Visibility.PRIVATE)
    assert retrieved_lengths([entry.pk]) == {}


def test_documents_that_are_kept_back_have_no_lengths(tmp_path: Path) -> None:
    dataset = collection(tmp_path, documents_visibility="participants")
    assert collection_lengths(dataset.slug) is None
    assert retrieved_lengths(list(Entry.objects.values_list("pk", flat=True))) == {}
    plot = drawn("document-lengths", "dataset=tiny")
    assert plot.data == []
    assert "not public" in plot.caption


def test_difficulty_goes_from_the_hardest_query_to_the_easiest(tmp_path: Path) -> None:
    dataset = collection(tmp_path)
    publish(dataset, tmp_path, "Other", 0.9)
    plot = drawn("difficulty", "dataset=tiny")
    assert column(plot, "Query") == ["q2", "q1"]
    assert column(plot, "Mean") == [pytest.approx(0.35), pytest.approx(0.7)]
    assert column(plot, "Lowest") == [pytest.approx(0.25), pytest.approx(0.5)]
    assert trace(plot, "median")["y"] == column(plot, "50%")
    assert column(plot, "10%") == [pytest.approx(0.27), pytest.approx(0.54)]
    assert "2 systems" in plot.caption


def test_nothing_is_broken_where_only_figures_are_reported(client: Client) -> None:
    from tests.reported_boards import load_reported

    load_reported()
    page = page_of(client, "nfcorpus")
    assert "/figures/document-lengths.json" not in page
    assert drawn("document-lengths", "dataset=nfcorpus").data == []
    assert client.get("/api/v1/datasets/nfcorpus/").json()["example"] is None
