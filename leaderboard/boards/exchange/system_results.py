"""A system's public results in exchange formats.

- Hugging Face's `.eval_results/*.yaml` (`to_yaml`).
- MTEB's results repository (`mteb_archive`): `results/<organisation>__<model>/<revision>/<Task>.json`, and
  `model_meta.json` next to the tasks.
- Every Eval Ever (`every_eval_ever_record`): the aggregate record of one model, schema 0.3.0.
"""

import datetime
import io
import json
import math
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import yaml
from django.core.exceptions import ValidationError
from django.core.validators import URLValidator
from django.utils.text import slugify

from evaluation.measures.registry import parse_measure
from leaderboard import VERSION
from leaderboard.core import anonymity
from leaderboard.models import Entry, EntryQuerySet, System
from leaderboard.results.mteb import (
    LANGUAGES,
    MODEL_TYPES,
    NO_DATASET_REVISION,
    NO_REVISION,
    SPLITS,
    measure_name,
    task_name,
)

#: Columns of an entry that its result contains unchanged.
_ENTRY_FIELDS = ("scores", "configuration", "provenance", "training", "published_at")


class ExchangedResult(NamedTuple):
    """One result with facts about its dataset; `scores` are the published values."""

    dataset: str
    dataset_slug: str
    beir_name: str
    language: str
    measure: str
    present_split: str | None
    own_split: str | None
    scores: dict[str, float]
    configuration: str
    provenance: str
    training: str
    published_at: datetime.datetime

    @property
    def value(self) -> float | None:
        return self.scores.get(self.measure)

    @property
    def split(self) -> str:
        """Split of its judgments, or the one that publications use."""
        if self.provenance == Entry.Provenance.REPORTED:
            return SPLITS.get(self.dataset_slug, "test")
        return self.own_split or self.present_split or "test"


def exchanged_results(system_id: int) -> list[ExchangedResult]:
    """Return the system's public results by dataset, the newest per configuration and provenance. One query."""
    dataset_fields = ("name", "slug", "beir_name", "language", "primary_measure", "current_qrels__split")
    columns = [*(f"dataset__{name}" for name in dataset_fields), "evaluation__qrels__split", *_ENTRY_FIELDS]
    rows = EntryQuerySet(Entry).public().filter(system_id=system_id)
    ordered_entries = rows.order_by("dataset__name", "published_at", "pk")
    results = [ExchangedResult(*row) for row in ordered_entries.values_list(*columns)]
    return list({(result.dataset_slug, result.configuration, result.provenance): result for result in results}.values())


def to_yaml(results: Sequence[ExchangedResult], site: str, url: str, user: str) -> str:
    """Return the results of primary measures as YAML for Hugging Face; missing ones are omitted.

    `url` is the system's page on the `site`, and `user` its team, empty if unknown.
    """
    entries = [
        {
            "dataset": {
                "id": f"BeIR/{result.beir_name}" if result.beir_name else result.dataset_slug,
                "task_id": result.split,
            },
            "value": result.value,
            "date": result.published_at.date().isoformat(),
            "source": {"url": url, "name": site, **({"user": user} if user else {})},
            "notes": ", ".join(
                filter(None, (result.measure, result.provenance, result.configuration, result.training))
            ),
        }
        for result in results
        if result.value is not None
    ]
    text: str = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=math.inf)
    return text


#: MTEB's `Licenses` (2.26.24), in Hugging Face's spelling.
LICENCES = frozenset({
    "afl-3.0", "apache-2.0", "bsd-3-clause", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-3.0", "cc-by-nc-4.0",
    "cc-by-nc-nd-4.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cc-by-nd-2.1-jp", "cc-by-nd-4.0", "cc-by-sa-3.0",
    "cc-by-sa-4.0", "cc0-1.0", "cdla-sharing-1.0", "eupl-1.2", "gemma", "gpl-3.0", "lgpl", "lgpl-3.0", "mit",
    "mpl-2.0", "msr-la-nc", "multiple", "odc-by", "openmdw-1.1", "openrail", "openrail++",
})  # fmt: skip
#: Fixed date of all files in the archive, so that equal results give equal bytes.
_DATE = (1980, 1, 1, 0, 0, 0)


def mteb_licence(text: str) -> str | None:
    """Return a license in MTEB's spelling, or its URL; None for licenses that MTEB does not know.

    `Apache-2.0`, `Apache License 2.0`, and `apache 2.0` are the same; SPDX's `-only` and `-or-later` are dropped.
    """
    if _is_address(text):
        return text
    words = re.sub(r"\b(the|licen[cs]e|version)\b|[-_,]", " ", text.lower()).split()
    name = "-".join(words).removesuffix("-only").removesuffix("-or-later")
    return name if name in LICENCES else None


def _is_address(text: str) -> bool:
    """Return whether MTEB accepts the text as a URL, which excludes FTP."""
    try:
        URLValidator(["http", "https"])(text)
    except ValidationError:
        return False
    return True


def mteb_languages(results: Sequence[ExchangedResult]) -> list[str]:
    """Return the languages of the results' datasets in MTEB's notation, omitting those that MTEB does not know."""
    return sorted({LANGUAGES[result.language] for result in results if result.language in LANGUAGES})


def task_result(result: ExchangedResult) -> dict[str, Any]:
    """Return a result as MTEB's `TaskResult`, with null for values that were not measured."""
    scores = {measure_name(measure): value for measure, value in result.scores.items()}
    subset = {
        "hf_subset": "default",
        "languages": mteb_languages([result]),
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
    """Return the system's description as MTEB's `ModelMeta`, with null for unknown fields; `url` is its page."""
    references = [address for address in (system.paper_url, system.model_url) if _is_address(address)]
    return {
        "name": "/".join(model_name(system)),
        "revision": NO_REVISION,
        "release_date": None,
        "languages": mteb_languages(results) or None,
        "n_parameters": system.parameter_count,
        "memory_usage_mb": None,
        "max_tokens": system.maximum_length,
        "embed_dim": system.dimension,
        "license": mteb_licence(system.licence),
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
    """Return the names of the organization and the model.

    The organization is the team's slug, else the key of the publication, else `runboard`. For an anonymous system, it
    is `anonymous`. The model is the system's slug.
    """
    if system.anonymous_until is not None:
        return anonymity.ANONYMOUS, system.slug
    organisation = system.team.slug if system.team else system.source.key if system.source else "runboard"
    return organisation, system.slug


def mteb_archive(system: System, results: Sequence[ExchangedResult], url: str) -> bytes:
    """Return the results and the model's descriptions as a zip file for MTEB's results repository.

    MTEB has no configurations, so they are written as revisions of the model. Configurations that become identical
    there (`k1=1.2` and `k1=12`) are numbered.
    """
    folder = "results/" + "__".join(model_name(system))
    files: dict[str, Mapping[str, Any]] = {}
    owners: dict[str, tuple[str, str]] = {}
    for result in results:
        base_revision = slugify(result.configuration) or NO_REVISION
        if result.provenance == "reported":
            base_revision = "reported" if base_revision == NO_REVISION else f"{base_revision}-reported"
        task = task_name(result.dataset_slug, result.dataset)
        owner = (result.configuration, result.provenance)
        revision = next(
            candidate
            for candidate in (base_revision if number == 1 else f"{base_revision}-{number}" for number in count(1))
            if owners.setdefault(candidate, owner) == owner and f"{folder}/{candidate}/{task}.json" not in files
        )
        files[f"{folder}/{revision}/model_meta.json"] = {
            **model_meta(system, results, url),
            "revision": revision,
        }
        files[f"{folder}/{revision}/{task}.json"] = task_result(result)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            text = json.dumps(files[name], indent=2, ensure_ascii=False)
            archive.writestr(zipfile.ZipInfo(name, _DATE), text + "\n", zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


SCHEMA = "0.3.0"
_AVAILABILITY = {True: "open_weights", False: "closed_weights", None: "unknown"}


def every_eval_ever_record(
    system: System,
    results: Sequence[ExchangedResult],
    site: str,
    url: str,
    get_address: Callable[[ExchangedResult], str],
) -> dict[str, Any]:
    """Return a system's results as one record of Every Eval Ever; `url` is its page on the `site`.

    `get_address` returns the URL of a result's dataset. The record's time is that of the newest result, so that it only
    changes with the results.
    """
    model = "/".join(model_name(system))
    newest_time = str(int(max(result.published_at for result in results).timestamp()))
    is_reported = all(result.provenance == Entry.Provenance.REPORTED for result in results)
    deployment_type = "externally_managed" if system.closed_api else "unknown"
    if not system.closed_api and any(result.provenance == Entry.Provenance.MEASURED for result in results):
        deployment_type = "self_deployed"
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"runboard/{model.replace('/', '_')}/{newest_time}",
        "retrieved_timestamp": newest_time,
        "source_metadata": {
            "source_name": site,
            "source_type": "documentation" if is_reported else "evaluation_run",
            "source_organization_name": site,
            "source_organization_url": url,
            "evaluator_relationship": "other" if is_reported else "third_party",
        },
        "eval_library": {"name": "runboard", "version": VERSION},
        "model_info": {
            "name": system.name,
            "id": model,
            "developer": model.partition("/")[0],
            "additional_details": {
                "deployment_type": deployment_type,
                "model_availability": _AVAILABILITY[system.open_weights],
                "architecture": system.architecture,
                **({} if system.parameter_count is None else {"n_parameters": str(system.parameter_count)}),
            },
        },
        "evaluation_results": [
            _evaluation_result(result, measure, value, get_address(result))
            for result in results
            for measure, value in result.scores.items()
        ],
    }


def _evaluation_result(result: ExchangedResult, measure: str, value: float, address: str) -> dict[str, Any]:
    """Return one score of a result as an item of `evaluation_results`; `address` is the dataset's URL."""
    return {
        "evaluation_result_id": f"{result.dataset_slug}/{result.configuration}/{result.provenance}/{measure}",
        "evaluation_name": result.dataset,
        "source_data": {
            "dataset_name": result.dataset,
            "source_type": "url",
            "url": [address],
            "additional_details": {"split": result.split, "language": result.language},
        },
        "evaluation_timestamp": result.published_at.isoformat(),
        "metric_config": {
            "metric_id": f"ir_measures.{measure}",
            "metric_name": measure,
            "metric_unit": "proportion",
            "lower_is_better": not parse_measure(measure).family.higher_is_better,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        },
        "score_details": {
            "score": value,
            "details": {
                name: text for name in ("provenance", "configuration", "training") if (text := getattr(result, name))
            },
        },
    }
