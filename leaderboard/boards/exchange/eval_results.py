"""A system's results as Hugging Face's `.eval_results/*.yaml`, to be put beside its model card.

Every text is written in double quotes, as JSON does: no value can be taken for anything else. A character that YAML
does not take as it is stands as its number; JSON's pairs of numbers for one beyond the basic plane YAML would not join.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from leaderboard.boards.exchange.results import Exchanged


def to_yaml(results: Sequence[Exchanged], site: str, url: str, user: str) -> str:
    """The results of primary measures; `url` is the system's page on the `site`, `user` its team."""
    shown = [result for result in results if result.value is not None]
    if not shown:
        return "[]\n"
    return "".join(_item(_entry(result, site, url, user)) for result in shown)


def _entry(result: Exchanged, site: str, url: str, user: str) -> dict[str, Any]:
    dataset = {"id": f"BeIR/{result.beir_name}" if result.beir_name else result.dataset_slug}
    dataset["task_id"] = result.split
    source = {"url": url, "name": site}
    if user:
        source["user"] = user
    notes = [result.measure, result.provenance, result.configuration, result.training]
    return {
        "dataset": dataset,
        "value": result.value,
        "date": result.published_at.date().isoformat(),
        "source": source,
        "notes": ", ".join(note for note in notes if note),
    }


def _item(entry: Mapping[str, Any]) -> str:
    lines = []
    for name, value in entry.items():
        if isinstance(value, Mapping):
            lines.append(f"{name}:")
            lines += [f"  {inner}: {_scalar(each)}" for inner, each in value.items()]
        else:
            lines.append(f"{name}: {_scalar(value)}")
    return "".join(f"{'- ' if number == 0 else '  '}{line}\n" for number, line in enumerate(lines))


def _scalar(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else _numbered(each) for each in text)


def _numbered(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
