"""Several runs for one dataset in one submission: seeds of one system, and one result or none."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from leaderboard.models import Dataset, Entry
from submissions.jobs.changes import cancel
from submissions.models import Job, State, Submission
from submissions.queue.queue import advance
from tests.submissions.clients import Api, upload
from tests.submissions.collections import make_collection, run_text
from tests.submissions.outcomes import outcome_of
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


def seeds(*skips: int, name: str = "run-{}.txt") -> list[Any]:
    """Good runs that differ: each leaves out so many of the first documents."""
    return [upload(run_text(skip=skip), name.format(number)) for number, skip in enumerate(skips, 1)]


def labels() -> list[str]:
    """Return the seed labels of all jobs."""
    return list(Job.objects.order_by("pk").values_list("seed", flat=True))


def test_several_files_for_one_dataset_are_one_result(demo: Dataset, baseline: None, api: Api) -> None:
    accepted = api.submit(file=seeds(0, 1, 2))
    assert accepted.status == 201, accepted.body
    work()
    done = api.get(f"submissions/{accepted.body['id']}/").body
    (entry,) = Entry.objects.filter(submission_reference=done["id"])
    assert entry.seed_count == 3
    (found,) = done["seed_sets"]
    assert found["published"]
    assert found["scores"] == entry.scores
    assert found["deviations"] == entry.deviations
    assert set(found["deltas"]) == {"baseline"}
    each = [job["scores"]["nDCG@10"] for job in done["jobs"]]
    assert entry.scores["nDCG@10"] == pytest.approx(sum(each) / 3)
    assert [job["seed"] for job in done["jobs"]] == ["1", "2", "3"]
    assert set(Job.objects.filter(submission=done["id"]).values_list("entry", flat=True)) == {entry.pk}


def test_nothing_is_shown_before_the_last_seed_is_scored(demo: Dataset, api: Api) -> None:
    identifier = api.submit(file=seeds(0, 1)).body["id"]
    last = Job.objects.last()
    assert last is not None
    Job.objects.filter(pk=last.pk).update(lease_expires_at="2099-01-01T00:00:00Z")
    work()
    assert not Entry.objects.exists()
    (found,) = api.get(f"submissions/{identifier}/").body["seed_sets"]
    assert not found["published"]
    assert found["meaning"].startswith("1 of 2 seeds")
    Job.objects.filter(pk=last.pk).update(lease_expires_at=None)
    work()
    assert Entry.objects.get().seed_count == 2


def test_a_set_that_lost_a_seed_is_not_published_and_says_which(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit(file=seeds(0, 1)).body["id"]
    first = Job.objects.first()
    assert first is not None
    advance(first.pk, State.FAILED)
    work()
    assert not Entry.objects.exists()
    answer = api.get(f"submissions/{identifier}/").body
    assert answer["seed_sets"][0]["missing"] == ["1"]
    assert "seed 1 (failed)" in answer["meaning"]
    assert answer["jobs"][1]["scores"], "what was scored is shown all the same"
    page = signed_in.get(f"/submissions/{identifier}/").content.decode()
    assert "Not published" in page
    assert api.submit(file=seeds(0, 1)).status == 201, "an incomplete set is in nobody's way"
    work()
    assert Entry.objects.get().seed_count == 2


def test_cancelling_what_is_left_of_a_set_leaves_no_result(demo: Dataset, api: Api) -> None:
    identifier = api.submit(file=seeds(0, 1)).body["id"]
    last = Job.objects.last()
    assert last is not None
    Job.objects.filter(pk=last.pk).update(queue=Job.Queue.GPU)
    work()
    found = Submission.objects.get(pk=identifier)
    cancel(found, found.submitter)
    answer = api.get(f"submissions/{identifier}/").body
    assert answer["seed_sets"][0]["missing"] == ["2"]
    assert not Entry.objects.exists()


def test_over_hidden_judgements_the_mean_has_three_decimals_and_no_deviation_is_told(secret: Dataset, api: Api) -> None:
    identifier = api.submit(file=seeds(0, 1, 2), dataset="secret").body["id"]
    work()
    (found,) = api.get(f"submissions/{identifier}/").body["seed_sets"]
    values = found["scores"].values()
    assert values
    assert found["deviations"] == {}
    assert all(round(value, 3) == value for value in values)


def test_over_hidden_judgements_no_seed_is_told_before_its_set_or_after(
    secret: Dataset, api: Api, signed_in: Client
) -> None:
    identifier = api.submit(file=seeds(0, 1), dataset="secret").body["id"]
    last = Job.objects.last()
    assert last is not None
    Job.objects.filter(pk=last.pk).update(lease_expires_at="2099-01-01T00:00Z", state=State.SCORING)

    def told() -> tuple[list[Any], str]:
        page = signed_in.get(f"/submissions/{identifier}/").content.decode()
        assert '<th scope="col" class="n">Seed' not in page
        return [job["scores"] for job in api.get(f"submissions/{identifier}/").body["jobs"]], page

    work()
    assert Job.objects.filter(state=State.DONE).count() == 1
    scores, page = told()
    assert scores == [{}, {}]
    assert 'class="table scores"' not in page
    Job.objects.filter(pk=last.pk).update(lease_expires_at=None, state=State.QUEUED)
    work()
    entry = Entry.objects.get()
    scores, page = told()
    assert scores == [{}, {}]
    assert [seed.scores for seed in entry.seeds.all()] == [{}, {}]
    assert f"{entry.scores['nDCG@10']:.3f}</b>" in page
    assert f"nDCG@10 {entry.scores['nDCG@10']:.3f}" in outcome_of(Submission.objects.get())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"seed": "a, b"}, ["a", "b"]),
        ({"seed": ["x", "y"]}, ["x", "y"]),
        ({"file": seeds(0, 1, name="colbert-seed{}3.run.txt")}, ["13", "23"]),
        ({"file": seeds(0, 1, name="demo.s{}.mine.txt")}, ["s1", "s2"]),
        ({"file": seeds(0, 1, name="same.txt")}, ["1", "2"]),
        ({"dataset": ["demo", "demo"]}, ["1", "2"]),
    ],
    ids=[
        "comma list",
        "repeated",
        "numbered names",
        "named after the dataset",
        "one name",
        "dataset repeated",
    ],
)
def test_labels_are_said_or_taken_from_names(
    fields: dict[str, Any], expected: list[str], demo: Dataset, api: Api
) -> None:
    answer = api.submit(**{"file": seeds(0, 1), **fields})
    assert answer.status == 201, answer.body
    assert labels() == expected


def test_a_zip_may_hold_seeds_of_several_datasets(demo: Dataset, secret: Dataset, api: Api) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, skip in (("demo.a.txt", 0), ("demo.b.txt", 1), ("secret.txt", 0)):
            archive.writestr(name, run_text(skip=skip))
    answer = api.submit(dataset=None, file=upload(packed.getvalue(), "runs.zip"))
    assert answer.status == 201, answer.body
    assert labels() == ["a", "b", ""]
    work()
    assert sorted(Entry.objects.values_list("dataset__slug", "seed_count")) == [("demo", 2), ("secret", 0)]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"file": seeds(0, 1, 2, 3, 4, 5)}, "too_many_seeds"),
        ({"file": seeds(1, 1)}, "same_run_twice"),
        ({"file": [upload(run_text()), upload(gzip.compress(run_text().encode()))]}, "same_run_twice"),
        ({"file": seeds(0, 1), "seed": "a,a"}, "seed_label_twice"),
        ({"file": seeds(0, 1), "seed": "a,b,c"}, "seed_labels"),
        ({"file": seeds(0), "seed": "a"}, "seed_labels"),
        ({"file": seeds(0, 1), "seed": ["a", "x" * 81]}, "seed_label"),
        ({"file": seeds(0, 1), "seed": ["a", "\u200b"]}, "seed_label"),
    ],
)
def test_what_is_no_set_is_refused(fields: dict[str, Any], code: str, demo: Dataset, api: Api) -> None:
    answer = api.submit(**fields)
    assert answer.status == 400
    assert answer.problem(code)["hint"]
    assert not Submission.objects.exists()


def test_all_that_is_wrong_with_a_set_is_said_at_once(demo: Dataset, api: Api) -> None:
    answer = api.submit(
        file=[upload("junk\n", "bad.txt"), *seeds(0, 0)],
        seed="a,a,b",
    )
    assert {problem["code"] for problem in answer.body["problems"]} >= {
        "same_run_twice",
        "seed_label_twice",
        "fields",
    }


def test_another_run_under_the_same_label_needs_one_of_its_own(demo: Dataset, api: Api) -> None:
    api.submit()
    answer = api.submit(run_text(skip=1))
    assert answer.status == 400
    assert "together, as one result" in answer.problem("label_needed")["hint"]
    assert api.submit(run_text(skip=1), configuration="other").status == 201


def test_large_seeds_that_turn_out_the_same_are_rejected_by_the_worker(demo: Dataset, api: Api, settings: Any) -> None:
    settings.VALIDATE_AT_ONCE_BYTES = 100
    text = run_text()
    identifier = api.submit(file=[upload(text), upload(gzip.compress(text.encode()), "b.txt.gz")]).body["id"]
    work()
    answer = api.get(f"submissions/{identifier}/").body
    assert [job["state"] for job in answer["jobs"]] == ["done", "rejected"]
    assert answer["jobs"][1]["problems"][0]["code"] == "same_run_twice"
    assert not Entry.objects.exists()


def test_the_page_takes_seeds_and_shows_the_set(demo: Dataset, baseline: None, signed_in: Client) -> None:
    fields = {"new-name": "Mine", "new-architecture": "dense", "action": "submit"}
    response = signed_in.post("/submit/", {**fields, "seeds": "13, 42", "run:demo": seeds(0, 2)})
    assert response.status_code == 302, response.content.decode()
    work()
    page = signed_in.get(response["Location"]).content.decode()
    assert "Mean ± sd" in page
    assert "Seed 42" in page
    listed = signed_in.get("/submissions/").content.decode()
    assert "2 seeds" in listed
    assert " ± " in listed


def test_each_seeds_run_can_be_downloaded(demo: Dataset, api: Api, signed_in: Client) -> None:
    answer = api.submit(file=seeds(0, 1), seed="a b,c").body
    work()
    jobs = api.get(f"submissions/{answer['id']}/").body["jobs"]
    texts = []
    for job in jobs:
        response = signed_in.get(job["run_url"])
        assert response.status_code == 200
        texts.append(gzip.decompress(b"".join(response)).decode())  # type: ignore[arg-type]
    assert texts[0] != texts[1]
    assert "demo.a-b.my-system." in signed_in.get(jobs[0]["run_url"])["Content-Disposition"]
    assert signed_in.get(f"/submissions/{answer['id']}/runs/demo/").status_code == 404


def test_runs_of_similar_seeds_have_different_names(demo: Dataset, api: Api, signed_in: Client) -> None:
    answer = api.submit(file=seeds(0, 1, 2), seed="0.1,01,2").body
    work()
    jobs = api.get(f"submissions/{answer['id']}/").body["jobs"]
    names = [signed_in.get(job["run_url"])["Content-Disposition"].partition("demo.")[2].split(".")[0] for job in jobs]
    assert re.fullmatch(r"01-\d+ 01-\d+ 2", " ".join(names))
    assert len(set(names)) == 3


def test_a_set_is_withdrawn_and_shown_as_one(demo: Dataset, api: Api) -> None:
    identifier = api.submit(file=seeds(0, 1), public="false").body["id"]
    work()
    entry = Entry.objects.get()
    assert entry.visibility == Entry.Visibility.PRIVATE
    api.post(f"submissions/{identifier}/visibility/", public="true")
    entry.refresh_from_db()
    assert entry.visibility == Entry.Visibility.PUBLIC
    api.post(f"submissions/{identifier}/withdraw/", reason="wrong seeds")
    entry.refresh_from_db()
    assert entry.visibility == Entry.Visibility.WITHDRAWN
    again = api.submit(file=seeds(0, 1))
    assert "was withdrawn" in again.problem("already_submitted")["message"]


def test_others_may_build_on_all_runs_of_a_set(demo: Dataset, api: Api) -> None:
    identifier = api.submit(file=seeds(0, 1)).body["id"]
    work()
    api.post(f"submissions/{identifier}/reusable/", reusable="true")
    entry = Entry.objects.get()
    assert [seed.evaluation.run.reusable for seed in entry.seeds.all()] == [True, True]


def test_sets_on_two_datasets_share_labels_given_once(api: Api, tmp_path: Path) -> None:
    make_collection(tmp_path, "one")
    make_collection(tmp_path, "two")
    answer = api.submit(dataset=["one", "one", "two", "two"], file=seeds(0, 1, 2, 3), seed="a,b")
    assert answer.status == 201, answer.body
    assert labels() == ["a", "b", "a", "b"]
