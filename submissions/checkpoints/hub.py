"""Downloads of models from the Hugging Face Hub and of images from registries, in separate processes."""

import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from evaluation.archives.hub import COMMIT, NAME
from evaluation.checkpoints.findings import CODES
from evaluation.core.problems import PROBLEM_CODES, InvalidContent, Problem, ProblemCode
from evaluation.images.archive import DIGEST
from submissions.core.errors import Refused
from submissions.models import Switch, is_on
from submissions.sandbox.processes import process_mark

HUB_DOWNLOADS_OFF = ProblemCode(
    "hub_downloads_off", "This site does not download models from the Hugging Face Hub, or images from registries.",
    "Upload the checkpoint or image as an archive.",
)  # fmt: skip
HUB_NAME = ProblemCode(
    "hub_name", "This is not the name of a model on the Hugging Face Hub.", "Use owner/name.",
    "sentence-transformers/all-MiniLM-L6-v2",
)  # fmt: skip
HUB_COMMIT = ProblemCode("hub_commit", "This is not a commit. Branches and tags can change.",
    "Use all 40 hexadecimal digits.")  # fmt: skip
IMAGE_NAME = ProblemCode(
    "image_name", "This is not the name of an image in a registry with its digest. Tags can change.",
    "Use REGISTRY/NAME@sha256:DIGEST.", "ghcr.io/owner/name@sha256:…",
)  # fmt: skip

logger = logging.getLogger(__name__)

#: Environment variables passed to the download process: the Hub's address and the network settings.
_ENVIRONMENT = (
    "PATH", "LANG", "HF_ENDPOINT", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
_IMAGE_PROCESS = "submissions.checkpoints.registry_download"
#: Timeout in seconds, enough for the largest checkpoint at 5 MB per second.
_PATIENCE_SECONDS = 7200
#: Pause in seconds between checks whether the download is still wanted.
_CHECK_SECONDS = 1.0
#: Registry and name of an image without its digest. Names follow the OCI distribution specification.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(rf"(?=[^/]*[.:])[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{{1,5}})?/{_PART}(?:/{_PART})*")
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """A model on the Hugging Face Hub, pinned to a commit, or an image in a registry, pinned to a digest."""

    name: str
    commit: str

    @property
    def is_image(self) -> bool:
        return ":" in self.commit


def parse_image(text: str) -> PinnedModel:
    """Parse an image's name, REGISTRY/NAME@sha256:DIGEST. Raises Refused if it is malformed."""
    name, _, digest = text.strip().rpartition("@")
    if len(name) > _MAX_NAME or not (_IMAGE.fullmatch(name) and DIGEST.fullmatch(digest)):
        raise Refused.for_problem(
            IMAGE_NAME,
            f"“{text[:300]}” is not the name of an image in a registry with its digest. Tags can change.",
            "Use REGISTRY/NAME@sha256:DIGEST without a tag, as docker push prints the digest. Docker Hub is docker.io, "
            "and its official images are docker.io/library/NAME.",
        )
    return PinnedModel(name, digest)


def fetches() -> bool:
    """Return whether this site downloads models and images, as set in the environment or in the admin."""
    return bool(settings.HUB_DOWNLOADS) or is_on(Switch.Name.HUB_DOWNLOADS)


def refuse_download(model: PinnedModel) -> None:
    """Raise Refused if the site does not download models, or the name or commit of a model is malformed."""
    if not fetches():
        message = "This site does not download models from the Hugging Face Hub."
        hint = f"Download {model.name} and upload it as an archive, written by python -m evaluation pack FOLDER."
        if model.is_image:
            message = "This site does not download images from registries."
            hint = f"Run docker pull {model.name}@{model.commit}, and upload the archive that docker save writes."
        raise Refused.for_problem(HUB_DOWNLOADS_OFF, message, hint)
    if model.is_image:
        return
    if not NAME.fullmatch(model.name):
        raise Refused.for_problem(
            HUB_NAME,
            f"“{model.name}” is not the name of a model on the Hugging Face Hub.",
            "Use owner/name, such as sentence-transformers/all-MiniLM-L6-v2.",
        )
    if not COMMIT.fullmatch(model.commit):
        raise Refused.for_problem(
            HUB_COMMIT,
            f"“{model.commit}” is not a commit. Branches and tags can change.",
            "Use all 40 hexadecimal digits, which the Hub shows under Files and versions, History.",
        )


def fetch(model: PinnedModel, folder: Path, while_waiting: Callable[[], object]) -> list[str]:
    """Download a model's files into the empty `folder`, and return the names of pickled heads that were skipped.

    A separate process downloads them, without secrets in its environment. `while_waiting` is called once per second,
    and may raise to end it. Raises Refused like `refuse_download`, and
    InvalidContent if the model does not exist, is too large, or the Hub does not respond.
    """
    refuse_download(model)
    words = [model.name, model.commit, str(folder), str(settings.CHECKPOINT_PIECES_LIMIT_BYTES)]
    answer = _run_process("submissions.checkpoints.hub_download", words, while_waiting)
    if code := answer.get("code", "" if "bytes" in answer else "hub_unreachable"):
        message = answer.get("message", "the download did not finish")
        raise InvalidContent.build(Problem("error", code, 1, f"{model.name}: {message}", CODES[code]))
    return list(answer["heads"])


def fetch_image(image: PinnedModel, archive: Path, while_waiting: Callable[[], object]) -> None:
    """Download an image to an OCI archive, resuming an interrupted download.

    A separate process downloads it, like `fetch`. Raises Refused like `refuse_download`, InvalidContent if the image
    does not exist, is not public, too large, or damaged, or the registry does not respond, and RuntimeError if this
    worker cannot store it or it does not arrive in time.
    """
    refuse_download(image)
    limits = map(str, (settings.IMAGE_BYTES, settings.DISK_RESERVE_BYTES))
    answer = _run_process(_IMAGE_PROCESS, [image.name, image.commit, str(archive), *limits], while_waiting)
    if not answer:
        raise RuntimeError("The download did not finish. The next attempt continues it.")
    if "code" in answer:
        code = PROBLEM_CODES[answer["code"]]
        raise code.refusal(f"{image.name}: {answer['message']}", code.remedy)


def _run_process(module: str, words: Sequence[str], while_waiting: Callable[[], object]) -> dict[str, Any]:
    """Run a download process and return its result, which is empty if it failed or timed out.

    `while_waiting` is called once per second. If it raises, the process is ended.
    """
    environment = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}
    environment |= {"PYTHONPATH": str(settings.BASE_DIR), **process_mark()}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with subprocess.Popen(
        [sys.executable, "-s", "-P", "-m", module, *words],
        env=environment,
        cwd=settings.BASE_DIR,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            while time.monotonic() < deadline:
                while_waiting()
                with suppress(subprocess.TimeoutExpired):
                    output, complaints = process.communicate(timeout=_CHECK_SECONDS)
                    break
            else:
                return {}
        finally:
            process.kill()
    try:
        return dict(json.loads(output))
    except ValueError:
        logger.error("download process failed: %s", complaints[-2000:])
        return {}
