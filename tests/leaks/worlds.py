"""Two worlds that differ in one hidden judgement, and what a curator without the right to read them sees of it.

In one the topic QUERY is judged, by the pair (QUERY, PROBE); in the other another topic in its place. Everything else
is the same row by row. An act is played in both and taken back. Where its answers differ, or where it opens hidden
judgements, a record of it has to be there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from django.apps import apps
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.core.management.color import no_style
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from evaluation.judgements.merge import Judge
from leaderboard.core.audit import acting
from leaderboard.core.storage.store import Area, put
from leaderboard.datasets.qrels import READ
from leaderboard.judgements.comparing import compare_now, draw_now
from leaderboard.judgements.disclosure import COMPARED
from leaderboard.judgements.imports import import_judgements
from leaderboard.judgements.pools import request_pool
from leaderboard.judgements.rescoring.campaigns import start_rescore
from leaderboard.models import (
    AuditRecord,
    Dataset,
    DatasetVersion,
    JudgementImport,
    Pool,
    Qrels,
    Rescore,
    User,
)
from submissions.models import Worker
from submissions.queue.queue import create_requested_jobs
from tests.doors.content import build
from tests.factories import make_user
from tests.leaderboard.tiny_collection import lines_of
from tests.leaks.opening import clear_kept_judgements, opened_below, private_judgements
from tests.submissions.clients import Api, upload
from tests.submissions.collections import HEADER, JUDGED, make_collection, run_text
from tests.submissions.workers import work

#: A topic that is judged in one of the worlds only, its document there, and the topic that is judged in the other.
QUERY, PROBE, OTHER = "q11", "d5", "q12"
#: One line that somebody would try.
GUESS = f"{QUERY}\t{PROBE}\t1\n"
#: The hidden dataset's corpus, as far as imports compare it.
CORPUS = lines_of([{"_id": name, "title": "", "text": "words"} for name in ("d1", "d3", PROBE)])

#: What is different each time an address is asked: tokens of forms, ids of requests, the time, how long ago it was.
CHANGING = re.compile(
    r'name="csrfmiddlewaretoken" value="[^"]*"|"csrfToken": "[^"]*"|>[0-9a-f]{16}</code>|staged=\w+'
    r"|T?\d\d:\d\d(:\d\d(\.\d+)?Z?)?\b|just now|\d+ seconds? ago|(\d+|a) minutes? ago|(\d+ min )?\d+ s\b"
    r"|less than a second"
)


@dataclass
class Stage:
    """Where an act is played: the curator, the hidden dataset, its rows, and what was answered so far."""

    client: Client
    curator: User
    dataset: Dataset
    folder: Path
    brought: JudgementImport
    pool: Pool
    rescore: Rescore
    told: list[str] = field(default_factory=list)

    def get(self, address: str) -> str:
        """What the page says."""
        return self._take(address, self.client.get(address, follow=True))

    def post(self, address: str, **fields: Any) -> str:
        """What is answered to the form, with the page that it leads to."""
        return self._take(address, self.client.post(address, {"why": "a flow", **fields}, follow=True))

    def run(self, command: str, *arguments: str, named: bool = True, **options: Any) -> None:
        """What the command writes, or why it refuses."""
        by = {"by": self.curator.email, "why": "a flow"} if named else {}
        out = StringIO()
        try:
            call_command(command, *arguments, stdout=out, stderr=out, **by, **options)
        except CommandError as error:
            out.write(str(error))
        self.told.append(f"{command} {arguments}: {out.getvalue()}")

    def file(self, text: str = GUESS, name: str = "guess.qrels") -> Any:
        """An upload."""
        return upload(text, name)

    def on_disk(self, text: str = GUESS) -> str:
        """The same as a file for a command."""
        path = self.folder / "guess.qrels"
        path.write_text(text)
        return str(path)

    def settle(self) -> None:
        """What waits is done by a scorer."""
        create_requested_jobs()
        work()

    def _take(self, address: str, response: Any) -> str:
        content = b"".join(response.streaming_content) if response.streaming else response.content
        text = f"{response.status_code} {getattr(response, 'redirect_chain', [])} {content.decode()}"
        self.told.append(f"{address}: {text}")
        return text


@dataclass(frozen=True)
class Played:
    """What an act told in one world, whether that is recorded, and which hidden judgements it opened."""

    told: str
    recorded: bool
    opened: bool


@dataclass(frozen=True)
class Worlds:
    """The site, and the judgements of each world by their key in the store."""

    client: Client
    curator: User
    colleague: User
    dataset: Dataset
    folder: Path
    judged: str
    unjudged: str

    def play(self, acts: dict[str, Callable[[Stage], None]]) -> dict[str, tuple[Played, Played]]:
        """Each act in both worlds, from the same rows each time."""
        first, second = (self._play_in(key, acts) for key in (self.judged, self.unjudged))
        return {name: (first[name], second[name]) for name in acts}

    def _play_in(self, key: str, acts: dict[str, Callable[[Stage], None]]) -> dict[str, Played]:
        with self.world(key) as stage:
            return {name: self._played(act, stage) for name, act in acts.items()}

    @contextmanager
    def world(self, key: str) -> Iterator[Stage]:
        """The rows as they are with these judgements."""
        with taken_back():
            Qrels.objects.filter(version=self.dataset.current_version, number=1).update(sha256=key)
            with acting(self.colleague):
                yield self._prepared()

    def _prepared(self) -> Stage:
        """An import that was compared, a pool, and a rescore to be decided: a colleague's."""
        dataset = Dataset.objects.get(pk=self.dataset.pk)
        path = self.folder / "brought.qrels"
        path.write_text(GUESS)
        brought, pool = (
            import_judgements(dataset, path, Judge("people", "a colleague")),
            request_pool(dataset, depth=5),
        )
        compare_now(brought)
        draw_now(pool)
        rescore = start_rescore(dataset, Qrels.objects.get(version__dataset=dataset, number=2))
        create_requested_jobs()
        work()
        rescore.refresh_from_db()
        assert rescore.state == Rescore.State.READY
        return Stage(self.client, self.curator, dataset, self.folder, brought, pool, rescore)

    def _played(self, act: Callable[[Stage], None], stage: Stage) -> Played:
        with taken_back():
            clear_kept_judgements()
            Worker.objects.update(seen_at=timezone.now())  # Otherwise pages change when the worker has been silent.
            last = AuditRecord.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
            stage.told.clear()
            # What an act imports by itself is in the same folder.
            hidden = set(Qrels.objects.filter(version__dataset__hidden=True).values_list("sha256", flat=True))
            with acting(None), opened_below(private_judgements()) as opened:
                act(stage)
            records = AuditRecord.objects.filter(pk__gt=last, actor=self.curator).order_by("pk")
            rows = [*records.values_list("action", "subject", "before", "after")]
            told = CHANGING.sub("…", "\n".join([*stage.told, *map(str, rows)]))
            return Played(
                told,
                any(row[0] in (READ, COMPARED) for row in rows),
                any(path.name in hidden for path in opened),
            )


@contextmanager
def taken_back() -> Iterator[None]:
    """What is written inside is as if it had never been; the next rows have the same keys again."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            for statement in connection.ops.sequence_reset_sql(no_style(), apps.get_models()):
                cursor.execute(statement)
        yield
        transaction.set_rollback(True)


def make_worlds(folder: Path, *, whole: bool = True) -> Worlds:
    """A hidden dataset with a result; on the whole site there is also one of everything else."""
    owner = build(folder).persons["owner"] if whole else make_user("Olga")
    assert isinstance(owner, User)
    dataset = make_collection(folder, "secret", hidden=True)
    Dataset.objects.filter(pk=dataset.pk).update(queries_visibility="curators")
    corpus = {"corpus_expanded_sha256": hashlib.sha256(CORPUS.encode()).hexdigest()}
    versions = DatasetVersion.objects.filter(dataset=dataset)
    versions.update(statistics={**versions.get().statistics, **corpus})
    assert Api(owner).submit(run_text(), dataset="secret", system="Mine").status == 201
    work()
    curator = make_user("Dora", is_staff=True)
    curator.user_permissions.set(Permission.objects.exclude(codename="read_qrels"))
    client = Client(raise_request_exception=False)
    client.force_login(curator)
    keys = []
    for name, lines in (
        ("judged", GUESS),
        ("unjudged", f"{OTHER}\t{PROBE}\t1\n"),
        ("grown", f"{QUERY}\td8\t1\n"),
    ):
        path = folder / f"{name}.tsv"
        path.write_text(HEADER + "".join(f"{query}\td1\t1\n{query}\td3\t2\n" for query in JUDGED) + lines)
        keys.append(put(Area.QRELS, path))
    Qrels.objects.create(version=dataset.current_version, number=2, sha256=keys[2])
    dataset.refresh_from_db()
    colleague = make_user("Colleague", is_superuser=True)
    return Worlds(client, curator, colleague, dataset, folder, keys[0], keys[1])
