"""Nothing of hidden judgements reaches anybody: markers are planted, and looked for everywhere as everybody.

The markers: a document that only hidden judgements name; the words of hidden queries; correct answers; means as the
scorer found them, to more digits than are published. Where the last test plants a leak of each kind, each is found.
"""

from __future__ import annotations

import gzip
import json
import logging
import secrets
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.contrib.auth.models import Permission
from django.test import Client

from leaderboard.core.audit import acting
from leaderboard.datasets.qrels import load_parts
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import AuditRecord, Dataset, Entry, Evaluation, Membership, System, User, Visibility
from leaderboard.results.publishing.protection import request_change
from leaderboard.results.publishing.visibility import quarantine
from submissions.accounts.access import make_token
from submissions.queue.queue import create_requested_jobs
from tests.factories import make_user, team_of
from tests.leaderboard.entries import record_boards
from tests.leaks import walking
from tests.leaks.routes import Route, routes
from tests.submissions.clients import Api, upload
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db(transaction=True)

QUERIES = [f"q{number}" for number in range(1, 14)]
#: Found by its name alone: no collection and no run has it.
DOCUMENT = f"leak{secrets.token_hex(8)}"
WORDS = f"words{secrets.token_hex(8)}"
#: A correct answer. Runs have it in capital letters, which match exactly.
ANSWER = f"answer{secrets.token_hex(8)}"
HIDDEN = "sealed"
CONTEST = "contest"
QUIZ = "quiz"


def run_text(skip: int, depth: int = 12) -> str:
    """A run over the hidden collection; the more it skips, the worse it is."""
    return "".join(
        f"{query} Q0 d{skip * (number % 3) + rank} {rank} {100 - rank} sealed\n"
        for number, query in enumerate(QUERIES)
        for rank in range(1, depth + 1)
    )


@pytest.fixture(scope="module", autouse=True)
def earlier_files() -> frozenset[Path]:
    """What other tests left: a run of three hundred thousand scores has any six digits somewhere."""
    return frozenset(path for path in Path(settings.VAR).rglob("*") if path.is_file())


def answer_run(wrong: int, **figures: float) -> str:
    """Return an answer run that is wrong or nearly correct for every `wrong`-th query; figures grow with the query."""
    records = [
        {
            "query_id": query,
            "answer": "unknown" if number % wrong == 1 else f"{'my ' * (number % wrong == 0)}{ANSWER.upper()}",
            "citations": [f"d{1 + number % 5}", f"d{number % wrong}"],
            **{name: figure * number for name, figure in figures.items()},
        }
        for number, query in enumerate(QUERIES, 1)
    ]
    return "".join(json.dumps(record) + "\n" for record in records)


def bring(folder: Path, slug: str, **options: Any) -> Dataset:
    """A hidden collection with markers in its judgements and its queries, through the importer.

    It has correct answers if its primary measure reads them.
    """
    has_answers = options.get("primary") == "EM"
    source = folder / slug
    (source / "qrels").mkdir(parents=True)
    (source / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": query, "text": f"a question about {WORDS}"}) + "\n" for query in QUERIES)
    )
    judged = [f"{query}\t{DOCUMENT}\t1\n" for query in QUERIES]
    judged += [f"{query}\td{1 + number % 5}\t1\n" for number, query in enumerate(QUERIES)]
    judged += [f"{query}\td{2 + number % 7}\t2\n" for number, query in enumerate(QUERIES) if number % 5 != 1]
    lines = dict.fromkeys(judged)
    (source / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    baseline = folder / f"{slug}.baseline.txt"
    baseline.write_text(answer_run(2) if has_answers else run_text(skip=4))
    if has_answers:
        answers = [{"_id": query, "answers": [ANSWER]} for query in QUERIES[1:]]
        answers.append({"_id": QUERIES[0], "patterns": [f"{ANSWER}|\\d{{20}}"]})
        corpus = [{"_id": f"d{number}", "title": "", "text": "words"} for number in range(60)]
        for name, rows in (("answers", answers), ("corpus", corpus)):
            (source / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_dataset(
        source,
        ImportOptions(
            slug=slug,
            name=slug.title(),
            hidden=True,
            runs_only=not has_answers,
            baseline=baseline,
            queries_visibility=Visibility.CURATORS,
            **options,
        ),
    )
    settle()
    Dataset.objects.filter(slug=slug).update(daily_quota=None, monthly_quota=None)
    return Dataset.objects.get(slug=slug)


def settle() -> None:
    """Do what is asked for, and what that asks for."""
    for _ in range(3):
        create_requested_jobs()
        work()


def everybody_but_readers(submitter: User) -> dict[str, Client]:
    """Clients of every kind of person without the right to read judgements."""
    teammate, outsider, curator = (make_user(name) for name in ("Bob", "Carol", "Dora"))
    Membership.objects.create(team=team_of(submitter), user=teammate)
    curator.is_staff = True
    curator.save()
    curator.user_permissions.set(Permission.objects.exclude(codename="read_qrels"))
    people = {"nobody": Client()}
    named = {"submitter": submitter, "teammate": teammate, "outsider": outsider, "curator": curator}
    for name, person in named.items():
        people[name] = Client()
        people[name].force_login(person)
    token = make_token(submitter, "walk")
    people[walking.SCRIPT] = Client(headers={"Authorization": f"Bearer {token}"})
    return people


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Every line at every level."""
    caplog.set_level(logging.DEBUG)
    return caplog


@pytest.fixture
def submitter(db: None) -> User:
    """Somebody with results on the hidden board."""
    return make_user("Alice")


@pytest.fixture
def sealed(logged: pytest.LogCaptureFixture, submitter: User, tmp_path: Path) -> Dataset:
    """A hidden dataset with results of its own: public, private, quarantined, and a seed set; and a rejected file."""
    dataset = bring(tmp_path, HIDDEN)
    api = Api(submitter)
    for skip, fields in ((1, {}), (2, {"public": "no"}), (3, {"system": "Another"})):
        send(api, HIDDEN, run_text(skip), **{"system": f"System {skip}", **fields})
    send(api, HIDDEN, *(run_text(skip, depth=11) for skip in (1, 2)), system="Seeds")
    wrong = api.submit("q1 Q0 d1 1 high sealed\nq99 Q0 d1 1 1 sealed\n", dataset=HIDDEN, system="Wrong")
    assert wrong.status == 400
    settle()
    quarantine(Entry.objects.get(system__name="Another"), "it came twice")
    return dataset


@pytest.fixture
def contest(logged: pytest.LogCaptureFixture, submitter: User, tmp_path: Path) -> Dataset:
    """A competition with a result, one that the Ladder holds, and a private part that nobody has revealed."""
    dataset = bring(tmp_path, CONTEST)
    with acting(None, "a round begins"):
        request_change(dataset, competition=True)
    settle()
    api = Api(submitter)
    for label, depth in (("first", 12), ("second", 11)):  # the same first ten: no change, whatever was drawn
        send(api, CONTEST, run_text(1, depth), system="Contestant", configuration=label)
        settle()
    assert Entry.objects.filter(dataset=dataset, visibility=Entry.Visibility.HELD).exists()
    return Dataset.objects.get(pk=dataset.pk)


@pytest.fixture
def quiz(logged: pytest.LogCaptureFixture, submitter: User, tmp_path: Path) -> Dataset:
    """A hidden dataset with correct answers, three answer runs, and a rejected one."""
    dataset = bring(tmp_path, QUIZ, primary="EM", measures=("AnswerF1", "AnswerIn"))
    api = Api(submitter)
    for wrong in (3, 4, 5):
        send(api, QUIZ, answer_run(wrong, confidence=0.07, search_calls=0.3), system=f"Agent {wrong}")
    refused = api.submit('{"query_id": "q1", "answer": 1}\n{"query_id": "q99", "answer": "?"}\n', dataset=QUIZ)
    assert refused.status == 400
    settle()
    assert Entry.objects.filter(dataset=dataset, scores__has_key="EM").exists()
    return Dataset.objects.get(pk=dataset.pk)


def send(api: Api, dataset: str, *runs: str, **fields: Any) -> None:
    """Submit the runs, several as seeds, for a system that may be there already."""
    known = System.objects.filter(name=fields["system"]).first()
    system = {"system": known.slug, "architecture": None} if known else {}
    files = [upload(run, f"{number}.txt") for number, run in enumerate(runs, 1)]
    names = [dataset] * len(files) if len(files) > 1 else dataset
    answer = api.submit(**{**fields, "dataset": names, "file": files, **system})
    assert answer.status == 201, answer.body


def markers(*datasets: Dataset) -> dict[str, str]:
    """What must be found nowhere."""
    found = {"a judged document": DOCUMENT, "words of a hidden query": WORDS, "a correct answer": ANSWER}
    for dataset in datasets:
        of_dataset = {"qrels__version__dataset": dataset}
        for evaluation in Evaluation.objects.filter(**of_dataset).prefetch_related("parts"):
            told = [evaluation.means, *(part.means for part in evaluation.parts.all())]
            for number, means in enumerate(told):
                for measure, mean in means.items():
                    if marker := unrounded(mean):
                        found[f"{measure} of run {evaluation.run_id}, part {number}"] = marker
        if dataset.current_qrels and dataset.current_qrels.parts_sha256:
            parts = load_parts(dataset.current_qrels)
            found["what drew the parts"] = parts.secret.hex()
            found["a line of the assignment"] = "q1\t" + ("public" if parts.public["q1"] else "private")
    return found


def checksums(*datasets: Dataset) -> dict[str, str]:
    """By which a guess at hidden judgements or queries could be tried out; the database has them, and nobody else."""
    found = {}
    for dataset in datasets:
        version, qrels = dataset.current_version, dataset.current_qrels
        assert version is not None
        assert qrels is not None
        named = {
            "content": version.content_sha256,
            "queries": version.queries_sha256,
            "judgements": qrels.sha256,
            **({"answers": qrels.answers_sha256} if qrels.answers_sha256 else {}),
        }
        named |= {name: value for name, value in version.statistics.items() if name.endswith("_sha256")}
        assert "queries_expanded_sha256" in named
        found |= {f"checksum of {dataset}: {name}": value for name, value in named.items()}
    return found


def unrounded(mean: float) -> str:
    """A mean to more digits than are published; empty where three decimals tell it, or it is a third of something."""
    simple = any(abs(mean * number - round(mean * number)) < 1e-9 for number in range(1, 14))
    return "" if simple else f"{mean:.12f}"[:8]


@pytest.mark.parametrize("short", [True, pytest.param(False, marks=pytest.mark.long)], ids=["short", "full"])
def test_nothing_of_hidden_judgements_is_given_away(
    sealed: Dataset,
    contest: Dataset,
    quiz: Dataset,
    submitter: User,
    broker: redis.Redis,
    logged: pytest.LogCaptureFixture,
    earlier_files: frozenset[Path],
    short: bool,
) -> None:
    people = everybody_but_readers(submitter)
    search = walking.Search(markers(sealed, contest, quiz) | checksums(sealed, contest, quiz))
    kept = walking.Search(markers(sealed, contest, quiz))
    assert {"a correct answer", "checksum of Quiz: answers"} <= search.markers.keys()
    assert any(name.startswith("AnswerF1") for name in kept.markers)
    assert len(kept.markers) > 6
    answered = walking.walk(search, people, short=short)
    assert {"dataset", "api-submission", "submission", "dataset_csv", "system"} <= answered
    wrong = {"dataset": HIDDEN, "file": "", "system": "", "reason": "because"}
    few = {name: people[name] for name in ("nobody", "submitter", "curator")}
    walking.post_everywhere(search, few, wrong, short=short)
    walking.look_into_database(kept)
    walking.look_into_cache(search, broker)
    walking.look_into_logs(search, logged.records)
    private = Path(settings.VAR) / "private"
    texts = {name: marker for name, marker in kept.markers.items() if marker != WORDS}
    files = walking.Search(texts)
    walking.look_into_files(files, Path(settings.VAR), private, but=earlier_files)
    assert search.looked_at + kept.looked_at > 5000
    for found in (search, kept):
        assert not found.hits, "\n".join(map(str, found.hits[:20]))
    assert not files.hits, "\n".join(map(str, files.hits[:20]))


def test_who_may_read_judgements_finds_them_where_reading_is_recorded_and_nowhere_else(
    sealed: Dataset, contest: Dataset
) -> None:
    reader = make_user("Rita", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(reader)
    search = walking.Search(markers(sealed, contest))
    before = AuditRecord.objects.filter(actor=reader).count()
    logged = ["leaderboard_qrels_read", "dataset-file"]
    walking.walk(search, {"reader": client}, only=logged)
    found = {hit.where for hit in search.hits if hit.marker in ("a judged document", "words of a hidden query")}
    assert len(found) == 2 * 2  # judgements and queries of both data sets
    assert len(search.hits) == len(found)
    assert AuditRecord.objects.filter(actor=reader).count() == before + len(found)

    elsewhere = walking.Search(search.markers)
    others = [route.name for route in routes() if route.name not in logged and not unasked(route)]
    walking.walk(elsewhere, {"reader": client}, only=others)
    assert not elsewhere.hits, "\n".join(map(str, elsewhere.hits[:20]))


def unasked(route: Route) -> bool:
    """What has no more for a reader than for any curator: the other walk has been there."""
    return not route.text.startswith(("admin/leaderboard/", "datasets/", "api/v1/datasets/"))


def test_planted_leaks_are_found(
    sealed: Dataset, broker: redis.Redis, logged: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    found = markers(sealed)
    unrounded = next(value for name, value in found.items() if name.startswith("nDCG@10"))
    entry = Entry.objects.public().exclude(is_baseline=True).latest("pk")
    Entry.objects.filter(pk=entry.pk).update(scores={"nDCG@10": float(unrounded)})
    record_boards()
    (pages, log, cache, rows, files) = (walking.Search(found) for _ in range(5))

    walking.walk(pages, {"nobody": Client()}, only=["api-dataset-board", "dataset_csv", "system"])
    logging.getLogger("evaluation").info("scored %s", DOCUMENT)
    walking.look_into_logs(log, logged.records)
    broker.set(f"runboard:1:{DOCUMENT}", "1")
    walking.look_into_cache(cache, broker)
    Dataset.objects.filter(pk=sealed.pk).update(description=WORDS)
    walking.look_into_database(rows)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "kept").write_bytes(gzip.compress(DOCUMENT.encode()))
    walking.look_into_files(files, tmp_path, tmp_path / "private")

    # In an export and in the API's answer; pages show no more than three decimals whatever they are given.
    assert len({hit.where for hit in pages.hits}) >= 2
    for search in (log, cache, rows, files):
        assert search.hits
