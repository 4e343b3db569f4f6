"""URLs of all pages and API endpoints, including `submissions.urls`."""

from django.contrib import admin
from django.urls import include, path, register_converter
from django.views.generic import TemplateView

from leaderboard.api import boards as board_api
from leaderboard.api import documents
from leaderboard.boards.exports import FORMATS
from leaderboard.core.http.redirects import follow_redirects
from leaderboard.models import TeamRedirect
from leaderboard.systems.records import follow_merged
from leaderboard.views import boards, datasets, exchange, health, home, news, public, reference, rounds, site
from leaderboard.views.compare import compare_systems
from leaderboard.views.figures import figure, figure_json, figures

robots = TemplateView.as_view(
    template_name="robots.txt", content_type="text/plain; charset=utf-8", http_method_names=["get", "head"]
)

handler404 = "leaderboard.views.site.not_found"
handler500 = "leaderboard.core.http.errors.server_error"
#: Decorator of team views that redirects from earlier slugs of a team.
follow_renamed = follow_redirects(TeamRedirect, "team", "teams")
handler429 = "leaderboard.views.site.too_many"  # The name that allauth imports.

register_converter(boards.MomentConverter, "moment")

pages = [
    path("", home.home, name="home"),
    path("datasets/", home.leaderboards, name="datasets"),
    path("datasets/<slug:slug>/", boards.dataset, name="dataset"),
    path("datasets/<slug:slug>/queries/", datasets.queries, name="queries"),
    path("datasets/<slug:slug>/queries/<path:query_id>/", datasets.query, name="query"),
    path("datasets/<slug:slug>/rescores/<int:number>/", datasets.rescore, name="rescore"),
    path("datasets/<slug:slug>/rescores/<int:number>/rescore.csv", datasets.rescore_csv, name="rescore-csv"),
    path("benchmarks/", home.leaderboards, name="benchmarks"),
    path("benchmarks/<slug:slug>/", boards.benchmark, name="benchmark"),
    path("rolling/<slug:slug>/", datasets.rolling_benchmark, name="rolling_benchmark"),
    path("search/", home.search_page, name="search"),
    path("datasets/<slug:slug>/share.png", public.board_preview_image, {"kind": "dataset"}, name="dataset_share"),
    path("benchmarks/<slug:slug>/share.png", public.board_preview_image, {"kind": "benchmark"}, name="benchmark_share"),
    path("compare/", compare_systems, name="compare"),
    path("systems/<slug:slug>/", follow_merged(public.system), name="system"),
    path("systems/<slug:slug>/badge.svg", follow_merged(public.badge_svg), name="system_badge"),
    path("systems/<slug:slug>/badge.json", follow_merged(public.badge_data), name="system_badge_data"),
    path("authors/<str:slug>/", public.author, name="author"),
    *(
        path(
            f"systems/<slug:slug>/{name}", follow_merged(exchange.system_export), {"kind": kind}, name=f"system_{kind}"
        )
        for kind, name in (
            ("mteb", "mteb.zip"),
            ("every_eval_ever", "every_eval_ever.json"),
            ("eval_results", "eval_results.yaml"),
            ("bibtex", "bibtex.bib"),
        )
    ),
    path("datasets/<slug:slug>/croissant.json", exchange.dataset_croissant, name="dataset_croissant"),
    path("teams/<slug:slug>/", follow_renamed(public.team), name="team"),
    path("rounds/", rounds.rounds, name="rounds"),
    path("rounds/<slug:slug>/", rounds.one_round, name="round"),
    path("rounds/<slug:slug>/topics/<slug:dataset>/", rounds.round_topics, name="round_topics"),
    path("rounds/<slug:slug>/topics/<slug:dataset>.json", rounds.round_topics_json, name="round_topics_json"),
    path("rounds/<slug:slug>/topics/<slug:dataset>.csv", rounds.round_topics_csv, name="round_topics_csv"),
    path("figures/", figures, name="figures"),
    path("figures/<slug:slug>.json", figure_json, name="figure_json"),
    path("figures/<slug:slug>/", figure, name="figure"),
    path("news/", news.news_page, name="news"),
    path("news/atom.xml", news.atom, name="news_atom"),
    path("datasets/<slug:slug>/atom.xml", news.atom, {"kind": "dataset"}, name="dataset_atom"),
    path("benchmarks/<slug:slug>/atom.xml", news.atom, {"kind": "benchmark"}, name="benchmark_atom"),
    path("docs/", site.docs, name="docs"),
    path("docs/<slug:name>/", site.doc, name="doc"),
    *(path(f"{name}/", site.site_page, {"name": name}, name=name) for name in ("terms", "privacy", "contact")),
    path("measures/", reference.measures, name="measures"),
    path("efficiency/", reference.efficiency, name="efficiency"),
    path("formats/", reference.formats, name="formats"),
]

#: Board exports such as board.csv and board.json, and boards at a past time with the same exports.
board_files = []
for kind in ("dataset", "benchmark"):
    board, earlier = f"{kind}s/<slug:slug>/", f"{kind}s/<slug:slug>/at/<moment:at>/"
    board_files.append(path(earlier, boards.past_board, {"kind": kind}, name=f"{kind}_at"))
    for ending in FORMATS:
        which = {"kind": kind, "ending": ending}
        board_files += [
            path(f"{board}board.{ending}", boards.export, which, name=f"{kind}_{ending}"),
            path(f"{earlier}board.{ending}", boards.export, which, name=f"{kind}_at_{ending}"),
        ]

api_calls = [
    path("datasets/", board_api.DatasetsView.as_view(), name="api-datasets"),
    path("datasets/<slug:slug>/", board_api.DatasetView.as_view(), name="api-dataset"),
    path("datasets/<slug:slug>/board/", board_api.dataset_board, name="api-dataset-board"),
    path("datasets/<slug:slug>/files/", board_api.DatasetFilesView.as_view(), name="api-dataset-files"),
    path("benchmarks/", board_api.BenchmarksView.as_view(), name="api-benchmarks"),
    path("benchmarks/<slug:slug>/board/", board_api.benchmark_board, name="api-benchmark-board"),
    path("systems/<slug:slug>/", follow_merged(board_api.SystemView.as_view()), name="api-system"),
    path("systems/<slug:slug>/recipes/", board_api.RecipesView.as_view(), name="api-recipes"),
    path("search/", board_api.search_results, name="api-search"),
    path("rounds/", board_api.RoundsView.as_view(), name="api-rounds"),
    path("rounds/<slug:slug>/", board_api.RoundView.as_view(), name="api-round"),
    path("schema/", documents.SchemaView.as_view(), name="api-schema"),
    path("docs/", documents.reference, name="api-docs"),
    path("docs/<slug:section>/", documents.reference, name="api-docs-section"),
]

urlpatterns = [
    *pages,
    *board_files,
    path("api/v1/", include(api_calls)),
    path("admin/", admin.site.urls),
    path("favicon.ico", site.favicon, name="favicon"),
    path("site.css", site.site_css, name="site-css"),
    path("site-logo", site.site_logo, name="site-logo"),
    path("robots.txt", robots, name="robots-txt"),
    path(".well-known/security.txt", site.security_txt, name="security-txt"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("", include("submissions.urls")),
]
