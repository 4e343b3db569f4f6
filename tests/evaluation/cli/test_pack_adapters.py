"""`pack` makes a whole model of a LoRA adapter and its base."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from evaluation.__main__ import main
from evaluation.checkpoints import rebuild, validate_archive
from tests.evaluation import tiny_models

TEXTS = ["the heart", "blood pressure in twelve patients"]


def test_what_an_adapter_needs_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    base = tiny_models.tiny_dense(tmp_path / "base")
    monkeypatch.setitem(sys.modules, "peft", None)  # as where it is not installed
    monkeypatch.chdir(tmp_path)

    assert main(["pack", str(adapter)]) == 1
    assert "base_missing" in capsys.readouterr().err
    assert main(["pack", str(adapter), "--base", str(tmp_path / "nowhere")]) == 1
    assert f"{tmp_path / 'nowhere'} holds no model" in capsys.readouterr().err
    assert main(["pack", str(adapter), "--base", str(base)]) == 1
    assert "pip install peft" in capsys.readouterr().err


@pytest.mark.long
def test_an_adapter_is_merged_into_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As peft runs it over the base; an adapter of another model is refused."""
    import torch
    from peft import LoraConfig
    from sentence_transformers import SentenceTransformer

    base = tiny_models.tiny_dense(tmp_path / "base")
    model = SentenceTransformer(str(base), device="cpu")
    plain = model.encode(TEXTS)
    torch.manual_seed(1)
    model[0].model.add_adapter(LoraConfig(r=4, target_modules=["query", "value"], init_lora_weights=False))
    wanted = model.encode(TEXTS)
    assert np.abs(wanted - plain).max() > 1e-3
    adapter = tmp_path / "adapter"
    model[0].model.save_pretrained(str(adapter))
    assert not (adapter / "model.safetensors").exists()
    monkeypatch.chdir(tmp_path)

    assert main(["pack", str(adapter), "--base", str(base)]) == 0

    validation = validate_archive(tmp_path / "adapter.tar.zst", tmp_path / "scratch")
    rebuild(validation, tmp_path / "rebuilt")
    merged = SentenceTransformer(str(tmp_path / "rebuilt" / "model"), device="cpu")
    assert np.abs(merged.encode(TEXTS) - wanted).max() < 1e-5
    capsys.readouterr()
    other = tiny_models.tiny_modernbert(tmp_path / "other")
    assert main(["pack", str(adapter), "--base", str(other)]) == 1
    assert "not_merged" in capsys.readouterr().err
