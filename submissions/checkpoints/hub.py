"""Models named on the hub instead of sent: which names are understood, whether this site fetches any, and fetching."""

import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from evaluation.archives.hub import COMMIT, NAME
from evaluation.checkpoints.findings import CODES
from evaluation.core.problems import InvalidContent, Problem, ProblemCode
from submissions.core.errors import Refused
from submissions.models import Switch, is_on

HUB_DOWNLOADS_OFF = ProblemCode("hub_downloads_off", "This site fetches no models from the hub.",
    "Upload the checkpoint as an archive.")  # fmt: skip
HUB_NAME = ProblemCode("hub_name", "Not the name of a model on the hub.", "owner/name",
    "sentence-transformers/all-MiniLM-L6-v2")  # fmt: skip
HUB_COMMIT = ProblemCode("hub_commit", "Not a commit: a branch or tag may point elsewhere tomorrow.",
    "All 40 hexadecimal digits.")  # fmt: skip

logger = logging.getLogger(__name__)

#: What the process that fetches is told of this one's environment: where the hub is, and how to get there.
_ENVIRONMENT = (
    "PATH", "LANG", "HF_ENDPOINT", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
#: Seconds for the largest checkpoint there may be, at 5 MB a second.
_PATIENCE_SECONDS = 7200


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model on the hub at one commit, which a branch's name would not pin."""

    name: str
    commit: str


def fetches() -> bool:
    """Return whether this site fetches models: where its operator said so in the environment, or in the admin."""
    return bool(settings.HUB_DOWNLOADS) or is_on(Switch.Name.HUB_DOWNLOADS)


def refuse_hub(model: HubModel) -> None:
    """Raise Refused where the site fetches nothing, or the name or commit is not one."""
    if not fetches():
        raise Refused.of(
            HUB_DOWNLOADS_OFF,
            "This site fetches no models from the hub: its operator turns that on with HUB_DOWNLOADS=1 or in the "
            "admin.",
            f"Download {model.name} yourself and upload it: python -m evaluation pack FOLDER writes the archive.",
        )
    if not NAME.fullmatch(model.name):
        raise Refused.of(
            HUB_NAME,
            f"“{model.name}” does not name a model on the hub.",
            "Give it as owner/name, such as sentence-transformers/all-MiniLM-L6-v2.",
        )
    if not COMMIT.fullmatch(model.commit):
        raise Refused.of(
            HUB_COMMIT,
            f"“{model.commit}” is not a commit: a branch or tag may point elsewhere tomorrow.",
            "Give all 40 hexadecimal digits; the hub shows them under Files and versions, History.",
        )


def fetch(model: HubModel, folder: Path) -> list[str]:
    """Fetch a model's files into the empty `folder`, for a worker to validate; return the pickled heads left out.

    A process of its own fetches them, with an environment that has the hub's address, and no secrets. Raises Refused as
    `refuse_hub` does, and InvalidContent if the hub has no such model, or a larger one, or does not answer.
    """
    refuse_hub(model)
    module = "submissions.checkpoints.hub_download"
    limit = str(settings.CHECKPOINT_PIECES_LIMIT_BYTES)
    words = [sys.executable, "-s", "-P", "-m", module, model.name, model.commit, str(folder), limit]
    environment = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}
    environment["PYTHONPATH"] = str(settings.BASE_DIR)
    try:
        done = subprocess.run(
            words, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=_PATIENCE_SECONDS,
        )  # fmt: skip
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        answer = {"code": "hub_unreachable", "message": "the hub took too long"}
    except ValueError:
        logger.error("the process that fetches from the hub failed: %s", done.stderr[-2000:])
        answer = {"code": "hub_unreachable", "message": "fetching failed"}
    if "bytes" in answer:
        return list(answer["heads"])
    code = str(answer["code"])
    raise InvalidContent.of(Problem("error", code, 1, f"{model.name}: {answer['message']}", CODES[code]))
