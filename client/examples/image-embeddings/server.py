"""Serve `/v1/embeddings` with static embeddings: the embedding of a text is the mean of its token vectors."""

import base64
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

folder = Path(sys.argv[1])
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.no_padding()
tokenizer.no_truncation()
vectors = next(iter(load_file(folder / "model.safetensors").values())).astype(np.float32)


def encode(texts: list[str]) -> np.ndarray:
    """Return the mean token vector of each text, or zeros if a text has no tokens."""
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    lengths = np.array([len(encoding.ids) for encoding in encodings])
    means = np.zeros((len(texts), vectors.shape[1]), np.float32)
    if lengths.any():
        ids = np.concatenate([encoding.ids for encoding in encodings if encoding.ids]).astype(np.int64)
        filled = lengths > 0
        starts = np.cumsum(lengths[filled]) - lengths[filled]
        means[filled] = np.add.reduceat(vectors[ids], starts) / lengths[filled][:, np.newaxis]
    return means


class Handler(BaseHTTPRequestHandler):
    """HTTP handler that encodes texts, lists the model, and answers health checks."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": "static", "object": "model"}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
        packed = request.get("encoding_format") == "base64"
        rows = [base64.b64encode(row.tobytes()).decode() if packed else row.tolist() for row in encode(texts)]
        data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
        self.answer({"object": "list", "model": "static", "data": data})

    def answer(self, value: dict) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Disable the request log."""


ThreadingHTTPServer(("", int(os.environ.get("PORT", "8000"))), Handler).serve_forever()
