"""Reader of untrusted YAML."""

from typing import Any

import yaml

MAX_YAML_DEPTH = 12


def load_yaml(text: str) -> Any:
    """Parse YAML into objects, lists, and strings, without interpreting numbers and dates.

    Raises yaml.YAMLError for other text, for nesting beyond `MAX_YAML_DEPTH`, and for aliases, which can expand to GBs.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CBaseLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_YAML_DEPTH or isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(None, None, "it has aliases or deep nesting", event.start_mark)  # type: ignore[arg-type]
    return yaml.load(text, Loader=yaml.CBaseLoader)  # noqa: S506 (creates strings, lists, and dicts only)
