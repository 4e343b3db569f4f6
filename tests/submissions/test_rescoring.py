"""Every stored run of a dataset evaluated again on other judgements."""

from __future__ import annotations

from pathlib import Path

import pytest

from leaderboard import rescoring
from leaderboard.audit import acting
from leaderboard.judging.adopt import adopt_qrels
from leaderboard.models import AuditRecord, Dataset, Qrels, Rescore, User, WorkRequest
from leaderboard.store import Area, put
from tests.factories import make_user
from tests.submissions.conftest import HEADER, JUDGED, Api, work

pytestmark = pytest.mark.django_db


def more_judgements(dataset: Dataset, folder: Path, extra: str = "d2") -> Qrels:
    """The dataset's judgements with one more relevant document for each query."""
    path = folder / f"{dataset.slug}-{extra}.qrels"
    path.write_text(
        HEADER
        + "".join(
            f"{query}\td1\t1\n{query}\td3\t2\n{query}\td900\t0\n{query}\t{extra}\t2\n" for query in JUDGED
        )
    )
    assert dataset.current_version is not None
    number = dataset.current_version.qrels.count() + 1
    return Qrels.objects.create(version=dataset.current_version, number=number, sha256=put(Area.QRELS, path))


@pytest.fixture
def curator(db: None) -> User:
    """Somebody who may rescore."""
    return make_user("Cora", is_staff=True, is_superuser=True)


def test_one_rescore_at_a_time_and_each_act_is_recorded(
    demo: Dataset, api: Api, curator: User, tmp_path: Path
) -> None:
    api.submit()
    work()
    second, third = (more_judgements(demo, tmp_path, extra) for extra in ("d2", "d4"))
    with acting(curator, "pool of October"):
        rescore = adopt_qrels(demo, second, "pool of October")
        assert rescore is not None
        with pytest.raises(rescoring.RescoreUnderWay, match="on qrels 2 already"):
            adopt_qrels(demo, third, "another pool")
        rescoring.discard(rescore)
        assert rescore.state == Rescore.State.DISCARDED
        with pytest.raises(rescoring.CannotRescore, match="thrown away by Cora"):
            rescoring.discard(rescore)
        rescoring.start(demo, third, "another pool")
    demo.refresh_from_db()
    assert demo.current_qrels is not None
    assert demo.current_qrels.number == 1
    asked = WorkRequest.objects.filter(kind=WorkRequest.Kind.RESCORE)
    assert [request.payload for request in asked] == [
        {"rescore": each.pk} for each in Rescore.objects.order_by("pk")
    ]
    acts = AuditRecord.objects.filter(action__startswith="rescore").order_by("pk")
    assert list(acts.values_list("action", "actor_name")) == [
        ("rescore started", "Cora"), ("rescore discarded", "Cora"), ("rescore started", "Cora"),
    ]  # fmt: skip


def test_first_judgements_are_taken_at_once(demo: Dataset, curator: User, tmp_path: Path) -> None:
    Dataset.objects.filter(pk=demo.pk).update(current_qrels=None, state=Dataset.State.COLLECTING)
    qrels = more_judgements(demo, tmp_path)
    with acting(curator, "the first pool"):
        assert adopt_qrels(demo, qrels, "the first pool") is None
    assert demo.current_qrels == qrels
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.BASELINE, dataset=demo).count() == 1


def test_judgements_of_another_split_are_another_test(
    demo: Dataset, api: Api, curator: User, tmp_path: Path
) -> None:
    api.submit()
    work()
    qrels = more_judgements(demo, tmp_path)
    Qrels.objects.filter(pk=qrels.pk).update(split="dev")
    qrels.refresh_from_db()
    with (
        acting(curator, "dev"),
        pytest.raises(rescoring.CannotRescore, match="not for the version and split"),
    ):
        rescoring.start(demo, qrels, "dev")
