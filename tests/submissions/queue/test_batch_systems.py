"""Workers as jobs of a batch system: an array of Slurm through submitit, and a Job of Kubernetes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings as site

from leaderboard.management.commands.worker import Command
from submissions.models import Job, Worker
from tests.factories import make_dataset, make_job
from tests.servers import processes

ROOT = Path(site.BASE_DIR)
KUBERNETES = ROOT / "docker/kubernetes"


def rendered(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The one Job, which keeps the rules."""
    (job,) = objects
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert "completions" not in job["spec"]  # it is complete when those that are there have ended
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program, script, command, *words = container["command"]
    assert (program, script, command) == ("python", "manage.py", "worker")
    options = Command().create_parser("manage.py", "worker").parse_args(words)
    assert (options.queue, options.until_idle) == ("gpu", 300)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    listed = set(re.findall(r"`([A-Z_]+)`", (ROOT / "docs/operations.md").read_text()))
    given = {each["name"]: each["value"] for each in container["env"]}
    assert set(given) <= listed
    assert (given["PRIVATE_STORAGE"], given["SECRET_KEY"]) == ("off", "none")
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert set(mounted) == {each["name"] for each in pod["volumes"]}
    assert set(mounted.values()) == {"/data", "/tmp", "/cache"}
    return job


def test_the_job_of_kubernetes_keeps_the_rules() -> None:
    base = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    job = rendered([yaml.safe_load((KUBERNETES / name).read_text()) for name in base["resources"]])
    images = {image["name"] for image in base["images"]}
    assert {each["image"] for each in job["spec"]["template"]["spec"]["containers"]} == images


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_kubectl_renders_the_base() -> None:
    done = subprocess.run(["kubectl", "kustomize", KUBERNETES], capture_output=True, text=True, check=True, timeout=60)
    job = rendered(list(yaml.safe_load_all(done.stdout)))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "runboard-gpu:latest"


@pytest.mark.long
@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_an_array_of_workers_does_what_waits_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in docs/scaling.md, by submitit's executor for this machine."""
    submitit = pytest.importorskip("submitit")
    dataset = make_dataset()
    jobs = [make_job(dataset, kind=Job.Kind.CERTAINTY, queue=Job.Queue.CPU) for _ in range(4)]
    environment = {"REDIS_URL": "redis://127.0.0.1:1/0", "TEST_TIME_SCALE": "0.1", "SANDBOX": "none"}
    for name, value in {**environment, **processes.on_test_database()}.items():
        monkeypatch.setenv(name, value)
    executor = submitit.LocalExecutor(folder=tmp_path / "jobs")
    executor.update_parameters(timeout_min=3)
    words = ["--queue", "cpu", "--until-idle", "2", "--device"]
    command = [sys.executable, "manage.py", "worker", *words]
    array = executor.map_array(
        submitit.helpers.CommandFunction(command, cwd=ROOT), [f"cpu:{number}" for number in range(2)]
    )
    try:
        for each in array:
            each.result()
    finally:
        for each in array:
            each.cancel(check=False)
    assert Worker.objects.count() == 2
    ended = Job.objects.filter(pk__in=[job.pk for job in jobs])
    assert not ended.filter(finished_at=None).exists(), list(ended.values("state", "log"))
    assert len({job.worker.rpartition(":")[0] for job in ended}) <= 2
    Worker.objects.all().delete()
