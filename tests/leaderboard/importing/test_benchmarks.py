"""`import_benchmark`: a known benchmark's datasets from a hub on this machine, and what its page says of the others."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from evaluation.archives.hub import COMMIT as COMMIT_PATTERN
from evaluation.archives.hub import NAME as REPOSITORY
from evaluation.measures.registry import parse_measure
from leaderboard.importing.benchmarks import catalogue
from leaderboard.importing.collections import importer
from leaderboard.importing.reported import tables
from leaderboard.models import AuditRecord, Benchmark, Dataset, DatasetVersion
from leaderboard.results.publishing.visibility import mark_published
from tests.leaderboard.importing.test_fetching import NAME
from tests.leaderboard.importing.test_fetching import mirror as mirror
from tests.reported_boards import load_reported
from tests.servers.hub import COMMIT, FakeHub

pytestmark = pytest.mark.django_db

#: slug, source, part_of, bm25, note
ROWS = [
    ("toy-one", f"hf:{NAME}@{COMMIT}", "", "0.5", ""),
    ("toy-two", "hf:mteb/gone", "", "", ""),
    ("toy-whole", "", "", "", "It is the mean of its parts."),
    ("toy-part", f"hf:{NAME}", "toy-whole", "", ""),
    ("toy-three", "", "", "0.25", "It takes an agreement."),
]


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A catalogue with one benchmark."""
    with (catalogue.DATA / "datasets.csv").open(newline="") as real:
        columns = next(csv.reader(real))
    with (tmp_path / "datasets.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, columns, restval="")
        table.writeheader()
        for slug, source, whole, bm25, note in ROWS:
            said = {
                "benchmark": "toys",
                "slug": slug,
                "name": slug.title(),
                "split": "test",
                "primary": "nDCG@10",
            }
            known = {"source": source, "part_of": whole, "bm25": bm25, "bm25_source": "a paper", "note": note}
            table.writerow({**said, **known, "language": "en", "counted": "1"})
    (tmp_path / "benchmarks.toml").write_text('[toys]\nname = "Toys"\ndescription = "Small."\n')
    monkeypatch.setattr(catalogue, "DATA", tmp_path)
    for each in (catalogue.benchmarks, catalogue.catalogued_datasets):
        each.cache_clear()
    yield
    for each in (catalogue.benchmarks, catalogue.catalogued_datasets):
        each.cache_clear()


def bring(*options: str) -> str:
    """What an operator is told, the error at the end included."""
    out = StringIO()
    try:
        call_command("import_benchmark", *options, stdout=out)
    except CommandError as error:
        out.write(str(error))
    return out.getvalue()


def test_what_can_be_had_is_imported_and_the_rest_is_a_line_each(mirror: FakeHub, toys: None, client: Client) -> None:
    told = bring("toys")
    assert re.search(r"toy-one +imported +nDCG@10 0.500 +5 documents, 3 queries", told), told
    assert re.search(r"toy-two +failed +— +hf:mteb/gone: the hub has no public repository mteb/gone", told), told
    assert re.search(r"toy-whole +consists of its parts", told), told
    assert re.search(r"toy-three +not available +nDCG@10 0.250 +It takes an agreement.", told), told
    assert "accepts runs for 0 of 4 datasets" in told
    assert "1 dataset was not imported. Run the same command again to retry." in told
    assert not Dataset.objects.filter(slug="toy-two").exists()
    one, whole = Dataset.objects.get(slug="toy-one"), Dataset.objects.get(slug="toy-whole")
    assert (one.hidden, one.name, one.primary_measure) == (False, "Toy-One", "nDCG@10")
    benchmark = Benchmark.objects.get(slug="toys")
    assert [member.dataset for member in benchmark.members.order_by("position")] == [one, whole]
    part = Dataset.objects.get(slug="toy-part")
    assert part.part_of == whole

    for dataset in (one, part):
        mark_published(dataset)
    page = " ".join(client.get("/benchmarks/toys/").content.decode().split())
    assert "This site accepts runs for 2 of the 4 datasets of this benchmark." in page
    assert "<li> Not imported yet. Toy-Two" in page
    assert 'title="a paper"> (BM25 0.250)</span>' in page
    assert "manage.py" not in page
    (found,) = client.get("/api/v1/benchmarks/").json()["benchmarks"]
    assert (found["completeness"]["here"], found["completeness"]["of"]) == (2, 4)
    assert [each["slug"] for each in found["completeness"]["missing"]] == ["toy-two", "toy-three"]


def test_it_goes_on_where_it_was_interrupted(mirror: FakeHub, toys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    bring("toys", "--only", "toy-one")

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(importer.storing, "store_content", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bring("toys")
    assert Dataset.objects.get().slug == "toy-one"
    told = bring("toys")
    assert re.search(r"toy-one +already imported", told), told
    assert re.search(r"toy-part +imported", told), told


def test_what_is_here_is_left_alone(mirror: FakeHub, toys: None) -> None:
    bring("toys", "--only", "toy-one")
    Dataset.objects.filter(slug="toy-one").update(name="Mine")
    Benchmark.objects.filter(slug="toys").update(name="Ours")
    mirror.asked.clear()
    told = bring("toys", "--only", "toy-one")
    assert re.search(r"toy-one +already imported", told), told
    assert mirror.asked == []
    assert (Dataset.objects.get().name, Benchmark.objects.get().name) == ("Mine", "Ours")
    assert DatasetVersion.objects.count() == 1
    assert not AuditRecord.objects.filter(action="settings").exists()


def test_a_dataset_known_from_publications_gains_its_content(mirror: FakeHub, toys: None) -> None:
    load_reported()
    known = Dataset.objects.get(slug="scifact")
    Dataset.objects.filter(pk=known.pk).update(slug="toy-one")
    bring("toys", "--only", "toy-one")
    gained = Dataset.objects.get(pk=known.pk)
    assert (gained.name, gained.licence, gained.task) == (known.name, known.licence, known.task)
    assert gained.current_version is not None


def test_unknown_names_are_told_with_those_there_are(toys: None) -> None:
    assert bring("toyz") == "toyz is not in the catalog. Choose one of: toys."
    assert bring("toys", "--only", "toy-on").startswith("toys has no dataset toy-on. Choose from: toy-one, toy-two,")


def test_the_catalogue_is_sound() -> None:
    reported = {
        row.place.dataset: row.value
        for row in tables.scores()
        if (row.place.source, row.place.system, row.name) == ("beir-2021", "BM25", "nDCG@10")
    }
    slugs = set()
    for name in catalogue.benchmarks():
        rows = catalogue.catalogued_datasets(name)
        members = {row.slug for row in rows if not row.part_of}
        assert len({row.primary for row in rows}) == 1, "the benchmark's measure"
        borrowed = catalogue.benchmarks()[name].get("datasets", ())
        assert slugs.issuperset(borrowed), "rows of other benchmarks come first"
        for row in rows:
            assert (row.slug in slugs) == (row.slug in borrowed or row.part_of in borrowed)
            slugs.add(row.slug)
            assert row.source or row.note, row
            assert not row.part_of or row.part_of in members
            assert parse_measure(row.primary).name == row.primary
            assert (row.bm25 is None) == (not row.bm25_source)
            kind, _, source = row.source.partition(":")
            assert kind in ("", "hf", "ir_datasets")
            repository, _, revision = source.partition("@")
            if kind == "hf":
                assert REPOSITORY.fullmatch(repository)
                assert COMMIT_PATTERN.fullmatch(revision), f"{row.slug} can change"
            else:
                assert not revision
        if name == "beir":
            assert {row.slug: row.bm25 for row in rows if not row.part_of} == reported
            assert list(tables.benchmarks()["beir"]["members"]) == [row.slug for row in rows if not row.part_of]
        if name != "beir" and name in tables.benchmarks():
            assert set(tables.benchmarks()[name]["members"]) == members
    assert len(slugs) == 100
