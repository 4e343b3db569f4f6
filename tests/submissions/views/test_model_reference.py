"""`/models/` and its call: made from the registries, without any library of models."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest
from django.test import Client

from evaluation.checkpoints.configuration import PATH, library_models
from evaluation.checkpoints.description import MODEL_KINDS
from evaluation.checkpoints.findings import CODES
from evaluation.engines import ENGINES
from evaluation.engines.prompts import TEMPLATES
from submissions.models import Switch
from tests.pages import one_line
from tests.submissions.clients import Api

pytestmark = pytest.mark.django_db


def text_of(client: Client) -> str:
    return html.unescape(one_line(client.get("/models/").content.decode()))


def test_the_page_has_every_kind_engine_parameter_and_code(client: Client) -> None:
    page = text_of(client)
    for kind in MODEL_KINDS:
        assert f'id="kind-{kind.value}"' in page
    for engine in ENGINES.values():
        assert f'id="engine-{engine.name}"' in page
        section = page[page.index(f'id="engine-{engine.name}"') :].partition("</details>")[0]
        assert all(f"<code>{parameter.name}</code>" in section for parameter in engine.parameters)
    for code in CODES:
        assert f'id="{code}"' in page
    for template in TEMPLATES:
        assert template.source in page
    assert "<dd>32 GiB</dd>" in page
    assert len(re.findall(r'id="([^"]+)"', page)) == len(set(re.findall(r'id="([^"]+)"', page)))


def test_every_kind_has_an_example_and_an_engine(api: Api) -> None:
    kinds = {kind["kind"]: kind for kind in api.get("models/").body["kinds"]}
    assert set(kinds) == {kind.value for kind in MODEL_KINDS}
    for kind in kinds.values():
        assert kind["example"]
        assert kind["engines"]
        assert kind["model_types"] or kind["kind"] == "static-embeddings"
    assert {"bert", "qwen3", "mistral", "nomic_bert"} <= set(kinds["sentence-encoder"]["model_types"])
    assert "whisper" not in kinds["sentence-encoder"]["model_types"]


def test_the_call_says_what_engines_take(api: Api) -> None:
    told = api.get("models/").body
    engines = {engine["name"]: engine for engine in told["engines"]}
    assert list(engines) == list(ENGINES)
    parameters = {parameter["name"]: parameter for parameter in engines["dense"]["parameters"]}
    assert parameters["maximum_length"]["values"] == "a whole number from 0 to 32,768"
    assert parameters["compute_dtype"]["values"] == "auto, float32, bfloat16, float16"
    assert engines["cross-encoder"]["runs"] == [0, 1]
    assert told["limits"]["weights_bytes"] == 32 * 2**30


def test_the_page_says_whether_models_are_fetched(client: Client, settings: Any) -> None:
    settings.HUB_DOWNLOADS = False
    assert "disabled: download the model" in text_of(client)
    Switch.objects.update_or_create(name=Switch.Name.HUB_DOWNLOADS, defaults={"is_on": True})
    assert "enabled: enter the model and its commit" in text_of(client)


def test_refusals_and_the_form_lead_there(signed_in: Client) -> None:
    assert 'href="/models/"' in signed_in.get("/submit/model/").content.decode()
    assert "/models/ lists them" in CODES["model_type"]


def test_the_types_are_those_of_the_pinned_library() -> None:
    """After an update of the library, `python -m packages.model_types` must write the list again."""
    assert library_models().version == version("transformers")


@pytest.mark.long
def test_the_list_of_types_is_what_the_library_says() -> None:
    program = "import json; from packages.model_types import list_model_types as made; print(); "
    words = [sys.executable, "-c", program + "print(json.dumps(made(), indent=1))"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert told[told.index("\n{") + 1 :] == PATH.read_text(encoding="utf-8")


def test_the_page_is_made_without_libraries_of_models() -> None:
    """A web process has none of them."""
    program = (
        "import sys; from evaluation.checkpoints.configuration import library_models; library_models(); "
        "import evaluation.engines.prompts; "
        "print(sorted({'torch', 'transformers', 'sentence_transformers', 'tokenizers'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
