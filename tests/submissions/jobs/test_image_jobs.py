"""Container images from upload to board, in the sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from evaluation.core.problems import PROBLEM_CODES
from evaluation.images.tira import INPUT, OUTPUT
from leaderboard.models import Dataset, Entry, Run, Team, User, Visibility
from submissions.jobs.checkpoints.running import sweep_work
from submissions.models import Checkpoint, QuotaUse, State
from submissions.sandbox.backends import Backend
from tests.evaluation.images.builder import docker_archive, layer, python_layer
from tests.pages import one_line
from tests.submissions.clients import Answer, Api, upload
from tests.submissions.model_jobs import make_image_site, run_submitted
from tests.submissions.sandbox.images import BATCH, PYTHON, SERVER, write_image

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    folder, written = tmp_path_factory.mktemp("images"), dict[tuple[str, ...], bytes]()

    def archive(program: str, **labels: str) -> bytes:
        key = (program, *labels.values())
        if key not in written:
            written[key] = write_image(folder / "image.tar", program, **labels).read_bytes()
        return written[key]

    return archive


@pytest.fixture
def open_set(bubblewrap: Backend, own_lock: None, settings: Any, tmp_path: Path, alice: User) -> Dataset:
    """A collection with documents, a site that runs images, and Alice's approved team."""
    return make_image_site(settings, tmp_path, alice)


def submit(api: Api, archive: bytes, dataset: str = "small", **fields: Any) -> Answer:
    values = {"engine": "container", "system": "My image", "kind": "model", **fields}
    if archive:
        values["checkpoint"] = upload(archive, "image.tar")
    return api.post("submissions/", dataset=dataset, **values)


def test_a_batch_image_reaches_the_board(
    open_set: Dataset, api: Api, signed_in: Client, images: Callable[..., bytes], settings: Any
) -> None:
    job = run_submitted(submit(api, images(BATCH), architecture="lexical"))
    assert job.state == State.DONE, job.log
    assert job.entry is not None
    assert job.entry.evaluation is not None
    assert job.entry.provenance == Entry.Provenance.MEASURED
    assert job.entry.system.architecture == "lexical"
    assert job.entry.evaluation.run.lines == 40
    assert job.entry.facts["command_seconds"] > 0
    checkpoint = Checkpoint.objects.get(kind="container")
    digest = checkpoint.description["image"]["digest"]
    for address in (f"/submissions/{job.submission_id}/", f"/systems/{job.entry.system.slug}/"):
        assert digest in one_line(signed_in.get(address).content.decode())
    assert api.get(f"submissions/{job.submission_id}/").body["checkpoint"]["digest"] == digest
    (recipe,) = api.get(f"systems/{job.entry.system.slug}/recipes/").body
    assert recipe["checkpoint"].items() >= {"image": digest, "sha256": checkpoint.model_sha256, "port": 8000}.items()
    again = submit(api, b"", checkpoint_id=str(checkpoint.pk), engine="container", configuration="again")
    assert again.status == 201, again.body
    assert not [path.name for path in (settings.VAR / "work").iterdir() if not path.name.startswith("image-")]


def test_server_images_are_indexed_searched_and_measured(
    open_set: Dataset, api: Api, images: Callable[..., bytes]
) -> None:
    for engine in ("container-embeddings", "container-rerank"):
        job = run_submitted(submit(api, images(SERVER), engine=engine, system=engine))
        assert job.state == State.DONE, job.log
        assert job.entry is not None
        measurement = job.entry.measurements.first()
        if measurement is None:  # on a machine that is too busy to time 200 searches
            assert "The server was not timed: too few searches" in job.log
            continue
        assert measurement.figures["latency_ms"]["mean"] > 0
        assert measurement.figures["peak_memory_bytes"] > 10 << 20
        assert measurement.figures["flops_per_document"] is None
        assert measurement.figures["parameters"] is None


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        ("raise SystemExit('no such model')", "image_failed", "no such model"),
        ("print('done')", "image_no_run", "run.txt"),
        (f"open('{OUTPUT}/run.txt', 'w').write('q1 Q0 nowhere 1 1.0 image\\n')", "invalid_run", "unknown_documents"),
        (f"import os; os.symlink('/etc/passwd', '{OUTPUT}/run.txt')", "image_no_run", "run.txt"),
    ],
)
def test_a_failing_image_gets_one_message(
    program: str, code: str, words: str, open_set: Dataset, api: Api, images: Callable[..., bytes]
) -> None:
    job = run_submitted(submit(api, images(program)))
    assert (job.state, job.error_code) == (State.REJECTED, code), job.log
    assert words in f"{job.report} {job.log}"
    assert [problem["severity"] for problem in job.report["problems"]].count("error") == 1


def test_messages_of_an_image_stay_hidden_with_the_queries(
    open_set: Dataset, api: Api, images: Callable[..., bytes]
) -> None:
    Dataset.objects.update(queries_visibility=Visibility.CURATORS)
    job = run_submitted(submit(api, images("raise SystemExit('no such model')")))
    assert job.error_code == "image_failed"
    assert "no such model" not in f"{job.report} {job.log}"
    assert "public texts" in str(job.log)


@pytest.mark.parametrize(
    ("engine", "program"), [("container", BATCH), ("container-embeddings", SERVER), ("container-rerank", SERVER)]
)
def test_an_image_reaches_a_hidden_board(
    engine: str, program: str, open_set: Dataset, api: Api, images: Callable[..., bytes]
) -> None:
    hide()
    job = run_submitted(submit(api, images(program), engine=engine))
    assert job.state == State.DONE, job.log
    assert job.entry is not None


def hide(**quota: int) -> None:
    """Make the dataset's judgments and queries hidden, and approve all teams."""
    Dataset.objects.update(hidden=True, queries_visibility=Visibility.CURATORS, **quota)
    Team.objects.update(approved_at=timezone.now())


#: Start of a program that reads the queries, which contain "word common", and opens the run.
_READ = f"""import json, sys
queries = [json.loads(line) for line in open("{INPUT}/queries.jsonl")]
text = " / ".join(query["query"] for query in queries)
run = open("{OUTPUT}/run.txt", "w")
"""
#: Programs that copy the queries to where messages quote or show a run or its image, with the state of their job.
_LEAKS = {
    "lines": ("run.write(text + '\\n')", State.REJECTED),
    "query ids": ("run.write(text.replace(' ', '_') + ' Q0 d1 1 1.0 t\\n')", State.REJECTED),
    "document ids": (
        "[run.write(q['qid'] + ' Q0 ' + q['query'].replace(' ', '_') + ' 1 1.0 t\\n') for q in queries]",
        State.REJECTED,
    ),
    "keys of JSON": ("run.write(json.dumps({text: {'d1': 1}}))", State.REJECTED),
    "metadata and tags": (
        "run.write('# ir_metadata.start\\n# method: ' + text.replace(' / ', ' ') + '\\n# ir_metadata.end\\n')\n"
        "[run.write(q['qid'] + ' Q0 d1 1 1.0 ' + q['query'].replace(' ', '_') + '\\n') for q in queries]\n"
        "run.write(text.replace(' ', '_') + ' Q0 d1 1 1.0 t\\n')",
        State.DONE,
    ),
    "messages and exit status": ("print('bwrap: ' + text, file=sys.stderr); sys.exit(77)", State.REJECTED),
}


def test_hidden_queries_do_not_leave_in_reports(
    open_set: Dataset,
    api: Api,
    signed_in: Client,
    images: Callable[..., bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    hide(daily_quota=10)
    for number, (name, (program, state)) in enumerate(_LEAKS.items(), 1):
        job = run_submitted(submit(api, images(_READ + program), system=name))
        assert job.state == state, (name, job.report, job.log)
        shown = [job.report, job.log, signed_in.get(f"/submissions/{job.submission_id}/").content.decode()]
        shown += [api.get(f"submissions/{job.submission_id}/").body, caplog.text, [*Run.objects.values()]]
        for text in map(str, shown):
            assert not any(words in text for words in ("word common", "word_common", "status 77")), (name, text)
        for problem in job.report["problems"]:
            assert problem["message"] == PROBLEM_CODES[problem["code"]].meaning
        # The image has read the queries and chosen how to end.
        assert QuotaUse.objects.filter(kind="submission", refunded_at=None).count() == number
    assert not QuotaUse.objects.filter(kind="refusal").exists()


def test_images_need_the_switch_and_an_approved_team(
    open_set: Dataset, api: Api, settings: Any, signed_in: Client, images: Callable[..., bytes]
) -> None:
    archive = images("print()")
    Team.objects.update(runs_containers=False)
    assert submit(api, archive).problem("team_runs_no_containers")
    assert "not approved" in signed_in.get("/submit/model/?engine=container").content.decode()
    settings.CONTAINERS = False
    assert submit(api, archive).problem("containers_off")
    assert "engine=container" not in signed_in.get("/submit/model/").content.decode()
    assert not Checkpoint.objects.exists()


def test_checks_read_images_of_approved_teams_only(
    open_set: Dataset, api: Api, settings: Any, signed_in: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("submissions.checkpoints.service.validate_image", lambda *arguments: pytest.fail("was read"))
    for code, words in (("team_runs_no_containers", "is missing for"), ("containers_off", "does not run container")):
        Team.objects.update(runs_containers=False)
        archive = upload(b"not read", "image.tar")
        answer = api.post("check/", kind="model", engine="container", checkpoint=archive)
        assert answer.status == 400
        assert answer.problem(code)
        fields = {"engine": "container", "checkpoint": upload(b"not read", "image.tar"), "action": "check"}
        assert words in one_line(signed_in.post("/submit/model/?engine=container", fields).content.decode())
        settings.CONTAINERS = False


def test_a_working_folder_below_tmp_exists(open_set: Dataset, api: Api, tmp_path: Path) -> None:
    program = "import os; assert os.getcwd() == '/tmp/app/data'; open('x', 'w').write('x')\n" + BATCH
    layers = [python_layer(), layer({"app/main.py": program.encode(), "tmp/app/data/x": b""})]
    path = docker_archive(
        tmp_path / "i.tar", layers, Entrypoint=[PYTHON], Cmd=["/app/main.py"], WorkingDir="/tmp/app/data"
    )
    job = run_submitted(submit(api, path.read_bytes()))
    assert job.state == State.DONE, job.log


def test_a_working_folder_that_a_mount_hides_is_the_fault_of_the_image(
    open_set: Dataset, api: Api, tmp_path: Path
) -> None:
    path = docker_archive(tmp_path / "i.tar", [python_layer()], Entrypoint=[PYTHON], WorkingDir="/proc/nowhere")
    job = run_submitted(submit(api, path.read_bytes()))
    assert (job.state, job.error_code) == (State.REJECTED, "image_failed"), job.log


def test_an_image_that_would_fill_the_disk_is_not_unpacked(
    open_set: Dataset, api: Api, settings: Any, images: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = settings.DISK_RESERVE_BYTES + (1 << 10)  # too little for Python
    monkeypatch.setattr("submissions.jobs.checkpoints.embeddings.free_bytes", lambda folder: free)
    job = run_submitted(submit(api, images(BATCH)))
    assert (job.state, job.attempts) == (State.QUEUED, 0)
    assert "of disk space is needed for the image; 1 KiB is free. The job waits for disk space." in job.log
    assert not list((settings.VAR / "work").glob("image-*"))


def test_an_incomplete_unpacked_image_is_unpacked_again(
    open_set: Dataset, api: Api, settings: Any, images: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal that is interrupted leaves no folder with the image's name."""
    work = settings.VAR / "work"
    assert run_submitted(submit(api, images(BATCH))).state == State.DONE
    (folder,) = work.glob("image-*")
    (folder / "config.json").unlink()
    (folder / "root" / "app" / "main.py").unlink()
    checkpoint = str(Checkpoint.objects.get().pk)
    job = run_submitted(submit(api, b"", checkpoint_id=checkpoint, configuration="again"))
    assert job.state == State.DONE, job.log
    os.utime(folder, (1, 1))

    def interrupt(path: Path) -> None:
        assert not folder.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("submissions.jobs.checkpoints.running.remove", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sweep_work()
    assert not folder.exists()


def test_a_bad_image_is_refused_and_leaves_nothing(
    open_set: Dataset, api: Api, settings: Any, images: Callable[..., bytes]
) -> None:
    before = {*settings.VAR.rglob("*")}
    damaged = images("print()").replace(b"print()", b"PRINT()")
    answer = submit(api, damaged)
    assert answer.status == 400
    assert "image_digest" in str(answer.body)
    labelled = images("print('x')", **{"org.runboard.interface": "rerank"})
    assert "container-rerank" in submit(api, labelled).problem("invalid_parameters")["message"]
    files = {path for path in {*settings.VAR.rglob("*")} - before if path.is_file() and path.suffix != ".lock"}
    assert not [path for path in files if path.stat().st_size > 1 << 20 and "checkpoints" not in path.parts]
