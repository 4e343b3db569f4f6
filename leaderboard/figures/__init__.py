"""Pictures of what boards say, as data that the browser draws with plotly.js.

The contract
------------
A `Figure` (model.py) has a slug, a title, a sentence for its caption, the kinds of page it is about, and
`build(request: FigureRequest) -> Plot`. `registry.FIGURES` maps slugs to figures: a module makes a constant of each,
which is named there.

    LENGTHS = Figure(
        slug="lengths", title="Lengths of retrieved documents", caption="How long …, for …",
        subjects=("dataset",), build=build,
    )

`build` gets a `FigureRequest` (model.py): the page's `BoardState` (`request.state`), the slugs `benchmark`, `dataset`
and `systems`, the figure's own choices (`request.choice("x")`), and `request.board()`, the board of the page with all
rows that its facets leave. It raises `UnknownChoice` for a parameter that is wrong (answered 400), `SubjectNotFound`
where there is no such page (404), and gives `Plot.empty("why")` where there is nothing to draw.

A `Plot` has plotly's own traces and layout (`graph_objects.go`), which refuse a word that plotly.js does not know. The
first figure that is drawn imports plotly; a page that has frames alone never does:

- `data` and `layout` name colours as `palette` gives them (`var(--figure-blue)`): the browser puts in those of the
  page's light or dark scheme. Never tell by colour alone: hues have symbols or patterns, values are written out.
- Values are lists, not arrays: plotly would write arrays as base64, and the JSON is for people's programs, too.
- Names and titles stand in `data` and `layout` as they are: `as_data` makes every text plain (`model.plain`), but for
  templates, which have no names within (`%{fullData.name}`, `drawing.point_trace`). In templates `<br>` is fine.
- Fonts, grid, margins and ground are the frame's.
- A trace's or a layout's `meta` may be `{"narrow": {…}}`: what replaces its entries on a phone.
- `table` holds what the picture shows, and it is the picture for who does not see it: same values, same order.
- `caption` says what is shown, over which systems and datasets, on which hardware, from which source.
- What is shown of hidden judgements is what their board shows: published means, nothing by query.

In templates
------------
`{% load figures %}{% figure "wins" benchmark=benchmark.slug %}` writes the frame (caption, choices, buttons, links);
the picture, the table and the exact caption come once it is in view. `table=True` builds them at once, for pages
that are about the figure. A frame follows the page's query string, also when htmx changes it. A page that has frames
says `{% figure_assets %}` once: style sheet and script; the bundle is asked for when the first figure comes into view.
JSON: `/figures/<slug>.json?<the board's query string>&benchmark=…|dataset=…&system=…`; each figure has a page of its
own at `/figures/<slug>/`, with the table and without JavaScript.
"""
