"""Twins of one corpus: drawn from a collection or named at import, and what keeps two datasets from being one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client

from evaluation.core.problems import InvalidContent
from evaluation.judgements.answers import read_answers
from evaluation.judgements.subtopics import read_subtopics
from leaderboard.admin import importing
from leaderboard.core.audit import acting
from leaderboard.core.storage.store import Area, path_of
from leaderboard.datasets.files import offered_files
from leaderboard.datasets.qrels import excluded_documents, load_qrels, topic_ids
from leaderboard.importing.collections.halves import import_twin
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.importing.collections.twins import TOPICS_NOT_COMPARED
from leaderboard.judgements.disclosure import COMPARED
from leaderboard.models import AuditRecord, Dataset, User, WorkRequest
from tests.factories import make_a_curator, make_user
from tests.importing import choose, confirm, send
from tests.leaderboard.tiny_collection import HEADER, lines_of, write_folder, write_zip
from tests.leaks.opening import clear_kept_judgements, opened_below, private_judgements

pytestmark = pytest.mark.django_db
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]


def topics(first: int, last: int) -> tuple[list[dict[str, str]], str]:
    """Queries and judgements: every topic has one to four relevant documents, which BM25 finds for every second."""
    queries, judged = [], ""
    for n in range(first, last):
        queries.append({"_id": f"q{n}", "text": f"{WORDS[n % 10]} w{n}"})
        for d in range(n, n + 1 + n % 4):
            judged += f"q{n}\td{d}\t1\n"
    return queries, judged


def collection(first: int = 0, last: int = 48, changes: Mapping[str, str] = {}) -> dict[str, str]:
    documents = [
        {"_id": f"d{n}", "title": "", "text": " ".join([WORDS[n % 10], *([f"w{n}"] * (n % 2))])} for n in range(120)
    ]
    queries, judged = topics(first, last)
    extra, elsewhere = topics(60, 64)
    return {
        "corpus.jsonl": lines_of(documents),
        "queries.jsonl": lines_of([*queries, *extra, {"_id": "unjudged", "text": "nobody"}]),
        "qrels/test.tsv": HEADER + judged,
        "qrels/train.tsv": HEADER + elsewhere,
        **changes,
    }


def draw(path: Path, **options: Any) -> str:
    """Draw in the name of a person who may read hidden judgements, unless `by` names another."""
    reader = User.objects.filter(is_superuser=True).first() or make_user("Rita", is_superuser=True)
    options = {"slug": "toy", "twin": 0.5, "seed": 3, "by": reader.email, "why": "a test", **options}
    out = StringIO()
    call_command("import_dataset", path, **options, stdout=out)
    return out.getvalue()


def another_corpus() -> dict[str, str]:
    """Another draw over the same corpus is refused."""
    return {"corpus.jsonl": collection()["corpus.jsonl"] + '{"_id": "more", "title": "", "text": "more"}\n'}


def judged(slug: str) -> set[str]:
    qrels = Dataset.objects.get(slug=slug).current_qrels
    assert qrels is not None
    return set(load_qrels(qrels).query_ids)


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(CommandError) as error:
        draw(path, **options)
    assert not Dataset.objects.filter(slug=options.get("slug", "toy")).exists()
    return str(error.value)


def test_a_collection_becomes_an_open_and_a_hidden_dataset_over_one_corpus(tmp_path: Path) -> None:
    said = draw(write_folder(tmp_path, collection()), name="Toy")
    public, hidden = (Dataset.objects.get(slug=slug) for slug in ("toy", "toy-hidden"))
    assert (public.hidden, hidden.hidden) == (False, True)
    assert hidden.twin_of == public
    assert hidden.name == "Toy (hidden half)"
    assert public.current_version is not None
    assert hidden.current_version is not None
    assert public.current_version.corpus_sha256 == hidden.current_version.corpus_sha256
    first, second = judged("toy"), judged("toy-hidden")
    assert len(first) == len(second) == 24
    assert first.isdisjoint(second)
    # A run for one half answers no topic of the other, nor one of another split alone.
    assert topic_ids(public.current_version.topics_sha256) == {*first, "unjudged"}
    assert topic_ids(hidden.current_version.topics_sha256) == {*second, "unjudged"}
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.BASELINE).count() == 2
    assert said.count("Its baseline is requested") == 2
    offered = {file.name for file in offered_files(hidden, make_a_curator())}
    assert not any(name.startswith("qrels") for name in offered)


def test_each_half_excludes_documents_for_its_own_topics(tmp_path: Path) -> None:
    listed = "".join(f"q{n}\td119\n" for n in range(48)) + "unjudged\td118\n"
    draw(write_folder(tmp_path, collection(changes={"excluded.tsv": listed})))
    for slug in ("toy", "toy-hidden"):
        version = Dataset.objects.get(slug=slug).current_version
        assert version is not None
        excluded = excluded_documents(version)
        assert excluded is not None
        assert set(excluded.query_ids) == {*judged(slug), "unjudged"}


def test_both_halves_say_which_field_of_trec_topics_they_ask(tmp_path: Path) -> None:
    tops = "".join(
        f"<top>\n<num> q{n}\n<title> {WORDS[n % 10]}\n<desc> {WORDS[n % 10]} w{n}\n</top>\n" for n in range(48)
    )
    files = {name: text for name, text in collection().items() if name in ("corpus.jsonl", "qrels/test.tsv")}
    absent = {"queries.jsonl": None, "qrels/train.tsv": None}
    draw(write_folder(tmp_path, {**absent, **files, "topics.txt": tops}), topic_field="description")
    for slug in ("toy", "toy-hidden"):
        version = Dataset.objects.get(slug=slug).current_version
        assert version is not None
        assert version.statistics["source"] == "TREC topics, the description of each topic"
        assert version.statistics["words_per_query"] == 2


def test_the_halves_are_alike_and_the_same_seed_draws_them_again(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "a", collection())
    draw(path)
    draw(path, slug="again")
    draw(write_folder(tmp_path / "b", collection(changes=another_corpus())), slug="other", seed=4)
    assert judged("toy") == judged("again") != judged("other")
    for slug in ("toy", "other"):
        relevant = [np.mean([1 + int(q[1:]) % 4 for q in judged(one)]) for one in (slug, f"{slug}-hidden")]
        assert relevant[0] == pytest.approx(relevant[1], abs=0.2)
        # BM25 finds the first document of odd topics: as many in either half.
        odd = [sum(int(q[1:]) % 2 for q in judged(one)) for one in (slug, f"{slug}-hidden")]
        assert abs(odd[0] - odd[1]) <= 4


def test_other_judgements_of_the_same_topics_are_drawn_otherwise(tmp_path: Path) -> None:
    draw(write_folder(tmp_path / "a", collection()))
    changes = another_corpus() | {"qrels/test.tsv": collection()["qrels/test.tsv"] + "q0\td99\t0\n"}
    draw(write_folder(tmp_path / "b", collection(changes=changes)), slug="more")
    assert judged("toy") != judged("more"), "the seed alone must not tell the draw"


def test_a_second_draw_under_another_slug_is_refused(tmp_path: Path) -> None:
    path = write_folder(tmp_path, collection())
    draw(path)
    assert not AuditRecord.objects.filter(action=COMPARED).exists()  # there was nothing to compare with
    assert "other would open judged topics that are hidden in toy (hidden half)" in refused(path, slug="other", seed=2)
    compared = AuditRecord.objects.get(action=COMPARED)
    assert (compared.dataset, compared.reason) == (Dataset.objects.get(slug="toy-hidden"), "a test")


@pytest.mark.parametrize("curates", [True, False], ids=["a curator", "nobody in particular"])
def test_a_twin_reveals_no_judged_topic_without_the_right_to_read(tmp_path: Path, curates: bool) -> None:
    draw(write_folder(tmp_path / "drawn", collection()))
    (topic, *_), (unjudged, *_) = sorted(judged("toy-hidden")), sorted(judged("toy"))
    open_half = ImportOptions(slug="guess", hidden=False)
    hidden_half = ImportOptions(slug="guess-hidden", twin_of="guess")
    told = []
    person = make_a_curator() if curates else None
    for guess in (topic, unjudged, "made-up"):
        queries = [{"_id": name, "text": name} for name in (guess, *(f"mine{n}" for n in range(12)))]
        lines = "".join(f"{query['_id']}\td1\t1\n" for query in queries)
        files = collection(changes={"queries.jsonl": lines_of(queries), "qrels/test.tsv": HEADER + lines})
        path = write_folder(tmp_path / guess, {**files, "qrels/train.tsv": None})
        rest = write_folder(tmp_path / f"{guess}-rest", collection(70, 90))
        clear_kept_judgements()
        with acting(person), opened_below(private_judgements()) as opened, transaction.atomic():
            import_dataset(path, open_half)
            stored = len(opened)
            with pytest.raises(InvalidContent) as refusal:
                import_dataset(rest, hidden_half)
            with pytest.raises(InvalidContent) as second:
                import_twin(rest, ImportOptions(slug="more"), 0.5, 1)
            transaction.set_rollback(True)
        told.append((refusal.value.report.problems, second.value.report.problems))
        hidden = Dataset.objects.get(slug="toy-hidden").current_qrels
        assert hidden is not None
        assert hidden.sha256 not in {each.name for each in opened[stored:]}
    assert told == [((TOPICS_NOT_COMPARED,), (TOPICS_NOT_COMPARED,))] * 3
    assert not AuditRecord.objects.filter(action=COMPARED).exists()


def test_the_halves_share_the_answers_by_their_topics(tmp_path: Path) -> None:
    answers = lines_of([{"_id": f"q{n}", "answers": [WORDS[n % 10]]} for n in range(48)])
    files = collection(changes={"answers.jsonl": answers})
    draw(write_folder(tmp_path, files), primary="Answer@5", measures=["nDCG@10"])
    for slug in ("toy", "toy-hidden"):
        qrels = Dataset.objects.get(slug=slug).current_qrels
        assert qrels is not None
        assert set(read_answers(path_of(Area.QRELS, qrels.answers_sha256))) == judged(slug)


def test_the_halves_share_the_subtopics_by_their_topics(tmp_path: Path) -> None:
    _, relevant = topics(0, 48)
    pairs = [line.split()[:2] for line in relevant.splitlines()]
    lines = [f"{query} {subtopic} {document} 1\n" for query, document in pairs for subtopic in "12"]
    files = {name: text for name, text in collection().items() if name != "qrels/test.tsv"}
    draw(
        write_folder(tmp_path, {**files, "qrels/test.tsv": None, "subtopic-qrels.txt": "".join(lines)}), primary="NRBP"
    )
    for slug in ("toy", "toy-hidden"):
        qrels = Dataset.objects.get(slug=slug).current_qrels
        assert qrels is not None
        subtopics = read_subtopics(path_of(Area.QRELS, qrels.subtopics_sha256))
        assert {query.decode() for query in subtopics} == judged(slug)


@pytest.mark.parametrize(
    ("primary", "told"),
    [
        ("Foo@3", "'Foo@3' is not a known measure"),
        ("Answer@20", "the dataset lacks answers"),
        ("NRBP", "lacks judgments by subtopic"),
    ],
)
def test_a_draw_by_a_measure_that_cannot_be_computed_is_refused(primary: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidContent, match=told):
        import_twin(write_folder(tmp_path, collection()), ImportOptions(slug="toy", primary=primary), 0.5, 3)


def test_two_given_splits_become_a_twin(tmp_path: Path) -> None:
    call_command("import_dataset", write_folder(tmp_path / "a", collection(0, 20)), slug="dev", hidden=False)
    path = write_folder(tmp_path / "b", collection(20, 40))
    call_command("import_dataset", path, slug="test", hidden=True, twin_of="dev")
    assert Dataset.objects.get(slug="test").twin_of == Dataset.objects.get(slug="dev")
    # Again, without saying it: it stays.
    call_command("import_dataset", path, slug="test")
    assert Dataset.objects.get(slug="dev").twins.get() == Dataset.objects.get(slug="test")


def test_what_keeps_two_datasets_from_being_a_twin_is_said_at_once(tmp_path: Path) -> None:
    call_command("import_dataset", write_folder(tmp_path / "a", collection(0, 20)), slug="dev", hidden=False)
    call_command("import_dataset", write_folder(tmp_path / "b", collection(20, 40)), slug="shut", hidden=True)
    queries, shared = topics(18, 27)
    same_words = {"_id": "q99", "text": f" {WORDS[5].upper()}  w5 "}
    files = collection(
        changes={
            "queries.jsonl": lines_of([*queries, *topics(60, 64)[0], same_words]),
            "qrels/test.tsv": HEADER + shared.replace("q26\t", "q99\t"),
            "corpus.jsonl": collection()["corpus.jsonl"] + '{"_id": "more", "title": "", "text": "more"}\n',
        }
    )
    path = write_folder(tmp_path / "c", files)
    reader = make_user("Rita", is_superuser=True)

    def problems(**options: Any) -> dict[str, str]:
        with pytest.raises(InvalidContent) as error, acting(reader, "a test"):
            import_dataset(path, ImportOptions(slug="bad", **options))
        return {each.code: each.message for each in error.value.report.problems}

    assert problems(twin_of="dev", primary="AP") == {
        "twin_measure": "dev has the primary measure nDCG@10",
        "twin_corpus": "dev has another corpus",
        "twin_too_small": "the hidden half has 9 judged topics",
        "twin_topics": "3 topics are judged in dev, too: q18, q19, q99",
    }
    assert "twin_open" in problems(twin_of="dev", hidden=False)
    assert problems(twin_of="shut") == {"no_twin": "shut is not a dataset with open judgments"}
    assert set(problems(twin_of="nothing")) == {"no_twin"}
    assert not Dataset.objects.filter(slug="bad").exists()


def test_a_dataset_has_one_hidden_half(tmp_path: Path) -> None:
    draw(write_folder(tmp_path / "a", collection()))
    path = write_folder(tmp_path / "b", collection(64, 90))
    with (
        pytest.raises(InvalidContent, match="toy already has a hidden half: toy \\(hidden half\\)"),
        acting(None, "a test"),
    ):
        import_dataset(path, ImportOptions(slug="third", twin_of="toy"))


def test_a_twin_of_nine_topics_is_refused(tmp_path: Path) -> None:
    path = write_folder(tmp_path, collection(0, 9))
    assert "the smaller half has 4 judged topics" in refused(path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"twin": 1.5}, "1.5 is not between 0 and 1"),
        ({"hidden": True}, "one open and one hidden half"),
        ({"runs_only": True}, "with documents and judgments"),
    ],
    ids=str,
)
def test_what_makes_no_twin_is_said(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    assert says in refused(write_folder(tmp_path, collection()), **options)


def test_halves_are_drawn_once(tmp_path: Path) -> None:
    path = write_folder(tmp_path, collection())
    draw(path)
    with pytest.raises(CommandError, match="another draw could open hidden topics"):
        draw(path, seed=9)


@pytest.mark.parametrize("twin", ["", "0.5"])
def test_an_import_in_the_admin_ends_after_its_time(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twin: str
) -> None:
    client.force_login(make_a_curator())
    page = choose(client, write_zip(tmp_path / "toy.zip", collection()))
    monkeypatch.setattr(importing, "MAX_SECONDS", -1)
    answer = confirm(client, page, twin=twin or None)
    assert answer.status_code == 400
    assert "Import large ones on the server" in answer.content.decode()
    assert not Dataset.objects.exists()


def test_the_admin_draws_a_twin_too(client: Client, tmp_path: Path) -> None:
    client.force_login(make_a_curator())
    answer = send(client, write_zip(tmp_path / "toy.zip", collection()), slug="toy", name="toy", twin="0.5", seed="3")
    text = answer.content.decode()
    assert Dataset.objects.get(slug="toy-hidden").twin_of == Dataset.objects.get(slug="toy")
    assert "Imported toy version 1" in text
    assert "hidden half" in text
    draw(write_folder(tmp_path / "folder", collection()), slug="same")
    assert judged("same") == judged("toy"), json.dumps(sorted(judged("toy")))
