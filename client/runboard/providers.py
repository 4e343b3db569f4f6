"""Formats of embedding and reranking APIs, in one table.

Sources, as of November 2026:

- OpenAI: https://platform.openai.com/docs/api-reference/embeddings/create
- Cohere: https://docs.cohere.com/reference/embed and https://docs.cohere.com/reference/rerank
- Voyage: https://docs.voyageai.com/reference/embeddings-api and https://docs.voyageai.com/reference/reranker-api
- Jina: https://api.jina.ai/openapi.json
- Gemini: https://ai.google.dev/api/embeddings#method:-models.batchembedcontents
- Text Embeddings Inference (TEI): https://huggingface.github.io/text-embeddings-inference/
- vLLM: https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Fields = Mapping[str, Any]


class Format(NamedTuple):
    """Requests and responses of one operation of an API.

    Attributes:
        path: URL path; `{model}` is replaced with the name of the model.
        texts: Request field that contains the texts.
        rows: Nested keys of the list of results in the response, empty if the response itself is the list.
        value: Key of the vector or score in a result, empty if the result itself is the vector.
        tokens: Nested keys of the token count. A single key with a hyphen names a response header. Empty
            if the API does not report tokens.
        limit: Default maximum number of texts per request. Self-hosted servers may accept more.
        dimensions: Request field for the number of dimensions, empty for scores.
        fixed: Fields that every request contains.
        query: Additional fields for queries.
        document: Additional fields for documents.
        model: Field `model` of a request, empty to omit it.
        has_index: Whether each result has the `index` of its text. Otherwise, results are in the order of the texts.
        wraps_texts: Whether the request is a list of requests for single texts, as in Gemini's API.
        key_header: Request header for the API key, empty for `Authorization: Bearer`.
    """

    path: str
    texts: str
    rows: tuple[str, ...]
    value: str
    tokens: tuple[str, ...]
    limit: int
    dimensions: str = ""
    fixed: Fields = {}
    query: Fields = {}
    document: Fields = {}
    model: str = "{model}"
    has_index: bool = True
    wraps_texts: bool = False
    key_header: str = ""


class Provider(NamedTuple):
    """Formats of a provider's API, and the environment variable of its key.

    Keys are read from the environment, because other users of the machine can read command lines. Each provider has its
    own variable, so that a key is not sent to another provider.
    """

    variable: str
    embedding: Format
    reranking: Format | None = None


_USAGE = ("usage", "total_tokens")
#: TEI reports tokens in a header (`router/src/http/types.rs`).
_TEI_TOKENS = ("x-compute-tokens",)
_OPENAI = Format("/v1/embeddings", "input", ("data",), "embedding", _USAGE, 2048, "dimensions",
                 fixed={"encoding_format": "float"})  # fmt: skip
_VOYAGE = _OPENAI._replace(
    limit=1000, dimensions="output_dimension", fixed={}, query={"input_type": "query"},
    document={"input_type": "document"},
)  # fmt: skip
_JINA = _OPENAI._replace(
    limit=512, fixed={"embedding_type": "float"}, query={"task": "retrieval.query"},
    document={"task": "retrieval.passage"},
)  # fmt: skip
_COHERE = Format(
    "/v2/embed", "texts", ("embeddings", "float"), "", ("meta", "billed_units", "input_tokens"), 96,
    "output_dimension", fixed={"embedding_types": ["float"]}, query={"input_type": "search_query"},
    document={"input_type": "search_document"}, has_index=False,
)  # fmt: skip
_GEMINI = Format(
    "/v1beta/models/{model}:batchEmbedContents", "requests", ("embeddings",), "values",
    ("usageMetadata", "promptTokenCount"), 100, "outputDimensionality", query={"taskType": "RETRIEVAL_QUERY"},
    document={"taskType": "RETRIEVAL_DOCUMENT"}, model="models/{model}", has_index=False, wraps_texts=True,
    key_header="x-goog-api-key",
)  # fmt: skip
_TEI = Format("/embed", "inputs", (), "", _TEI_TOKENS, 32, "dimensions", fixed={"truncate": True}, model="",
              has_index=False)  # fmt: skip
_RERANKING = Format("/v1/rerank", "documents", ("results",), "relevance_score", _USAGE, 1000)
#: The API returns raw scores, because its default sigmoid saturates for high scores.
_TEI_RERANKING = Format("/rerank", "texts", (), "score", _TEI_TOKENS, 32,
                        fixed={"truncate": True, "raw_scores": True}, model="")  # fmt: skip

PROVIDERS = {
    "openai": Provider("OPENAI_API_KEY", _OPENAI),
    "cohere": Provider("COHERE_API_KEY", _COHERE, _RERANKING._replace(path="/v2/rerank", tokens=())),
    "voyage": Provider("VOYAGE_API_KEY", _VOYAGE, _RERANKING._replace(rows=("data",))),
    "jina": Provider("JINA_API_KEY", _JINA, _RERANKING._replace(fixed={"return_documents": False})),
    "gemini": Provider("GEMINI_API_KEY", _GEMINI),
    "tei": Provider("TEI_API_KEY", _TEI, _TEI_RERANKING),
    "vllm": Provider("VLLM_API_KEY", _OPENAI, _RERANKING),
}
