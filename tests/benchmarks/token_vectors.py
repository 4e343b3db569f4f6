"""Compressed token vectors of half a million passages: bytes of a passage, memory of a process, and what is found.

    python tests/benchmarks/token_vectors.py --folder build/tokens [--documents 500000] [--threads 2]

Passages of `large_corpus.py`, of 68 words, so that two special tokens make 70 vectors of each. A transformer of one
layer with random weights encodes them into 128 dimensions in float16, and late interaction searches what is compressed
to two bits a dimension. MS MARCO's passages would take as many bytes each, or fewer: centroids and tables do not grow
with them. Recall is that of the exhaustive top 100 over the stored vectors. Steps whose results are in the folder are
not done again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from evaluation.collections.beir import write_blocks  # noqa: E402
from tests.benchmarks.large_corpus import (  # noqa: E402
    GIB,
    MAX_GIB,
    SEED,
    Trial,
    make_collection,
    read_arguments,
    words_of,
)
from tests.figures import SKIPPED, Figures  # noqa: E402

WORDS, DIMENSION = 68, 128
MS_MARCO, MAX_GB = 8_841_823, 25.0


def make_model(folder: Path) -> None:
    """A late-interaction checkpoint: one layer, a word a token, no projection to fewer dimensions."""
    import torch
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from torch.nn import Identity
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    torch.manual_seed(SEED)
    vocabulary = {
        word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words_of()])
    }
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    named = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=512, **named).save_pretrained(folder)
    size = {
        "hidden_size": DIMENSION,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 2 * DIMENSION,
    }
    BertModel(BertConfig(vocab_size=len(vocabulary), initializer_range=1.0, **size)).save_pretrained(folder)
    token_vectors = {"module_input_name": "token_embeddings"}
    projection = Dense(DIMENSION, DIMENSION, bias=False, activation_function=Identity(), **token_vectors)
    modules = [
        Transformer(str(folder), document_length=512), projection,
        MultiVectorMask(skiplist_words=[]), Normalize(**token_vectors),
    ]  # fmt: skip
    MultiVectorEncoder(modules=modules, device="cpu").save(str(folder))


class TokenTrial(Trial):
    """The steps of this trial."""

    def steps(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Each step's name and figures, in their order."""
        self.corpus = self.folder / "corpus.jsonl.gz"
        own = [__file__, "--folder", str(self.folder), "--documents", str(self.documents)]
        yield "made", self.step("made", [*own, "--make"])
        given = [
            "--engine",
            "late-interaction",
            "--checkpoint",
            str(self.folder / "model"),
            "--device",
            "cpu",
        ]
        given += ["--stored-dtype", "float16", "--shards", str(self.folder / "shards")]
        encode = [
            "-m",
            "evaluation",
            "encode",
            "--corpus",
            str(self.corpus),
            *given,
            "--threads",
            self.threads,
        ]
        yield "encode", self.step("encode", encode)
        search = self.retrieve("compressed", *given, "--mode", "compressed")
        yield "compress and search", self.step("compressed", search)


def report(trial: TokenTrial, figures: Figures) -> None:
    """All steps as a table, the index, and what it would be for the passages of MS MARCO."""
    rows = []
    for name, done in trial.steps():
        memory = done["memory"] / GIB
        cells = [
            f"{done['wall']:,.0f}",
            f"{done['cpu']:,.0f}",
            f"{memory:.2f}",
            figures.bound(name, memory, MAX_GIB, " GiB"),
        ]
        rows.append([name, *cells])
    figures.say(
        f"{trial.documents:,} passages of {WORDS + 2} vectors, {DIMENSION} dimensions, {trial.threads} threads."
    )
    figures.table(["", "wall s", "CPU s", "GiB a process", "bound"], rows)
    said = (trial.folder / "compressed.log").read_text()
    took, recall = (
        float(re.findall(f"{fact}: ([0-9,.]+)", said)[-1].replace(",", ""))
        for fact in ("Vectors of a document", "Recall of the exact top 100")
    )
    gigabytes = took * MS_MARCO / 1e9
    figures.bound("GB for MS MARCO's passages", gigabytes, MAX_GB, " GB")
    figures.say(
        f"A passage takes {took:,.0f} bytes, and {MS_MARCO:,} of them {gigabytes:.1f} GB; at most {MAX_GB:g} are "
        f"wanted. Recall of the exact top 100: {recall:.4f}."
    )


def main() -> None:
    """Do what is not done yet, and show all figures."""
    arguments = read_arguments(__doc__, 500_000)
    if arguments.folder is None:
        print(f"{SKIPPED}{arguments.documents:,} passages take an hour and 30 GiB; name a folder: --folder")
        return
    if arguments.make:
        make_collection(arguments.folder / "raw", arguments.documents, WORDS)
        with (arguments.folder / "raw" / "corpus.jsonl").open("rb") as lines:
            write_blocks(lines, arguments.folder / "corpus.jsonl.gz")
        make_model(arguments.folder / "model")
        return
    figures = Figures(__file__)
    report(TokenTrial(arguments), figures)
    sys.exit(figures.finish(arguments.write))


if __name__ == "__main__":
    main()
