"""Downloads of models from the Hugging Face Hub: accepted names, the site's setting, and the download process."""

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

HUB_DOWNLOADS_OFF = ProblemCode(
    "hub_downloads_off", "This site does not download models from the Hugging Face Hub.",
    "Upload the checkpoint as an archive.",
)  # fmt: skip
HUB_NAME = ProblemCode(
    "hub_name", "This is not the name of a model on the Hugging Face Hub.", "Use owner/name.",
    "sentence-transformers/all-MiniLM-L6-v2",
)  # fmt: skip
HUB_COMMIT = ProblemCode("hub_commit", "This is not a commit. Branches and tags can change.",
    "Use all 40 hexadecimal digits.")  # fmt: skip

logger = logging.getLogger(__name__)

#: Environment variables passed to the download process: the Hub's address and the network settings.
_ENVIRONMENT = (
    "PATH", "LANG", "HF_ENDPOINT", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
#: Timeout in seconds, enough for the largest checkpoint at 5 MB per second.
_PATIENCE_SECONDS = 7200


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model on the Hugging Face Hub, pinned to a commit."""

    name: str
    commit: str


def fetches() -> bool:
    """Return whether this site downloads models, as set in the environment or in the admin."""
    return bool(settings.HUB_DOWNLOADS) or is_on(Switch.Name.HUB_DOWNLOADS)


def refuse_hub(model: HubModel) -> None:
    """Raise Refused if the site does not download models, or the name or commit is malformed."""
    if not fetches():
        raise Refused.for_problem(
            HUB_DOWNLOADS_OFF,
            "This site does not download models from the Hugging Face Hub.",
            f"Download {model.name} and upload it as an archive, written by python -m evaluation pack FOLDER.",
        )
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


def fetch(model: HubModel, folder: Path) -> list[str]:
    """Download a model's files into the empty `folder`, and return the names of pickled heads that were skipped.

    A separate process downloads them, without secrets in its environment. Raises Refused like `refuse_hub`, and
    InvalidContent if the model does not exist, is too large, or the Hub does not respond.
    """
    refuse_hub(model)
    module = "submissions.checkpoints.hub_download"
    limit = str(settings.CHECKPOINT_PIECES_LIMIT_BYTES)
    words = [sys.executable, "-s", "-P", "-m", module, model.name, model.commit, str(folder), limit]
    environment = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}
    environment["PYTHONPATH"] = str(settings.BASE_DIR)
    try:
        process = subprocess.run(
            words, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=_PATIENCE_SECONDS,
        )  # fmt: skip
        answer = json.loads(process.stdout)
    except subprocess.TimeoutExpired:
        answer = {"code": "hub_unreachable", "message": "the Hugging Face Hub did not finish in time"}
    except ValueError:
        logger.error("download process failed: %s", process.stderr[-2000:])
        answer = {"code": "hub_unreachable", "message": "the download failed"}
    if "bytes" in answer:
        return list(answer["heads"])
    code = str(answer["code"])
    raise InvalidContent.build(Problem("error", code, 1, f"{model.name}: {answer['message']}", CODES[code]))
