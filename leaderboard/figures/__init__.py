"""Figures about boards, as data that the browser draws with plotly.js.

The contract
------------
A `Figure` (model.py) has a slug, a question as its title, a sentence for its caption, the kinds of page it is
about, and `build(request: FigureRequest) -> Plot`. `registry.FIGURES` maps slugs to figures; each figure is a constant
of its module.

    LENGTHS = Figure(
        slug="lengths", title="How long are retrieved documents?", caption="Lengths of …, for …",
        subjects=("dataset",), build=build,
    )

`build` gets a `FigureRequest` (model.py): the page's `BoardState` (`request.state`), the slugs `benchmark`, `dataset`
and `systems`, the figure's own choices (`request.choice("x")`), and `request.board()`, the filtered board of the page.
It raises `UnknownChoice` for an invalid parameter (status 400) and `SubjectNotFound` for an unknown page (404), and
returns `Plot.empty("reason")` if there is nothing to draw.

A `Plot` has plotly's own traces and layout (`graph_objects.go`), which reject options that plotly.js does not know. The
first figure that is drawn imports plotly; pages that only have frames never import it:

- `data` and `layout` name colors as custom properties (`var(--figure-blue)`); the browser inserts those of the page's
  light or dark scheme. Never rely on color alone: hues have symbols or patterns, and values are written out.
- Values are lists, not arrays: plotly would encode arrays in base64, but users' programs read the JSON, too.
- `data` and `layout` contain names and titles verbatim: `as_data` escapes all texts (`model.escape_markup`) except
  templates, which must not contain names (`%{fullData.name}`, `drawing.point_trace`). Templates may contain `<br>`.
- The frame sets fonts, grid, margins, and background.
- `meta` of a trace or layout may be `{"narrow": {…}, "wide": {…}}`, with options that replace its own on a phone, or
  if the plot is at least 1000 px wide.
- `finding`, if any, replaces the question in the title. It must hold for all ties, filters, and missing values.
- `table` is the accessible alternative of the picture: same values, same order.
- `caption` states what is shown, over which systems and datasets, on which hardware, from which source.
- A figure of hidden judgments shows no more than their board: published means, nothing by query.

In templates
------------
`{% load figures %}{% figure "wins" benchmark=benchmark.slug %}` writes the frame (caption, choices, buttons, links);
picture, table, and exact caption are loaded when it scrolls into view. `table=True` builds them at once, for pages
about the figure. A frame follows the page's query string, also when htmx changes it. A page with frames needs
`{% figure_assets %}` once, for style sheet and script; the bundle is loaded when the first figure scrolls into view.
JSON: `/figures/<slug>.json?<the board's query string>&benchmark=…|dataset=…&system=…`. Each figure also has a page at
`/figures/<slug>/`, with the table and without JavaScript.
"""
