"""`pack` makes a whole model of a LoRA adapter and its base."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from evaluation.__main__ import main
from evaluation.checkpoints.rebuilding import rebuild, validate_archive
from tests.evaluation import tiny_models
from tests.evaluation.neural import created
from tests.evaluation.tiny_families import byte_tokenizer, save_encoder

INSTRUCTION = "Given a question, retrieve passages that answer it: "
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
    assert f"{tmp_path / 'nowhere'} has no model" in capsys.readouterr().err
    assert main(["pack", str(adapter), "--base", str(base)]) == 1
    assert "pip install peft" in capsys.readouterr().err
    assert main(["pack", str(adapter), "--base", str(adapter)]) == 1
    assert f"{adapter} has only an adapter" in capsys.readouterr().err
    assert main(["pack", str(adapter), "--base", str(base), "--base", str(adapter)]) == 1
    assert f"{base} is a complete model, so {adapter} cannot be its base" in capsys.readouterr().err


@pytest.mark.long
def test_an_adapter_is_merged_into_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result equals peft's model over the base. An adapter of another model is refused."""
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


@pytest.mark.long
@pytest.mark.parametrize("model_type", ["llama", "mistral"])
def test_an_adapter_of_an_adapter_is_merged_into_a_bidirectional_decoder(
    model_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLM2Vec's attention, two adapters and mean without the instruction, as peft runs them on single texts."""
    import peft
    import torch
    import transformers

    more = {"sliding_window": None} if model_type == "mistral" else {}
    words = byte_tokenizer("left", begin=False, end=False)
    base, first, second = tmp_path / "base", tmp_path / "mntp", tmp_path / "supervised"
    save_encoder(base, model_type, "mean", words, **more)
    pooling = base / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({**json.loads(pooling.read_text()), "include_prompt": False}))
    torch.manual_seed(1)
    model = transformers.AutoModel.from_pretrained(base)
    for folder in (first, second):
        lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "up_proj"], init_lora_weights=False)
        adapted = peft.get_peft_model(model, lora)
        adapted.save_pretrained(str(folder))
        model = adapted.merge_and_unload()
    monkeypatch.chdir(tmp_path)

    def vectors(*adapters: Path, causal: bool = False, skipped: str = INSTRUCTION) -> np.ndarray:
        model = transformers.AutoModel.from_pretrained(base)
        for adapter in adapters:
            model = peft.PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
        rows = []
        for text in TEXTS:
            ids = words(INSTRUCTION + text, return_tensors="pt")["input_ids"]
            own = len(words(INSTRUCTION + text)["input_ids"]) - len(words(skipped)["input_ids"])
            seen = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool)
            mask = (seen.tril() if causal else seen)[None, None]
            with torch.inference_mode():
                rows.append(model.eval()(input_ids=ids, attention_mask=mask).last_hidden_state[0, -own:].mean(0))
        return torch.stack(rows).numpy()

    def packed(*options: str) -> np.ndarray:
        bases = ["--base", str(first), "--base", str(base)]
        assert main(["pack", str(second), *bases, "--no-trial", *options]) == 0
        checkpoint = tmp_path / f"checkpoint{len(options)}"
        archive = tmp_path / "supervised.tar.zst"
        rebuild(validate_archive(archive, tmp_path / f"scratch{len(options)}"), checkpoint)
        engine = created("dense", checkpoint, similarity="dot")
        found = np.zeros((len(TEXTS), engine._queries.dimension), np.float32)
        engine._queries.encode(TEXTS, INSTRUCTION, found)
        return found

    expected = vectors(first, second)
    found, masked = packed("--bidirectional"), packed()

    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    causal = vectors(first, second, causal=True)
    np.testing.assert_allclose(masked, causal, rtol=1e-5, atol=1e-5 * np.abs(causal).max())
    for mutant in (causal, vectors(second), vectors(first), vectors(first, second, skipped="")):
        assert np.abs(found - mutant).max() > 1e-3
