"""What the board's template needs: heads with links, the rows as ready HTML, and what a reader may choose.

All choices are links and fields: they are in the address, and none of them needs JavaScript.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from html import escape
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from evaluation.statistics.ladder import PUBLIC_STEP
from leaderboard.boards import rendering
from leaderboard.boards.columns.about import SIZE
from leaderboard.boards.columns.costs import WITH_SPREAD
from leaderboard.boards.columns.significance import CALLED, WINS
from leaderboard.boards.facets import LABELS, Facet
from leaderboard.boards.filtering import offered_presets
from leaderboard.boards.model import DELTA, Board, Column, spans
from leaderboard.boards.state import MOST_PINS, MOST_SORTS, PRESETS, VIEWS, WEIGHED, BoardState, Range, Sort
from leaderboard.models import Entry
from leaderboard.views.board_views import export_links

#: So many letters of a baseline fit the head of a phone's column.
SHORT_NAME = 8
#: Where more systems than these are compared, the legend says how many differ by chance alone.
FEW_COMPARED = 20
#: So many values of a facet are offered as boxes; text search finds the rows of the others.
MOST_OPTIONS = 24
#: How many systems are compared on one page.
FEWEST_COMPARED, MOST_COMPARED = 2, 6
VIEW_LABELS = dict(zip(VIEWS, ("Score", "Δ", "Δ in %", "Rank"), strict=True))


class Choice(NamedTuple):
    """A choice of a list."""

    value: str
    label: str
    chosen: bool


class FilterChip(NamedTuple):
    """A choice in force, and the view without it."""

    label: str
    href: str


def board_context(board: Board, state: BoardState, path: str, permalink: str = "") -> dict[str, Any]:
    """The context of `leaderboard/_board.html`; `path` is the page's address, `permalink` the one that stays."""
    rooms = rendering.spread_widths(board.rows)
    unpin_links = {
        slug: path + state.but(pins=tuple(pin for pin in state.pins if pin != slug)).query_string()
        for slug in state.pins
    }
    return {
        "board": board,
        "state": state,
        "board_path": path,
        "body": rendering.render_rows(
            board, rooms, unpin_links, may_pin=len(state.pins) < MOST_PINS, exact=state.exact
        ),
        "heads": mark_safe(  # noqa: S308
            "".join(_head(board, state, path, place, rooms) for place in range(len(board.shown)))
        ),
        "groups": _groups(board),
        "exports": export_links(path, state),
        "permalink": permalink and permalink + state.query_string(),
        **_controls(board, state, path),
    }


def _head(board: Board, state: BoardState, path: str, place: int, rooms: Mapping[str, int]) -> str:
    """Return the head of a column: a link that sorts by it, or turns the order around."""
    column = board.shown[place]
    sort = Sort(column.key)
    sorting = ""
    if column.key == board.sort:
        sort = Sort(column.key, "asc" if board.order == "desc" else "desc")
        sorting = f' aria-sort="{board.order}ending"'
    href = escape(path + state.but(sorts=(sort,)).query_string())
    better = {"higher": _("higher is better"), "lower": _("lower is better")}.get(column.better, "")
    said = "; ".join(filter(None, (column.note and _(column.note), better)))
    note = f' title="{escape(said)}"' if said else ""
    classes = "name" if place == 0 else "n" if column.numeric else "t"
    if place > 1 and board.shown[place - 1].group != column.group:
        classes += " first"
    room = rendering.spread_box(rooms.get(column.key, 0))
    unit = f'<span class="unit">{escape(_(column.unit))}{room}</span>' if column.unit else ""
    versus = ""  # on a phone, which has no heads of groups
    if column.key == DELTA and len(board.baseline) <= SHORT_NAME:
        versus = f' <span class="vs">{escape(_("vs %(baseline)s") % {"baseline": board.baseline})}</span>'
    return (
        f'<th scope="col" class="{classes}"{sorting}>'
        f'<a href="{href}" id="by-{escape(column.key)}"{note}>{escape(column.head)}</a>{versus}{room}{unit}</th>'
    )


def _groups(board: Board) -> SafeString:
    """The heads of the groups of columns."""
    cells = []
    for number, (label, span) in enumerate(spans(board.shown[1:])):
        first = ' class="first"' if number else ""
        text = escape(label and _(label))
        if label and label == board.cost_group:
            text = f'<a href="{reverse("efficiency")}">{text}</a>'
        cells.append(f'<th scope="colgroup" colspan="{span}"{first}><span><em>{text}</em></span></th>')
    return mark_safe("".join(cells))  # noqa: S308


def _controls(board: Board, state: BoardState, path: str) -> dict[str, Any]:
    """The part of the template's context that tools are made of; `path` is the page's address."""
    chips = list(_chips(board, state, path))
    names = {column.key: column.head for column in board.ranges}
    names.update((column.key, column.head) for column in board.columns)
    provenances = board.counted[0]["provenance"] if board.counted else {}
    reported = provenances.get(Entry.Provenance.REPORTED.value, 0)
    return {
        "measures": _options(_measures(board, state)) if len(board.measures) > 1 else "",
        "views": _options(
            Choice(_unless_first(name, VIEWS), VIEW_LABELS[name], name == (state.view or VIEWS[0]))
            for name in board.views
        ),
        "machines": _options(_machines(board, state)) if len(board.machines) > 1 else "",
        "facets": [_boxes(facet) for facet in board.facets],
        "ranges": _ranges(board, state),
        "weights": [
            (name, f"{weight:g}" if (weight := dict(state.weights).get(name)) else "") for name in WEIGHED
        ]
        if board.machines or state.weights
        else [],
        "chips": chips,
        "hidden_fields": _hidden_fields(board, state),
        "presets": [
            Choice(
                path + state.but(columns=() if name == PRESETS[0] else (name,)).query_string(),
                label,
                (state.columns or PRESETS[:1]) == (name,),
            )
            for name, label in offered_presets(board.unhidden, state.hidden)
        ],
        "quick_filters": list(_quick_filters(board, state, path)),
        "picker": _picker(board),
        "picker_fields": state.but(columns=(), exact=False).pairs(),
        "kinds": {"scored": board.total - reported, "reported": reported, "papers": board.papers},
        "legend": _legend(board),
        "sort_keys": list(_sort_keys(board, state, path, names)),
        "then_by": _options(
            Choice(column.key, column.head, False)
            for column in board.columns
            if len(board.sorts) < MOST_SORTS and column.key not in {sort.key for sort in board.sorts}
        ),
        "page_links": [
            {
                "number": number,
                "href": path + state.but(page=number).query_string(),
                "current": number == board.page,
            }
            for number in range(1, board.pages + 1)
            if board.pages > 1
        ],
        "all_rows_url": path + state.but(all_rows=True).query_string() if board.pages > 1 else "",
        "paged_url": path + state.but(all_rows=False).query_string() if state.all_rows else "",
        "compare_url": _compare_url(board, path),
        "unpin_url": path + state.but(pins=()).query_string() if state.pins else "",
        "status": _status(board, names),
    }


def _quick_filters(board: Board, state: BoardState, path: str) -> Iterator[Choice]:
    """Filters that many readers want, each a link that sets it, or takes it back where it is set."""
    keys = {column.key for column in board.ranges}
    offered = {facet.name for facet in board.facets}
    small = Range(SIZE.key, None, 1000.0)
    quick = Range("mean-latency", None, 10.0)
    yield _quick(state, path, "Zero-shot", state.zero_shot, zero_shot=not state.zero_shot)
    if "weights" in offered:
        is_set = state.chosen("weights") == ("open",)
        view = state.with_facet("weights", () if is_set else ("open",))
        yield Choice(path + view.query_string(), "Open weights", is_set)
    if small.key in keys:
        yield _quick(
            state, path, "Under 1 B parameters", small in state.ranges, ranges=_with_range(state, small)
        )
    if quick.key in keys:
        is_set = state.cpu_only and quick in state.ranges
        ranges = _with_range(state, quick) if is_set or quick not in state.ranges else state.ranges
        yield _quick(state, path, "CPU under 10 ms", is_set, cpu_only=not is_set, ranges=ranges)


def _quick(state: BoardState, path: str, label: str, is_set: bool, **changes: object) -> Choice:
    return Choice(path + state.but(**changes).query_string(), label, is_set)


def _with_range(state: BoardState, wanted: Range) -> tuple[Range, ...]:
    """The ranges with this one in the place of another of its column, or without it where it is there."""
    others = [one for one in state.ranges if one.key != wanted.key]
    chosen = others if wanted in state.ranges else [*others, wanted]
    return tuple(sorted(chosen, key=lambda one: one.key))


def _picker(board: Board) -> SafeString:
    """A check box for each column, by groups; those in sight are checked."""
    shown = {column.key for column in board.shown}
    items = []
    for group, columns in groupby(board.columns[1:], lambda column: column.group_label):
        boxes = "".join(
            f'<li><label><input type="checkbox" id="column-{escape(column.key)}" name="columns" '
            f'value="{escape(column.key)}"{" checked" if column.key in shown else ""}>'
            f"<span>{escape(column.head)}</span></label></li>"
            for column in columns
        )
        items.append(
            f'<fieldset class="facet"><legend>{escape(_(group))}</legend><ul>{boxes}</ul></fieldset>'
        )
    return mark_safe("".join(items))  # noqa: S308


def _legend(board: Board) -> dict[str, Any]:
    """What the legend asks of the board beside its fields; `date` is that of all results, where no column says it."""
    shown, dates = board.shown, {row.value("published") for row in board.rows} - {None}
    least, published = board.statements.least_difference(board.measure), board.statements.published
    coarse = [] if published is None else [c.head for c in shown if c.key in board.measures[1:]]
    if published is not None and published.step >= PUBLIC_STEP:
        coarse = [published.measure, *coarse]
    several = len(board.statements.tied_with_best(board.measure)) > 1
    said_once = len(dates) == 1 and all(column.key != "published" for column in shown)
    return {
        "differences": any(column.kind in ("delta", "relative") for column in shown),
        "least": "" if least is None else f"{least:+.3f}",
        "within": f"{published.tied_within:.3f}" if published is not None and several else "",
        "by_chance": f"{board.compared / 20:.0f}" if board.compared > FEW_COMPARED else "",
        "wins": next((c.note for c in shown if c.key == WINS), ""),
        "coarse": " and ".join(coarse),
        "step": PUBLIC_STEP,
        "noise": any(c.key in WITH_SPREAD for c in shown),
        "lower": list(dict.fromkeys(c.head for c in shown if c.better == "lower" and c.numeric)),
        "date": date.fromisoformat(str(*dates)) if said_once else None,
    }


def _options(choices: Iterable[Choice]) -> SafeString:
    """What a list of choices has. As for boxes, a template would take long for them."""
    items = (
        f'<option value="{escape(value)}"{" selected" if chosen else ""}>{escape(label)}</option>'
        for value, label, chosen in choices
    )
    return mark_safe("".join(items))  # noqa: S308


def _unless_first(name: str, names: Sequence[str]) -> str:
    """What the address says of a choice: nothing where it is the default, the first."""
    return "" if name == names[0] else name


def _measures(board: Board, state: BoardState) -> list[Choice]:
    """A dataset's board shows the measure that it is sorted by, unless another one is named: then the first must be."""
    sorted_by_measure = any(sort.key in board.measures for sort in state.sorts[:1])
    return [
        Choice(
            name if sorted_by_measure else _unless_first(name, board.measures), name, name == board.measure
        )
        for name in board.measures
    ]


def _machines(board: Board, state: BoardState) -> list[Choice]:
    slugs = [machine.slug for machine in board.machines]
    return [
        Choice(
            machine.slug if state.cpu_only else _unless_first(machine.slug, slugs),
            machine.name,
            machine == board.machine,
        )
        for machine in board.machines
    ]


def _boxes(facet: Facet) -> dict[str, Any]:
    """Return a facet with a check box for each offered value, and the number of further values.

    A template would take a tenth of the time of a page for the boxes.
    """
    options = [option for place, option in enumerate(facet.options) if place < MOST_OPTIONS or option.chosen]
    items = (
        f'<li{"" if option.count else _EMPTY}><label><input type="checkbox" id="box-{facet.name}-{number}" '
        f'name="{facet.name}" value="{escape(option.value)}"{_CHECKED if option.chosen else ""}>'
        f'<span>{escape(option.label)}</span> <span class="count" title="{facet.counts}">{option.count}</span>'
        "</label></li>"
        for number, option in enumerate(options, start=1)
    )
    html = mark_safe("".join(items))  # noqa: S308
    return {"facet": facet, "html": html, "more": len(facet.options) - len(options)}


_EMPTY, _CHECKED = ' class="is-empty"', " checked"


def _hidden_fields(board: Board, state: BoardState) -> list[tuple[str, str]]:
    """Return the parameters of the view that have no field in the form."""
    carried = {"sort", "pin", "columns", "exact", "hide", "rows"}
    carried |= {f"{end}-{key}" for key in board.awaited for end in ("min", "max")}
    carried |= set() if board.views else {"view"}
    carried |= set() if board.machines else {"cpu-only", "corpus"}
    return [pair for pair in state.pairs() if pair[0] in carried]


def _ranges(board: Board, state: BoardState) -> list[tuple[str, list[SafeString]]]:
    """Fields for what systems cost and for the measure in focus; then those of every other column, which can wait."""
    bounds = {one.key: one for one in state.ranges}
    usual: list[SafeString] = []
    others: list[SafeString] = []
    for column in board.ranges:
        bound = bounds.get(column.key, Range(column.key, None, None))
        unit = "0.1 is 10%" if column.kind == "relative" else column.unit if column.kind == "figure" else ""
        fields = _range_fields(column, unit, _format_bound(bound.low), _format_bound(bound.high))
        first = column.kind == "figure" or column.key in (board.measure, "mean")
        (usual if first else others).append(fields)
    return [(label, fields) for label, fields in (("", usual), ("Values of other columns", others)) if fields]


def _range_fields(column: Column, unit: str, low: str, high: str) -> SafeString:
    """Two fields for the bounds of a column, with a name that both have."""
    key, label, unit = escape(column.key), escape(column.head), escape(unit)
    return mark_safe(  # noqa: S308
        f'<div class="range" role="group" aria-label="{label}{f", {unit}" if unit else ""}"><span>{label}'
        f"{f' <small>{unit}</small>' if unit else ''}</span>"
        f'<input id="min-{key}" type="number" step="any" name="min-{key}" value="{low}" placeholder="min" '
        f'aria-label="{label}, at least"><span aria-hidden="true">–</span>'
        f'<input id="max-{key}" type="number" step="any" name="max-{key}" value="{high}" placeholder="max" '
        f'aria-label="{label}, at most"></div>'
    )


def _format_bound(bound: float | None) -> str:
    return "" if bound is None else f"{bound:.12g}"


def _sort_keys(board: Board, state: BoardState, path: str, names: dict[str, str]) -> Iterator[dict[str, str]]:
    """The columns that decide the order: turned around and left out by links, where there is something to leave."""
    for number, (key, order) in enumerate(board.sorts):
        sorts = list(board.sorts)
        turned = [*sorts[:number], Sort(key, "asc" if order == "desc" else "desc"), *sorts[number + 1 :]]
        rest = tuple(sorts[:number] + sorts[number + 1 :])
        yield {
            "label": names.get(key, key),
            "order": order,
            "turned": path + state.but(sorts=tuple(turned)).query_string(),
            "without": path + state.but(sorts=rest).query_string() if rest else "",
        }


def _compare_url(board: Board, path: str) -> str:
    slugs = list(dict.fromkeys(row.entry.slug for row in board.rows[: board.pinned]))
    if not FEWEST_COMPARED <= len(slugs) <= MOST_COMPARED:
        return ""
    _, kind, slug, *_ = path.split("/")
    scope = [("benchmark", slug)] if kind == "benchmarks" else []
    return "/compare/?" + urlencode([*(("system", slug) for slug in slugs), *scope])


def _chips(board: Board, state: BoardState, path: str) -> Iterator[FilterChip]:
    """Everything that leaves rows or columns out, or adds some, each with the view without it."""
    for name, values in state.facets:
        labels = {
            option.value: option.label
            for facet in board.facets
            if facet.name == name
            for option in facet.options
        }
        for value in values:
            without = state.with_facet(name, (other for other in values if other != value))
            yield FilterChip(f"{LABELS[name]}: {labels.get(value, value)}", path + without.query_string())
    columns = {column.key: column for column in board.ranges}
    for one in state.ranges:
        rest = tuple(other for other in state.ranges if other != one)
        if one.key in board.awaited:
            label = f"{CALLED[one.key]}: not applied, being computed"
        else:
            column = columns[one.key]
            unit = f" {column.unit}" if column.unit and column.kind == "figure" else ""
            low, high = _format_bound(one.low), _format_bound(one.high)
            bounds = f"{low} to {high}" if low and high else f"≥ {low}" if low else f"≤ {high}"
            label = f"{column.label} {bounds}{unit}"
        yield FilterChip(label, path + state.but(ranges=rest).query_string())
    if state.text:
        yield FilterChip(f"“{state.text}”", path + state.but(text="").query_string())
    if state.zero_shot:
        yield FilterChip("zero-shot only", path + state.but(zero_shot=False).query_string())
    if state.cpu_only:
        label = "measured without a GPU; what was not measured is left out"
        yield FilterChip(label, path + state.but(cpu_only=False).query_string())
    if state.corpus:
        yield FilterChip(f"my corpus: {state.corpus:,} documents", path + state.but(corpus=0).query_string())
    if state.weights:
        weights = ", ".join(f"{name} {weight:g}" for name, weight in state.weights)
        yield FilterChip(f"weights: {weights}", path + state.but(weights=()).query_string())
    for slug in state.hidden:
        rest_hidden = tuple(other for other in state.hidden if other != slug)
        groups = {column.group_slug: column.group_label for column in reversed(board.unhidden)}
        label = f"without {groups.get(slug, slug)}"
        yield FilterChip(label, path + state.but(hidden=rest_hidden).query_string())


def _status(board: Board, names: dict[str, str]) -> str:
    """The view in one sentence, for who listens."""
    total = f"{board.total} row{'' if board.total == 1 else 's'}"
    rows = f"{board.found} of {total}" if board.found != board.total else total
    pages = f", page {board.page} of {board.pages}" if board.pages > 1 else ""
    order = ", then ".join(f"{names.get(key, key)} {order}ending" for key, order in board.sorts)
    pinned = f"; {board.pinned} pinned on top" if board.pinned else ""
    return f"{rows}{pages}, by {order}{pinned}."
