"""Two sites that differ in one hidden judgement below rounding, and what each says: equal bytes are wanted.

Two sites with correct answers differ in which of two queries all runs answer correctly, so that all means are equal.

The grades of one query are so large that the judgement in which they differ, in the first ten of some runs, changes
their means by less than what is published. Everything is scored and published in each site by itself, from the same
rows, and taken back. Ask a `Site` for pages, or anything else for a text, in a function that `TwoSites.ask` takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from django.core.cache import cache
from django.test import Client

from leaderboard.core.storage.store import Area, put
from leaderboard.models import Dataset, DatasetVersion, Entry, Evaluation, Qrels, User
from leaderboard.results.board_rows.rows import board_cache
from leaderboard.results.records import per_query_values
from tests.factories import make_user
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import scored_dataset
from tests.leaderboard.entries_by_query import score_queries, spread
from tests.leaks.opening import clear_kept_judgements
from tests.leaks.worlds import CHANGING, taken_back
from tests.submissions.clients import Api
from tests.submissions.collections import HEADER, JUDGED, add_baseline, make_collection, run_text
from tests.submissions.workers import work

SLUG = "secret"
#: The runs: without so many first documents. What differs is the grade of d20, in the first ten of the last ones.
SKIPPED = (0, 3, 14)
#: BM25 finds d20, too.
BASELINE = 12
DIFFERING = ("q1\td20\t1\n", "q1\td700\t1\n")


@dataclass
class Site:
    """One of the sites: its hidden dataset, the person who submitted, and the ids of the submissions."""

    dataset: Dataset
    owner: User
    submissions: list[str]
    client: Client

    def get(self, address: str, *, owner: bool = False) -> str:
        """What the address answers everyone, or the owner."""
        client = self.client
        if owner:
            client = Client()
            client.force_login(self.owner)
        response = client.get(address, follow=True)
        content = b"".join(response.streaming_content) if response.streaming else response.content
        return f"{response.status_code} {content.decode(errors='replace')}"


@dataclass(frozen=True)
class TwoSites:
    """The rows that both begin with, and the keys of their judgements or correct answers (`column` of the qrels)."""

    dataset: Dataset
    owner: User
    folder: Path
    keys: Sequence[str]
    baseline: str
    runs: Sequence[str]
    column: str = "sha256"

    def ask(self, what: Callable[[Site], Sequence[str]]) -> tuple[list[str], list[str]]:
        """What both sites say, without what is different each time: ids of submissions, tokens, times."""
        first, second = (self._ask_one(key, what) for key in self.keys)
        return first, second

    def _ask_one(self, key: str, what: Callable[[Site], Sequence[str]]) -> list[str]:
        clear_kept_judgements()
        board_cache.clear()
        cache.clear()
        with taken_back():
            Qrels.objects.filter(pk=self.dataset.current_qrels_id).update(**{self.column: key})
            site = Site(Dataset.objects.get(pk=self.dataset.pk), self.owner, [], Client())
            add_baseline(site.dataset, self.folder, text=self.baseline)
            for number, run in enumerate(self.runs):
                sent = Api(self.owner).submit(run, dataset=SLUG, system=f"System {number}")
                assert sent.status == 201, sent.body
                site.submissions.append(sent.body["id"])
                work()
            if self.column == "sha256":
                _score_open_half(site.dataset)
            told = [_plain(text, site) for text in what(site)]
        cache.clear()
        return told


def _score_open_half(hidden: Dataset) -> None:
    """Give the dataset an open half, where the same systems have results: so that it tells a contamination gap."""
    public = scored_dataset(slug="open-half", name="Open half", measures=["nDCG@10"])
    Dataset.objects.filter(pk=hidden.pk).update(twin_of=public)
    for entry in Entry.objects.filter(dataset=hidden).select_related("system").order_by("pk"):
        values = spread(0.3 if entry.is_baseline else 0.7)
        score_queries(public, "", values, baseline=entry.is_baseline, system=entry.system)
    compute_certainty(public)


def make_two_sites(folder: Path) -> TwoSites:
    """A hidden dataset and a person, without results."""
    dataset = make_collection(folder, SLUG, hidden=True, measures=["nDCG@10"])
    Dataset.objects.filter(pk=dataset.pk).update(daily_quota=None, monthly_quota=None)
    keys = []
    for number, line in enumerate(DIFFERING):
        path = folder / f"site-{number}.tsv"
        graded = "".join(f"q1\td{place}\t1000\n" for place in range(1, 11))
        others = "".join(f"{query}\td{place}\t1\n" for query in JUDGED[1:] for place in (1, 3, 13))
        path.write_text(HEADER + graded + others + line)
        keys.append(put(Area.QRELS, path))
    runs = [run_text(skip=skip) for skip in SKIPPED]
    return TwoSites(dataset, make_user("Olga"), folder, keys, run_text(skip=BASELINE), runs)


def make_two_answer_sites(folder: Path) -> TwoSites:
    """Return two sites with a hidden dataset with correct answers, and a person, without results."""
    dataset = make_collection(folder, SLUG, hidden=True, measures=["EM", "AnswerF1", "AnswerIn"], primary_measure="EM")
    Dataset.objects.filter(pk=dataset.pk).update(daily_quota=None, monthly_quota=None)
    corpus = folder / "corpus.jsonl"
    corpus.write_text(json.dumps({"_id": "d1", "title": "", "text": "words"}) + "\n")
    DatasetVersion.objects.filter(dataset=dataset).update(corpus_sha256=put(Area.FILES, corpus))
    keys = []
    for number in range(2):
        correct = dict.fromkeys(JUDGED, "correct") | {JUDGED[number]: "another"}
        path = folder / f"answers-{number}.jsonl"
        path.write_text(
            "".join(json.dumps({"_id": query, "answers": [text]}) + "\n" for query, text in correct.items())
        )
        keys.append(put(Area.QRELS, path))
    Qrels.objects.filter(pk=dataset.current_qrels_id).update(answers_sha256=keys[0])
    runs = [_answer_run(count) for count in (0, 4, 9, 10)]
    return TwoSites(dataset, make_user("Olga"), folder, keys, runs[0], runs[1:], "answers_sha256")


def _answer_run(count: int) -> str:
    """Return an answer run that answers this number of queries, the first of which differ between the sites."""
    answers = [(query, "correct" if number < count else "?") for number, query in enumerate(JUDGED)]
    records = [{"query_id": name, "answer": text, "citations": ["d1"], "confidence": 0.6} for name, text in answers]
    return "".join(json.dumps(record) + "\n" for record in records)


def unrounded(site: Site) -> list[str]:
    """Return the unrounded values by query of each run, which must stay secret."""
    rows = Evaluation.objects.filter(run__version__dataset=site.dataset).order_by("pk")
    return [repr(per_query_values(row)) for row in rows]


def _plain(text: str, site: Site) -> str:
    for number, reference in enumerate(site.submissions):
        text = text.replace(reference, f"submission {number}")
    return re.sub(r"[0-9a-f]{64}|certain[0-9]{6}|rb_[0-9a-f]{5}", "…", CHANGING.sub("…", text))
