"""A system's results in the layout of MTEB's results repository.

`results/<organisation>__<model>/<revision>/<Task>.json` and, beside the tasks, `model_meta.json`.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import URLValidator
from django.utils.text import slugify

from leaderboard.boards.exchange.results import ExchangedResult
from leaderboard.core import anonymity
from leaderboard.models import System
from leaderboard.results.mteb import (
    LANGUAGES,
    MODEL_TYPES,
    NO_DATASET_REVISION,
    NO_REVISION,
    measure_name,
    task_name,
)

#: MTEB's `Licenses` (2.26.24): Hugging Face's spelling.
LICENCES = frozenset({
    "afl-3.0", "apache-2.0", "bsd-3-clause", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-3.0", "cc-by-nc-4.0",
    "cc-by-nc-nd-4.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cc-by-nd-2.1-jp", "cc-by-nd-4.0", "cc-by-sa-3.0",
    "cc-by-sa-4.0", "cc0-1.0", "cdla-sharing-1.0", "eupl-1.2", "gemma", "gpl-3.0", "lgpl", "lgpl-3.0", "mit",
    "mpl-2.0", "msr-la-nc", "multiple", "odc-by", "openmdw-1.1", "openrail", "openrail++",
})  # fmt: skip
#: Every file of the archive has this date, so that equal results are equal bytes.
_DATE = (1980, 1, 1, 0, 0, 0)


def licence(text: str) -> str | None:
    """A licence in MTEB's spelling, or its address; None for one that MTEB does not take.

    `Apache-2.0`, `Apache License 2.0` and `apache 2.0` are one; SPDX's `-only` and `-or-later` are left out.
    """
    if _is_address(text):
        return text
    words = re.sub(r"\b(the|licen[cs]e|version)\b|[-_,]", " ", text.lower()).split()
    name = "-".join(words).removesuffix("-only").removesuffix("-or-later")
    return name if name in LICENCES else None


def _is_address(text: str) -> bool:
    """Whether MTEB takes it for an address: those of files by FTP it refuses."""
    try:
        URLValidator(["http", "https"])(text)
    except ValidationError:
        return False
    return True


def languages(results: Sequence[ExchangedResult]) -> list[str]:
    """The languages of the results' datasets as MTEB writes them; those that it would not know are left out."""
    return sorted({LANGUAGES[result.language] for result in results if result.language in LANGUAGES})


def task_result(result: ExchangedResult) -> dict[str, Any]:
    """One result as MTEB's `TaskResult`. What was not measured is null."""
    scores = {measure_name(measure): value for measure, value in result.scores.items()}
    subset = {
        "hf_subset": "default",
        "languages": languages([result]),
        "main_score": result.value,
        **scores,
    }
    return {
        "dataset_revision": NO_DATASET_REVISION,
        "task_name": task_name(result.dataset_slug, result.dataset),
        "mteb_version": None,
        "scores": {result.split: [subset]},
        "evaluation_time": None,
        "kg_co2_emissions": None,
        "date": result.published_at.timestamp(),
    }


def model_meta(system: System, results: Sequence[ExchangedResult], url: str) -> dict[str, Any]:
    """What the system says of itself as MTEB's `ModelMeta`; null where it does not. `url` is its page."""
    references = [address for address in (system.paper_url, system.model_url) if _is_address(address)]
    return {
        "name": "/".join(model_name(system)),
        "revision": NO_REVISION,
        "release_date": None,
        "languages": languages(results) or None,
        "n_parameters": system.parameter_count,
        "memory_usage_mb": None,
        "max_tokens": system.maximum_length,
        "embed_dim": system.dimension,
        "license": licence(system.licence),
        "open_weights": system.open_weights,
        "public_training_code": system.code_url or None,
        "public_training_data": None,
        "framework": [],
        "reference": next(iter(references), url),
        "similarity_fn_name": None,
        "use_instructions": None,
        "training_datasets": sorted(system.training_datasets) if system.training_declared else None,
        "adapted_from": system.backbone or None,
        "superseded_by": None,
        "modalities": ["text"],
        "model_type": MODEL_TYPES.get(system.architecture, []),
        "citation": system.bibtex or (system.source.bibtex if system.source else "") or None,
    }


def model_name(system: System) -> tuple[str, str]:
    """Organisation and model."""
    if system.anonymous_until is not None:
        return anonymity.ANONYMOUS, system.slug
    organisation = system.team.slug if system.team else system.source.key if system.source else "runboard"
    return organisation, system.slug


def archive(system: System, results: Sequence[ExchangedResult], url: str) -> bytes:
    """All of it as a zip. A configuration stands where MTEB has a model's revision.

    Configurations that are written alike there (`k1=1.2` and `k1=12`) are told apart by a number.
    """
    folder = "results/" + "__".join(model_name(system))
    files: dict[str, Mapping[str, Any]] = {}
    owners: dict[str, tuple[str, str]] = {}
    for result in results:
        written = slugify(result.configuration) or NO_REVISION
        if result.provenance == "reported":
            written = "reported" if written == NO_REVISION else f"{written}-reported"
        task = task_name(result.dataset_slug, result.dataset)
        owner = (result.configuration, result.provenance)
        revision = next(
            each
            for each in (written if number == 1 else f"{written}-{number}" for number in count(1))
            if owners.setdefault(each, owner) == owner and f"{folder}/{each}/{task}.json" not in files
        )
        files[f"{folder}/{revision}/model_meta.json"] = {
            **model_meta(system, results, url),
            "revision": revision,
        }
        files[f"{folder}/{revision}/{task}.json"] = task_result(result)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in sorted(files):
            text = json.dumps(files[name], indent=2, ensure_ascii=False)
            packed.writestr(zipfile.ZipInfo(name, _DATE), text + "\n", zipfile.ZIP_DEFLATED)
    return out.getvalue()
