"""Images in a registry on this machine, from the request to the board."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from leaderboard.models import Dataset, User
from submissions.checkpoints import hub
from submissions.models import Checkpoint, Job, State
from submissions.sandbox.backends import Backend
from tests.evaluation.images.builder import image_config, layer, python_layer
from tests.pages import one_line
from tests.servers.certificates import certificate_for_localhost
from tests.servers.registry import REPOSITORY, FakeRegistry, serving
from tests.submissions.clients import Answer, Api
from tests.submissions.model_jobs import make_image_site, run_submitted
from tests.submissions.sandbox.images import BATCH, PYTHON

pytestmark = pytest.mark.django_db


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[FakeRegistry]:
    """A registry that the site may download from, although it is on this machine."""
    settings.HUB_DOWNLOADS = True
    monkeypatch.setattr(hub, "_IMAGE_PROCESS", "tests.servers.loopback_download")
    monkeypatch.setenv("SECRET_KEY", "not for the registry")
    with serving(certificate_for_localhost(tmp_path), monkeypatch) as fake:
        yield fake


@pytest.fixture
def open_set(
    bubblewrap: Backend, own_lock: None, settings: Any, tmp_path: Path, alice: User, registry: FakeRegistry
) -> Dataset:
    """A collection with documents, and Alice's approved team."""
    return make_image_site(settings, tmp_path, alice)


def push(registry: FakeRegistry, program: str = BATCH, **labels: str) -> str:
    """Add an image with this machine's Python and return its name with its digest."""
    layers = [python_layer(), layer({"app/main.py": program.encode()})]
    config = image_config(layers, Entrypoint=[PYTHON], Cmd=["/app/main.py"], Labels=labels, WorkingDir="/app")
    digest = registry.add(config, [gzip.compress(content, 1, mtime=0) for content in layers])
    return f"{registry.address}/{REPOSITORY}@{digest}"


def submit(api: Api, image: str, **fields: Any) -> Answer:
    values = {"engine": "container", "system": "My image", "architecture": "lexical", "kind": "model", **fields}
    return api.post("submissions/", dataset="small", image=image, **values)


def codes(job: Job) -> list[str]:
    return [problem["code"] for problem in job.report["problems"] if problem["severity"] == "error"]


def test_an_image_in_a_registry_reaches_the_board(
    open_set: Dataset, api: Api, signed_in: Client, registry: FakeRegistry, settings: Any
) -> None:
    registry.asks_token = registry.redirects = True
    image = push(registry)
    name, _, digest = image.partition("@")
    job = run_submitted(submit(api, image))
    assert job.state == State.DONE, job.log
    assert job.entry is not None
    assert job.entry.evaluation is not None
    assert job.entry.evaluation.run.lines == 40
    assert f"Downloading {name} at {digest[:19]} from its registry." in job.log
    checkpoint = Checkpoint.objects.get()
    assert (checkpoint.kind, checkpoint.hub_name, checkpoint.hub_commit) == ("container", name, digest)
    assert checkpoint.description["image"]["digest"] == digest
    assert f"from {name}" in one_line(signed_in.get(f"/systems/{job.entry.system.slug}/").content.decode())
    (recipe,) = api.get(f"systems/{job.entry.system.slug}/recipes/").body
    assert (recipe["checkpoint"]["hub_name"], recipe["checkpoint"]["image"]) == (name, digest)
    assert not list((settings.VAR / "work").glob("pull-*"))

    assert submit(api, image).problem("already_submitted")
    asked = len(registry.asked)
    again = run_submitted(submit(api, image, configuration="again", system="Another system"))
    assert again.state == State.DONE, again.log
    assert len(registry.asked) == asked  # it is downloaded once per team
    assert not any("not for the registry" in str(row) for row in registry.asked)


def test_the_next_job_continues_an_interrupted_download(
    open_set: Dataset, api: Api, registry: FakeRegistry, settings: Any
) -> None:
    image = push(registry)
    digest = max(registry.blobs, key=lambda digest: len(registry.blobs[digest]))
    registry.breaks[digest] = [1_000_000] + [0] * 7
    job = run_submitted(submit(api, image))
    assert codes(job) == ["image_unreachable"], job.log
    assert list((settings.VAR / "work").glob("pull-*"))
    registry.asked.clear()
    job = run_submitted(submit(api, image))
    assert job.state == State.DONE, job.log
    layers = [(path, headers.get("Range")) for _, path, headers in registry.blobs_asked()]
    assert layers[0] == (f"/v2/{REPOSITORY}/blobs/{digest}", "bytes=1000000-")
    assert not list((settings.VAR / "work").glob("pull-*"))


def test_a_download_that_takes_too_long_is_our_failure(
    open_set: Dataset, api: Api, registry: FakeRegistry, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_PATIENCE_SECONDS", 0.0)
    job = run_submitted(submit(api, push(registry)))
    assert job.state == State.QUEUED, job.log  # it is tried again
    assert list((settings.VAR / "work").glob("pull-*"))


def test_a_problem_of_the_registry_gets_one_message(open_set: Dataset, api: Api, registry: FakeRegistry) -> None:
    image = push(registry)
    registry.manifests.clear()
    job = run_submitted(submit(api, image))
    assert (job.state, codes(job)) == (State.REJECTED, ["image_missing"]), job.log
    (problem,) = job.report["problems"]
    assert problem["message"] == (f"{image.partition('@')[0]}: the registry has no image of this name with this digest")
    assert "docker push" in problem["hint"]


def test_a_downloaded_image_is_checked_like_an_upload(
    open_set: Dataset, api: Api, registry: FakeRegistry, settings: Any
) -> None:
    for changes, code in (({"Entrypoint": [], "Cmd": []}, "image_command"), ({"User": "nobody-here"}, "image_command")):
        files = layer({"bin/run": b"#!"})
        digest = registry.add(image_config([files], **changes), [gzip.compress(files)])
        job = run_submitted(submit(api, f"{registry.address}/{REPOSITORY}@{digest}", system=f"System {digest[7:12]}"))
        assert (job.state, codes(job)) == (State.REJECTED, [code]), job.log
    labelled = push(registry, **{"org.runboard.interface": "rerank"})
    job = run_submitted(submit(api, labelled, system="Labelled"))
    assert codes(job) == ["invalid_parameters"], job.log
    assert "container-rerank" in str(job.report)
    settings.IMAGE_BYTES = 1000
    job = run_submitted(submit(api, push(registry, "print()"), system="Large"))
    assert codes(job) == ["image_size"], job.log
    assert not list((settings.VAR / "work").glob("pull-*"))


def test_requests_name_an_image_or_another_model(open_set: Dataset, api: Api, settings: Any) -> None:
    digest = f"sha256:{'a' * 64}"
    image = f"ghcr.io/someone/image@{digest}"
    assert submit(api, "ghcr.io/someone/image:latest").problem("image_name")
    assert submit(api, image, hub_model="a/b", hub_commit="a" * 40).problem("several_models")
    dense = submit(api, image, engine="dense", architecture="dense")
    assert "is a container image" in dense.problem("wrong_checkpoint_kind")["message"]
    assert submit(api, "", hub_model="a/b", hub_commit="a" * 40).problem("wrong_checkpoint_kind")
    settings.HUB_DOWNLOADS = False
    assert "docker pull" in submit(api, image).problem("hub_downloads_off")["hint"]
    settings.CONTAINERS = False
    assert submit(api, image).problem("containers_off")


def test_the_page_takes_an_image_and_shows_its_limit(open_set: Dataset, signed_in: Client, settings: Any) -> None:
    settings.IMAGE_BYTES = 5 * 2**30
    page = one_line(signed_in.get("/submit/model/?engine=container").content.decode())
    assert "You can name a public image in a registry, at most 5 GiB." in page
    fields = {
        "action": "submit", "image": "ghcr.io/someone/image:latest", "dataset": "small", "new-name": "My image",
        "new-architecture": "lexical", "engine": "container", "public": "yes",
    }  # fmt: skip
    sent = one_line(signed_in.post("/submit/model/?engine=container", fields).content.decode())
    assert "“ghcr.io/someone/image:latest” is not the name of an image in a registry" in sent
    signed_in.post("/submit/model/?engine=container", {**fields, "image": f"ghcr.io/a/b@sha256:{'a' * 64}"})
    assert Job.objects.get(kind=Job.Kind.MODEL).payload["hub_commit"] == f"sha256:{'a' * 64}"
    settings.HUB_DOWNLOADS = False
    page = one_line(signed_in.get("/submit/model/?engine=container").content.decode())
    assert "Downloads from registries are disabled on this site." in page
    assert 'name="image"' not in page
    assert "5 GiB" in one_line(signed_in.get("/models/").content.decode())
