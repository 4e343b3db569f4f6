"""Reader of results in exchange formats, as rows like those of the CSV for reported results.

- Every Eval Ever: the aggregate JSON record of one model.
- Hugging Face: `.eval_results/*.yaml`, and the `model-index` of a model card (`README.md` or its YAML).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import yaml

from evaluation.measures.registry import UnknownMeasureError, parse_measure
from evaluation.text.languages import known_language_code
from evaluation.text.yaml import load_yaml
from leaderboard.importing.reported import mteb
from leaderboard.importing.reported.model_meta import InvalidFile
from leaderboard.models import Architecture, Dataset, Entry

#: Names of splits → name on boards.
_SPLITS = {"train": "train", "dev": "dev", "validation": "dev", "test": "test"}
#: Prefixes of measures: ir_measures in Every Eval Ever, and similarity functions in Sentence Transformers.
_PREFIX = re.compile(r"^(ir_measures\.|(cosine|cos_sim|dot|euclidean|manhattan|maxsim|max)_)")
#: Tags and pipelines of model cards → architecture, the most specific first.
_TAGS = {
    "cross-encoder": "re-ranking", "text-ranking": "re-ranking", "ColBERT": "late-interaction",
    "PyLate": "late-interaction", "sparse-encoder": "learned-sparse", "splade": "learned-sparse",
    "sentence-similarity": "dense",
}  # fmt: skip
#: A row of the CSV with its location in the file, and possible names of its `datasets` and `measures`.
_Result = dict[str, Any]


def read_rows(text: str, ignored: defaultdict[str, set[str]]) -> list[_Result]:
    """Return the results of a file for this site's datasets and measures, as rows of the CSV.

    Adds the names of other results to `ignored`, by reason. Raises InvalidFile for a file in none of the formats.
    """
    names: defaultdict[str, set[Dataset]] = defaultdict(set)
    for task, places in mteb.datasets_by_task().items():
        for each in (place.dataset for place in places):
            for name in filter(None, (task, each.name, each.slug, each.beir_name)):
                names[_normalize(name)].add(each)
    rows = []
    for result in _read_file(text):
        label = next(filter(None, result["datasets"]), result["location"])
        matches = [names[_normalize(name)] for name in result["datasets"] if _normalize(name) in names]
        dataset = next((each for match in matches if len(match) == 1 for each in match), None)
        if dataset is None:
            ignored["several datasets have this name" if matches else mteb.UNKNOWN_TASK].add(label)
            continue
        measure = _parse_measure(result["measures"]) if result["measures"] else dataset.primary_measure
        part = result.get("subset", "").removeprefix("default")
        own_split = mteb.judged_split(dataset)
        split = result.get("split") or own_split
        if _SPLITS.get(split, split) != _SPLITS.get(own_split, own_split) or not (
            part == ""
            or dataset in names.get(_normalize(part), ())
            or known_language_code(part) == known_language_code(dataset.language)
        ):
            ignored["boards show another split or language"].add(f"{label} ({', '.join(filter(None, (split, part)))})")
        elif measure not in dataset.measures:
            label = measure or next(filter(None, result["measures"]), "no measure")
            ignored["boards of the dataset do not use the measure"].add(f"{label} on {dataset.name}")
        else:
            with suppress(ValueError):  # Invalid values are reported with the row.
                result["value"] = f"{float(result['value']):.8f}".rstrip("0").rstrip(".")
            rows.append({**result, "dataset": dataset.slug, "measure": measure})
    return rows


def _read_file(text: str) -> Iterator[_Result]:
    """Return the results of a file in any of the formats. Raises InvalidFile for other content."""
    if text.lstrip().startswith("{"):
        return _read_record(mteb.parse_object(text))
    card = re.match(r"\s*---[ \t]*\r?\n(.*?)\n---[ \t\r]*(\n|$)", text, re.DOTALL)
    try:
        content = load_yaml(card[1] if card else text)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {text[: card.start(1) if card else 0].count(chr(10)) + mark.line + 1}: " if mark else ""
        raise InvalidFile(f"it is not YAML: {line}{getattr(error, 'problem', error)}") from error
    if isinstance(content, list):
        return _read_eval_results(content)
    if isinstance(content, dict) and "model-index" in content:
        return _read_card(content)
    raise InvalidFile(
        "it is neither a record of Every Eval Ever, nor a file of .eval_results/, nor a model card with model-index. "
        "The eval.yaml of a dataset has no results"
    )


def _get_text(value: Any, *names: str) -> str:
    """Return the text or number at a path of names in nested objects, or an empty string."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None or isinstance(value, dict | list) or value in ("null", "~") else str(value)


def _get_list(value: Any, name: str) -> list[Any]:
    items = value.get(name) if isinstance(value, dict) else None
    return items if isinstance(items, list) else []


def _read_record(record: Mapping[str, Any]) -> Iterator[_Result]:
    """Yield the results of a record of Every Eval Ever."""
    details = ("model_info", "additional_details")
    architecture, billions = (_get_text(record, *details, name) for name in ("architecture", "params_billions"))
    model = {
        "system": _get_text(record, "model_info", "name") or _get_text(record, "model_info", "id"),
        "architecture": architecture if architecture in Architecture.values else "",
        "parameters": _get_text(record, *details, "n_parameters") or (f"{billions}B" if billions else ""),
        "locator": f"Every Eval Ever, {_get_text(record, 'source_metadata', 'source_organization_name')}"[:80],
    }
    for number, item in enumerate(_get_list(record, "evaluation_results")):
        data, metric = (item.get(name) if isinstance(item, dict) else None for name in ("source_data", "metric_config"))
        names = [*(_get_text(data, name) for name in ("dataset_name", "hf_repo")), _get_text(item, "evaluation_name")]
        yield {
            **model,
            "location": f"evaluation_results[{number}]",
            "datasets": [*names, *filter(lambda url: isinstance(url, str), _get_list(data, "url"))],
            "measures": [_get_text(metric, name) for name in ("metric_id", "metric_name", "evaluation_description")],
            "value": _get_text(item, "score_details", "score"),
            "scale": "percent" if _get_text(metric, "max_score") in ("100", "100.0") else "",
            "split": _get_text(data, "hf_split") or _get_text(data, "additional_details", "split"),
            "configuration": _get_text(item, "score_details", "details", "configuration"),
        }


def _read_eval_results(items: Sequence[Any]) -> Iterator[_Result]:
    """Yield the results of `.eval_results/*.yaml`, whose notes may name measure, provenance, and configuration.

    Without a measure, a value is in the primary measure.
    """
    for number, item in enumerate(items):
        task, notes = _get_text(item, "dataset", "task_id"), _get_text(item, "notes").split(", ")
        measures = notes[:1] if _parse_measure(notes[:1]) else []
        own_words = {*Entry.Provenance.values, *Entry.Training.values} if measures else ()
        yield {
            "location": f"[{number}]",
            "datasets": [_get_text(item, "dataset", "id")],
            "measures": measures,
            "value": _get_text(item, "value"),
            "split" if task in _SPLITS else "subset": task,
            "configuration": ", ".join(note for note in notes[len(measures) :] if note not in own_words),
            "locator": f"Hugging Face, {_get_text(item, 'source', 'name') or 'evaluation results'}"[:80],
        }


def _read_card(card: Mapping[str, Any]) -> Iterator[_Result]:
    """Yield the results in the `model-index` of a model card."""
    tags = [card.get("pipeline_tag"), *_get_list(card, "tags")]
    architecture = next((kind for tag, kind in _TAGS.items() if tag in tags), "")
    for index, model in enumerate(_get_list(card, "model-index")):
        for number, item in enumerate(_get_list(model, "results")):
            dataset, name = item.get("dataset") if isinstance(item, dict) else None, _get_text(item, "dataset", "name")
            for position, metric in enumerate(_get_list(item, "metrics")):
                yield {
                    "location": f"model-index[{index}].results[{number}].metrics[{position}]",
                    "system": _get_text(model, "name"),
                    "architecture": architecture,
                    # MTEB's names tell parts of one repository apart, such as those of CQADupStack.
                    "datasets": [name] if name.startswith("MTEB ") else [name, _get_text(dataset, "type")],
                    "measures": [_get_text(metric, "type"), _get_text(metric, "name")],
                    "value": _get_text(metric, "value"),
                    "split": _get_text(dataset, "split"),
                    "subset": _get_text(dataset, "config"),
                    "locator": "Hugging Face model card",
                }


def _parse_measure(names: Iterable[str]) -> str:
    """Return the canonical name of the first known measure, or an empty string."""
    for name in names:
        with suppress(UnknownMeasureError):
            return str(parse_measure(_PREFIX.sub("", name)))
    return ""


def _normalize(name: str) -> str:
    """Return a name, repository, or URL of a dataset without owner, case, and punctuation."""
    name = re.sub(r"^MTEB (\w+).*", r"\1", name.rstrip("/").rpartition("/")[2])
    return re.sub(r"[\W_]+", "", name).casefold()
