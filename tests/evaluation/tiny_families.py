"""Tiny instances, with random weights, of the families that people use today, each as its library saves it.

torch and its friends are imported inside the functions only. The tokenizer has a token for each byte, so that any text
has as many tokens as bytes, and words for what templates of rerankers need.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedTokenizerFast

HIDDEN, POSITIONS = 32, 1100
#: Special tokens by number; words behind them are tokens of their own.
PAD, BEGIN, END, UNKNOWN = range(4)
WORDS = ("yes", "no", "Yes", "1", "0", "▁true", "▁false", "<|im_start|>", "<|im_end|>", "<bos>")
_IDS = {"pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END}
_BART = {f"{side}_{name}": value for side in ("encoder", "decoder")
         for name, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))}  # fmt: skip
#: Configuration values in addition to SIZES, by model type.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "mistral": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 64},
    "llama": {"num_key_value_heads": 2},
    "gemma": {"num_key_value_heads": 2, "head_dim": 8},
    "gemma3_text": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 64},
    "phi3": {"num_key_value_heads": 2},
    "lfm2": {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]},
    "eurobert": {"num_key_value_heads": 2, "mask_token_id": UNKNOWN},
    "longformer": {"attention_window": 32},
    "bart": {"d_model": HIDDEN, "decoder_start_token_id": END, "forced_eos_token_id": END, **_BART},
    "t5": {"d_model": HIDDEN, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": PAD},
    "umt5": {"d_model": HIDDEN, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
    "modernbert": {"cls_token_id": BEGIN, "sep_token_id": END},
}  # fmt: skip
_SIZES = {"hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
          "max_position_embeddings": POSITIONS, "initializer_range": 0.2}  # fmt: skip


def byte_tokenizer(
    side: str = "right", begin: bool = False, end: bool = True, length: int = 1024
) -> PreTrainedTokenizerFast:
    """A tokenizer of bytes that pads on this side, with or without tokens at a text's begin and end."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = ["<pad>", "<s>", "</s>", "<unk>", *WORDS]
    pieces += [letter for letter in sorted(pre_tokenizers.ByteLevel.alphabet()) if letter not in pieces]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    words = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    words.add_special_tokens([AddedToken(word, special=True) for word in ("<|im_start|>", "<|im_end|>", "<bos>")])
    single = f"{'<s> ' * begin}$A{' </s>' * end}"
    words.post_processor = processors.TemplateProcessing(
        single=single,
        pair=f"{single} {single.replace('A', 'B')}",
        special_tokens=[("<s>", BEGIN), ("</s>", END)],
    )
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, padding_side=side, model_max_length=length, **special)


def save_transformer(
    folder: Path, model_type: str, auto_class: str, words: PreTrainedTokenizerFast, **more: Any
) -> Path:
    """A model of this type through a class such as AutoModelForCausalLM, and its tokenizer; the seed is always 0."""
    import torch
    import transformers

    values = {**_SIZES, **_IDS, **CONFIGURATIONS.get(model_type, {}), **more}
    config = transformers.AutoConfig.for_model(model_type, vocab_size=len(words), **values)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, auto_class).from_config(config)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def save_encoder(
    folder: Path,
    model_type: str,
    pooling: str,
    words: PreTrainedTokenizerFast,
    behind: Sequence[str] = (),
    **more: Any,
) -> Path:
    """A sentence encoder: Transformer, Pooling, and modules `behind` them: "Dense", "LayerNorm", "Normalize"."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

    save_transformer(folder, model_type, "AutoModel", words, **more)
    make = {
        "Dense": lambda: Dense(HIDDEN, HIDDEN, bias=False, activation_function=torch.nn.Identity()),
        "LayerNorm": lambda: LayerNorm(HIDDEN),
        "Normalize": Normalize,
    }
    with torch.random.fork_rng():
        torch.manual_seed(1)
        modules = [Transformer(str(folder)), Pooling(HIDDEN, pooling), *(make[name]() for name in behind)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    return folder
