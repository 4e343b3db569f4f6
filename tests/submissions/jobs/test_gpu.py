"""Checkpoints and container images on a GPU, in the sandbox. These tests are skipped on machines without CUDA."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from evaluation.efficiency.hardware import accessible_gpus, own_gpu
from leaderboard.models import Dataset, User
from submissions.jobs.runner import drain_queue
from submissions.models import Job, State
from submissions.sandbox.backends import Backend
from tests.evaluation.images.builder import docker_archive, layer, python_layer
from tests.submissions.clients import Answer, Api, upload
from tests.submissions.model_jobs import make_image_site
from tests.submissions.models import static_archive
from tests.submissions.sandbox.images import BATCH, PYTHON, SERVER
from tests.submissions.workers import announce

pytestmark = pytest.mark.django_db

#: Libraries of glibc that the driver needs and Python does not.
LIBRARIES = [
    Path(f"/lib/{platform.machine()}-linux-gnu", name) for name in ("libdl.so.2", "libpthread.so.0", "librt.so.1")
]
#: Program that multiplies on the GPU with the driver alone, through a kernel in PTX.
MULTIPLY = r'''
import ctypes
driver = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    status = getattr(driver, name)(*arguments)
    assert status == 0, (name, status)

PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry multiply(.param .u64 address) {
  .reg .u64 %p; .reg .u32 %v;
  ld.param.u64 %p, [address]; cvta.to.global.u64 %p, %p;
  ld.global.u32 %v, [%p]; mul.lo.u32 %v, %v, 6; st.global.u32 [%p], %v; ret;
}
"""
device, count, context, module, function = (ctypes.c_int(), ctypes.c_int(), *(ctypes.c_void_p() for _ in range(3)))
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
assert count.value == 1, count
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(function), module, b"multiply")
memory, value = ctypes.c_uint64(), ctypes.c_uint32(7)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4))
call("cuMemcpyHtoD_v2", memory, ctypes.byref(value), ctypes.c_size_t(4))
arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(memory), ctypes.c_void_p))
call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
call("cuMemcpyDtoH_v2", ctypes.byref(value), memory, ctypes.c_size_t(4))
assert value.value == 42, value
'''


@pytest.fixture
def site(bubblewrap: Backend, own_lock: None, settings: Any, tmp_path: Path, alice: User) -> Dataset:
    """Return a dataset on a site with a GPU worker that runs images of Alice's team."""
    if not accessible_gpus():
        pytest.skip("no NVIDIA GPU is accessible")
    if reason := bubblewrap.cuda_reason:
        pytest.fail(f"The GPU cannot be used in the sandbox: {reason}")
    dataset = make_image_site(settings, tmp_path, alice)
    announce("gpu-worker", "gpu")
    return dataset


def run_on_gpu(answer: Answer) -> Job:
    assert answer.status == 201, answer.body
    drain_queue("gpu", "gpu-worker")
    return Job.objects.get(submission=answer.body["id"])


def test_a_checkpoint_is_measured_on_the_gpu(site: Dataset, api: Api, the_library_checks: None) -> None:
    archive = upload(static_archive(), "model.zip")
    job = run_on_gpu(api.post("submissions/", dataset="small", kind="model", system="Static", engine="dense",
                              checkpoint=archive, device="auto"))  # fmt: skip
    assert (job.queue, job.state) == ("gpu", State.DONE), job.log
    assert job.entry is not None
    measurement = job.entry.measurements.get()
    assert measurement.hardware.name.startswith(own_gpu().name)
    assert measurement.figures["latency_ms"]["mean"] > 0


@pytest.mark.parametrize(
    ("engine", "program"),
    [("container", BATCH), ("container-embeddings", SERVER), ("container-rerank", SERVER)],
    ids=["batch", "embeddings", "rerank"],
)
def test_an_image_computes_on_the_gpu(site: Dataset, api: Api, tmp_path: Path, engine: str, program: str) -> None:
    files = {"app/main.py": (MULTIPLY + program).encode(), **{str(path)[1:]: path.read_bytes() for path in LIBRARIES}}
    image = docker_archive(tmp_path / "image.tar", [python_layer(), layer(files)], Cmd=[PYTHON, "/app/main.py"])
    archive = upload(image.read_bytes(), "image.tar")
    job = run_on_gpu(api.post("submissions/", dataset="small", kind="model", system="Image", engine=engine,
                              checkpoint=archive, device="gpu"))  # fmt: skip
    assert (job.queue, job.state) == ("gpu", State.DONE), job.log
    assert job.entry is not None
