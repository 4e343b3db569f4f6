"""Types of the API's responses, generated from its schema by packages/client_answers.py."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

#: Query parameters of a board's view. Prefixes min- and max- apply to the keys of numeric columns.
VIEW = (
    "architecture",
    "columns",
    "commercial",
    "corpus",
    "cpu-only",
    "domain",
    "exact",
    "gap",
    "hardware",
    "hide",
    "language",
    "licence",
    "measure",
    "page",
    "pin",
    "provenance",
    "q",
    "rows",
    "slice",
    "sort",
    "task",
    "team",
    "training",
    "view",
    "weight-cost",
    "weight-effectiveness",
    "weight-latency",
    "weight-memory",
    "weights",
    "year",
    "zero-shot",
)

SeverityEnum = Literal["error", "warning"]

SubmissionKindEnum = Literal["run", "model"]


class AwaitingRun(TypedDict):
    """A public run that will be scored once there are judgments."""

    system: str
    system_slug: str | None
    team: str
    team_slug: str | None
    tag: str
    run_type: str
    late: bool
    date: str
    submission: str


class Board(TypedDict):
    """A board in one view."""

    title: str
    measure: str
    slice: Slice | None
    slice_choices: list[Slice]
    view: str
    sort: str
    order: str
    sorts: list[Sort]
    total: int
    found: int
    as_of: str | None
    permalink: str
    hardware: Machine | None
    hardware_choices: list[Machine]
    columns: list[Column]
    certainty: CertaintySettings | None
    summary: Summary | None
    verdict: Verdict | None
    least_difference: float | None
    rows: list[Row]
    notes: list[str]


class Certainty(TypedDict):
    """Confidence interval and significance tests of a score, explained on the page about significance."""

    p_best_is_bound: bool
    p_baseline_is_bound: bool
    test: str
    tested_over: str
    low: float
    high: float
    delta: float | None
    delta_low: float | None
    delta_high: float | None
    p_baseline: float | None
    wins: int | None
    ties: int | None
    losses: int | None
    p_baseline_corrected: float | None
    p_best: float | None
    p_best_corrected: float | None
    without_own: float | None
    p_next: float | None
    rank_low: int | None
    rank_high: int | None


class CertaintySettings(TypedDict):
    """Settings of the significance tests of a board's rows."""

    current: NotRequired[bool]
    interval: str
    level: float
    resamples: int
    test: str
    permutations: int
    seed: int
    correction: str
    pairs_correction: str
    pairs_permutations: int
    alpha: float


class Charge(TypedDict):
    """Quota use of a submission to a hidden dataset."""

    dataset: str
    counted: bool
    refund_reason: str
    quota: Quota | None


class Checkpoint(TypedDict):
    """The model of a submission."""

    kind: str
    model_type: str | None
    parameters: int | None
    dimension: int | None
    maximum_length: int | None
    pooling: str | None
    similarity: str | None
    prompts: dict[str, str] | None
    prompt_template: str | None
    id: int
    sha256: str
    file_name: str
    size: int
    digest: str | None


class Column(TypedDict):
    """A column of a board."""

    key: str
    label: str
    group: str
    group_slug: str
    better: str
    unit: str
    note: str


class ContaminationGap(TypedDict):
    """Difference between a system's gain over the baseline on public and on hidden topics, in the primary measure."""

    shown: bool
    value: float
    low: float
    high: float
    public: float
    hidden: float


class Dataset(TypedDict):
    """A dataset with all details except its board."""

    slug: str
    name: str
    task: str
    domain: str
    language: str
    licence: str
    state: str
    hidden: bool
    runs_only: bool
    primary_measure: str
    entries: int
    statistics: DatasetStatistics
    homepage: str
    citation: str
    description: str
    protection: str
    public_share: float
    daily_quota: int | None
    monthly_quota: int | None
    measures: list[str]
    relevance_level: int
    drop_self_matches: bool
    candidates_only: bool
    runs_visibility: str
    queries_visibility: str
    documents_visibility: str
    ir_datasets_id: str
    beir_name: str
    reported_statistics: dict[str, Any]
    created_at: str
    version: DatasetVersion | None
    awaiting_judgements: list[AwaitingRun]
    agreement: str | None
    rounds: list[str]
    withdrawn: list[Tombstone]
    quarantined: list[Quarantined]
    benchmarks: list[Named]
    parts: list[str]
    example: Example | None
    snippets: list[Snippet]
    judgements: list[JudgedVersion]
    part_of: str | None
    twin: str | None
    nearest: list[Neighbour]
    remarks: list[str]


class DatasetList(TypedDict):
    """All datasets."""

    datasets: list[DatasetSummary]


class DatasetStatistics(TypedDict):
    """Statistics of a collection as in Table 1 of the BEIR paper; null if unknown."""

    judgements: NotRequired[int | None]
    queries: int | None
    documents: int | None
    relevant_per_query: float | None
    words_per_query: float | None
    words_per_document: float | None
    relevance_levels: int | None
    reported: bool


class DatasetSummary(TypedDict):
    """A dataset in the list of datasets."""

    slug: str
    name: str
    task: str
    domain: str
    language: str
    licence: str
    state: str
    hidden: bool
    runs_only: bool
    primary_measure: str
    entries: int
    statistics: DatasetStatistics


class DatasetVersion(TypedDict):
    """A version of a dataset's content."""

    number: int
    label: str
    content_sha256: NotRequired[str]
    statistics: dict[str, Any]


class Efficiency(TypedDict):
    """Costs measured during a model's job, as documented on `/efficiency/`."""

    hardware: str
    protocol: str
    measured_at: str
    figures: dict[str, Any]
    baseline: dict[str, Any]
    baseline_off: float
    doubt: str
    times_bm25: float | None


class Example(TypedDict):
    """A query and a document, truncated if they are long."""

    query_id: str
    query: str
    document_id: str
    title: str
    text: str
    grade: int | None


class File(TypedDict):
    """A file of a dataset."""

    name: str
    kind: str
    description: str
    size: int
    sha256: str
    url: str


class Interval(TypedDict):
    """Bounds of an interval."""

    low: float
    high: float


class Job(TypedDict):
    """A submission's job for one dataset, or for one run of a seed set."""

    dataset: str
    seed: str
    state: str
    meaning: str
    held: bool
    told_later: bool
    stage: str
    progress: float
    progress_note: str
    shards: Shards | None
    queue: str
    queue_position: int | None
    no_worker: str
    awaiting_judgements: bool
    attempts: int
    scores: dict[str, float]
    deltas: dict[str, dict[str, float]]
    missing_queries: int | None
    problems: list[Problem]
    log: list[str]
    error: str
    error_code: str
    remedy: str
    parameters: dict[str, Any]
    facts: dict[str, Any]
    efficiency: Efficiency | None
    variants: list[Variant]
    board: str
    run_url: str | None


class JudgedVersion(TypedDict):
    """A version of the judgments and a description of its changes."""

    version: str
    split: str
    number: int
    date: str
    changes: str
    current: bool
    page: str


class Machine(TypedDict):
    """A hardware class."""

    slug: str
    name: str
    has_gpu: bool


class Measured(TypedDict):
    """Cost of a result on one machine."""

    hardware: str
    protocol: str
    measured_at: str
    figures: dict[str, Any]
    baseline: dict[str, Any]
    baseline_off: float
    doubt: str


class Model(TypedDict):
    """A model as described by its files."""

    kind: str
    model_type: str
    parameters: int
    dimension: int | None
    maximum_length: int | None
    pooling: str
    similarity: str
    prompts: dict[str, str]
    prompt_template: str


class Named(TypedDict):
    """An object with a page."""

    slug: str
    name: str


class NamedResult(TypedDict):
    """A result of a board, identified by its system."""

    system: str
    slug: str
    configuration: str


class Neighbour(TypedDict):
    """A similar dataset; `overlap` of the vocabularies is between 0 and 1."""

    slug: str
    name: str
    overlap: float


class Problem(TypedDict):
    """A kind of problem in a file, with its occurrences."""

    severity: SeverityEnum
    code: str
    count: int
    lines: list[int]
    message: str
    hint: str


class PublishedScore(TypedDict):
    """Score that a publication reports for the same model on the same dataset."""

    value: float
    difference: float
    source: str


class Quarantined(TypedDict):
    """A result that a curator removed from the ranking."""

    system: str
    slug: str
    reason: str


class Quota(TypedDict):
    """Remaining submissions to a hidden dataset."""

    dataset: str
    team: str | None
    awaits_approval: bool
    left: int | None
    resets_at: str
    day: Window
    month: Window


class Recipe(TypedDict):
    """Recipe for reproducing a result, or only the `reason` why that is impossible."""

    reason: str
    parameters: dict[str, Any]
    checkpoint: dict[str, Any]
    depth: int
    tag: str
    run_sha256: str
    files: dict[str, str]
    scores: dict[str, float]
    software: str
    dataset: str
    configuration: str
    engine: str
    language: str
    drop_self_matches: bool


class Report(TypedDict):
    """Validation report of a file."""

    valid: bool
    problems: list[Problem]
    statistics: Statistics
    checkpoint: Model | None
    pending: list[str]


class Result(TypedDict):
    """Rank of a result on its dataset's board by the primary measure; for hidden datasets, published values."""

    dataset: str
    sentence: str
    delta: float | None
    rank: int | None
    of: int
    ties: list[int] | None
    board: str


class Row(TypedDict):
    """A row of a board."""

    rank: int | None
    ranked_among: str
    system: str
    slug: str
    configuration: str
    baseline: bool
    provenance: str
    architecture: str
    training: str
    comparison_group: str
    missing_queries: int | None
    late: bool
    manual: bool
    pooled: bool
    values: dict[str, float | str | None]
    spreads: dict[str, str]
    withdrawn: str | None
    quarantined: str | None
    challenged: bool
    better_than_baseline: bool | None
    tied_with_best: bool | None
    contamination_gap: ContaminationGap | None
    published: PublishedScore | None
    marks: dict[str, str]
    doubtful: list[str]
    measured: Measured | None
    certainty: Certainty | None
    certainty_by_dataset: dict[str, Certainty]
    intervals: dict[str, Interval]


class SeedSet(TypedDict):
    """Several runs for one dataset, published as one result once all are scored."""

    dataset: str
    seeds: list[str]
    published: bool
    held: bool
    told_later: bool
    meaning: str
    missing: list[str]
    scores: dict[str, float]
    deviations: dict[str, float]
    deltas: dict[str, dict[str, float]]


class Shards(TypedDict):
    """Progress of all workers on the shards of a corpus."""

    done: int
    expected: int
    documents_per_second: float | None
    seconds_left: float | None
    cost: float | None
    currency: str


class Slice(TypedDict):
    """A subset of the judged queries."""

    name: str
    label: str
    queries: int
    judged_queries: int


class Snippet(TypedDict):
    """Code that loads the dataset with one tool."""

    tool: str
    language: str
    code: str


class Sort(TypedDict):
    """A column by which rows are sorted."""

    key: str
    order: str


class Statistics(TypedDict):
    """Statistics of a validated file."""

    lines: int
    queries: int
    known_queries: int
    depth: int
    expanded_bytes: int
    tags: list[str]
    metadata: dict[str, Any]


class Submission(TypedDict):
    """A submission."""

    id: str
    round: str | None
    late: bool
    run_type: str
    priority: int | None
    state: str
    meaning: str
    kind: str
    system: str
    system_name: str
    team: str
    configuration: str
    public: bool
    reusable: bool
    engine: str
    parameters: dict[str, Any]
    checkpoint: Checkpoint | None
    created: str
    withdrawal_reason: str
    queue_position: int | None
    workers_alive: int | None
    jobs: list[Job]
    results: list[Result]
    seed_sets: list[SeedSet]
    charges: list[Charge]
    url: str


class SubmissionPage(TypedDict):
    """A page of submissions."""

    count: int
    next: str | None
    previous: str | None
    results: list[Submission]


class Summary(TypedDict):
    """Sentence above a board's table, and the facts that it states. Filters do not change it."""

    text: str
    best: str
    measure: str
    score: float
    relative: float | None
    better: bool | None
    p: float | None
    p_corrected: float | None
    tied: list[str]
    cheapest: str | None
    latency_ms: float | None
    above_bound: bool | None


class Tombstone(TypedDict):
    """Public remainder of a withdrawn result."""

    system: str
    slug: str
    date: str
    reason: str


class Upload(TypedDict):
    """A resumable upload."""

    id: str
    kind: SubmissionKindEnum
    file_name: str
    length: int
    offset: int
    complete: bool
    sha256: str
    created: str
    expires: str
    url: str


class Variant(TypedDict):
    """An additional result of the same job, such as a smaller depth."""

    configuration: str
    scores: dict[str, float]
    facts: dict[str, Any]
    latency_ms: float | None


class Verdict(TypedDict):
    """Result of the corrected tests for the whole board, independent of the view's rows."""

    best: NamedResult
    ties: list[NamedResult]
    baseline: NamedResult | None
    compared: int
    better: int
    worse: int
    revision: int
    at: str


class Window(TypedDict):
    """Usage within a day or calendar month (UTC)."""

    used: int
    by_person: int
    by_team: int
    limit: int | None
    left: int | None
    resets_at: str
