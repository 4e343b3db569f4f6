"""What a curator says about a dataset at import."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: Options that are no columns of `Dataset` as they stand.
_OTHERS = (
    "slug", "collecting", "split", "primary", "measures", "baseline", "version_label", "twin_of", "topic_field",
    "source", "strict",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """None means: as it is, or the default for a new dataset.

    `hidden` is True by default. `collecting` opens the dataset for runs before there are judgements. `split` names
    the judgements that runs are scored against. `measures` are those that the board shows, `primary` the first of
    them. `protection` and `public_share` are for new datasets. `baseline` is the run that systems are
    compared with instead of BM25. `twin_of` is the slug of the open dataset whose hidden half this is. `topic_field` is
    the field of TREC topics that is the query, one of `other_formats.FIELDS`. `source` says where the
    collection was fetched from. `strict` refuses judgements of documents that the corpus lacks.
    """

    slug: str
    name: str | None = None
    task: str | None = None
    domain: str | None = None
    language: str | None = None
    licence: str | None = None
    homepage: str | None = None
    citation: str | None = None
    description: str | None = None
    hidden: bool | None = None
    runs_only: bool | None = None
    collecting: bool = False
    split: str = "test"
    primary: str | None = None
    measures: tuple[str, ...] = ()
    relevance_level: int | None = None
    drop_self_matches: bool | None = None
    candidates_only: bool | None = None
    queries_visibility: str | None = None
    documents_visibility: str | None = None
    runs_visibility: str | None = None
    ir_datasets_id: str | None = None
    beir_name: str | None = None
    protection: str | None = None
    public_share: float | None = None
    baseline: Path | None = None
    version_label: str = ""
    twin_of: str | None = None
    topic_field: str | None = None
    source: str = ""
    strict: bool = False

    def columns(self) -> dict[str, Any]:
        """Return the columns of `Dataset` that were said."""
        return {name: said for name, said in asdict(self).items() if said is not None and name not in _OTHERS}
