"""Markdown, LaTeX and BibTeX of a board: well formed whatever its texts are, and with what a paper needs."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
import time
from pathlib import Path

import bibtexparser
import pytest
from django.test import Client
from pylatexenc.latexwalker import LatexEnvironmentNode, LatexMacroNode, LatexNode, LatexWalker

from leaderboard.boards.exports.texts import MAX_COLUMNS, bibliography
from leaderboard.core.text.bibtex import parse_entries
from leaderboard.core.text.latex import escape, escape_url
from leaderboard.models import Benchmark, Dataset, Source
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import make_source, make_system, report, score, scored_dataset
from tests.leaderboard.entries_by_query import score_queries
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db

NASTY = r"A_b & 50% of $x^2$ #1 {é} ~ \input{x} “Δ” ‡ 系统 <b> | `c` *d*"


def latex_nodes(text: str) -> list[LatexNode]:
    """The LaTeX as nodes. Raises for unbalanced braces, environments and mathematics."""
    nodes, _, _ = LatexWalker(text, tolerant_parsing=False).get_latex_nodes()
    found: list[LatexNode] = nodes
    return found


def environments(nodes: list[LatexNode]) -> dict[str, LatexEnvironmentNode]:
    """Every environment within, by name."""
    found = {}
    for node in nodes:
        if isinstance(node, LatexEnvironmentNode):
            found[node.environmentname] = node
        for inner in getattr(node, "nodelist", None) or []:
            found.update(environments([inner]))
        for argument in getattr(getattr(node, "nodeargd", None), "argnlist", None) or []:
            found.update(environments([argument] if argument is not None else []))
    return found


def table_shape(text: str) -> tuple[int, int]:
    """Rows of the body and columns of the table; every row must have as many cells as there are columns."""
    found = environments(latex_nodes(text))
    assert {"table", "tabular"} <= found.keys()
    tabular = text[text.index(r"\begin{tabular}") : text.index(r"\end{tabular}")]
    wanted = re.match(r"\\begin\{tabular\}\{r>\{\\raggedright\\arraybackslash\}p\{0\.18\\linewidth\}([rl]*)\}", tabular)
    assert wanted
    columns = 2 + len(wanted[1])
    body = tabular[tabular.index(r"\midrule") + len(r"\midrule") : tabular.index(r"\bottomrule")]
    rows = [line for line in body.strip().split("\n") if line and not re.match(r"\\midrule|\\multicolumn", line)]
    for row in rows:
        assert row.endswith(r"\\")
        assert len(re.findall(r"(?<!\\)&", row)) + 1 == columns, row
    head = tabular[tabular.index(r"\toprule") : tabular.index(r"\midrule")]
    spans = [int(span) for span in re.findall(r"\\multicolumn\{(\d+)\}", head)]
    assert sum(spans) <= columns
    return len(rows), columns


def compile_latex(text: str, folder: Path, *, insist: bool = False) -> str:
    """Typeset the table where the machine has a TeX, and return TeX's log. `insist`: to have none is a failure."""
    program = next((name for name in ("pdflatex", "xelatex", "lualatex") if shutil.which(name)), "")
    if not program:
        assert not insist, "this needs a TeX: apt-get install texlive-latex-recommended"
        return ""
    document = "\n".join(
        [
            r"\documentclass{article}",
            r"\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}\usepackage{array,booktabs,url}",
            r"\begin{document}",
            r"\listoftables",
            text,
            r"\end{document}",
        ]
    )
    (folder / "board.tex").write_text(document)
    for _ in range(2):  # the list of tables is set from what the first run wrote
        done = subprocess.run(
            [program, "-interaction=nonstopmode", "-halt-on-error", "board.tex"],
            cwd=folder,
            capture_output=True,
        )
        assert done.returncode == 0, done.stdout[-2000:].decode(errors="replace")
    return (folder / "board.log").read_text(errors="replace")


def too_wide(log: str) -> list[str]:
    """By how many points a line of what TeX set is wider than the text, where that can be seen."""
    return [points for points in re.findall(r"Overfull \\hbox \((\d+)", log) if int(points) > 5]


def nasty_dataset() -> Dataset:
    """A dataset, systems and publications with names that mean something in every format."""
    dataset = scored_dataset(name=f"Set {NASTY}")
    score(dataset, "BM25", baseline=True, ndcg=0.25, recall=0.75)
    score(dataset, make_system(NASTY, bibtex="@misc{same, title={One}}"), ndcg=0.5, recall=0.5)
    score(dataset, make_system("Two", bibtex="@misc{same, title={Two {nested} braces}}"), ndcg=0.4)
    score(dataset, make_system("Broken", bibtex="@article{open, title={never closed"), ndcg=0.3)
    return dataset


def test_latex_of_the_strangest_names_is_balanced_and_has_its_rows_and_columns(client: Client, tmp_path: Path) -> None:
    dataset = nasty_dataset()
    answer = client.get(f"/datasets/{dataset.slug}/board.tex")
    assert answer.headers["Content-Type"] == "text/x-tex; charset=utf-8"
    text = answer.content.decode()
    board = client.get(f"/datasets/{dataset.slug}/board.json").json()
    assert table_shape(text) == (4, min(len(board["columns"]) + 1, MAX_COLUMNS))
    assert r"\textbf{0.5000}" in text
    assert r"\underline{0.4000}" in text
    assert r"\input{x}" not in text
    assert "permanent" not in text
    assert re.search(r"\\url\{http://testserver/datasets/[\w-]+/at/[\dTZ:-]+/\}", text)
    compile_latex(text, tmp_path)


@pytest.mark.parametrize(
    "path",
    [
        "/benchmarks/beir/board.tex",
        "/benchmarks/beir/board.tex?view=delta&hide=about&pin=bm25-beir-2021",
        "/datasets/dbpedia-entity/board.tex?q=col&sort=system",
        "/datasets/nq/board.tex?q=nothing-is-called-so",
    ],
)
def test_latex_of_reported_boards(client: Client, path: str, tmp_path: Path) -> None:
    load_reported()
    text = client.get(path).content.decode()
    board = client.get(path.replace(".tex", ".json")).json()
    assert table_shape(text) == (len(board["rows"]), min(len(board["columns"]) + 1, MAX_COLUMNS))
    assert not re.search("[Δ‡−†—×]", text)
    compile_latex(text, tmp_path)


def test_any_text_becomes_latex_that_a_parser_reads() -> None:
    for text in (NASTY, "".join(map(chr, range(1, 0x500))), "\u202e\u0000\ud7ff", "{" * 5, "\\" * 5, "$$$"):
        latex_nodes(escape(text))
    assert escape("αβ ω Δ ‡ naïve Łukasz ﬁ") == (r"$\alpha$$\beta$ $\omega$ $\Delta$ $^{\ddagger}$ naïve Łukasz fi")
    assert escape('"odd" ("even") 5" a"b') == "``odd'' (``even'') 5'' a''b"
    assert escape_url("http://x/?a=50%&b=#é{}") == r"http://x/?a=50\%&b=\#\%C3\%A9\%7B\%7D"


def test_the_tests_are_named_in_latex_and_pyterriers_columns_are_in_csv(client: Client) -> None:
    dataset = scored_dataset()
    queries = 40
    score_queries(dataset, "BM25", [0.2] * queries, baseline=True)
    score_queries(dataset, "Better", [0.8] * (queries - 1) + [0.1])
    score_queries(dataset, "Same", [0.2] * queries)
    compute_certainty(dataset)
    text = client.get(f"/datasets/{dataset.slug}/board.tex").content.decode()
    assert "permutations" in text
    assert "p vs BM25: two-sided paired randomization test" in text
    assert "systems with a range that starts at 1 are not separable from the best" in text
    assert r"\textbf{0.7825} & " in text
    table = csv.DictReader(io.StringIO(client.get(f"/datasets/{dataset.slug}/board.csv").content.decode()))
    rows = {row["system"]: row for row in table}
    better = rows["Better"]
    assert (better["nDCG@10 +"], better["nDCG@10 -"], better["nDCG@10 reject"]) == ("39", "1", "True")
    assert float(better["nDCG@10 p-value"]) <= float(better["nDCG@10 p-value corrected"]) < 0.05
    assert rows["Same"]["nDCG@10 reject"] == "False"
    assert rows["BM25"]["nDCG@10 +"] == rows["BM25"]["nDCG@10 reject"] == ""


def test_intervals_are_numbers_in_csv_and_json(client: Client) -> None:
    dataset = scored_dataset()
    score_queries(dataset, "BM25", [0.2] * 20 + [0.4] * 20, baseline=True)
    report(dataset, make_source("paper"), "printed", ndcg=0.4)
    compute_certainty(dataset)
    benchmark = Benchmark.objects.create(slug="all", name="All")
    benchmark.members.create(dataset=dataset, position=1)
    for board, key in (
        (f"/datasets/{dataset.slug}", "nDCG@10"),
        ("/benchmarks/all", dataset.slug),
    ):
        table = csv.DictReader(io.StringIO(client.get(f"{board}/board.csv").content.decode()))
        rows = {row["system"]: row for row in table}
        low, high = (float(rows["BM25"][f"{key} interval {end}"]) for end in ("low", "high"))
        assert 0.2 < low < 0.3 < high < 0.4
        assert rows["printed"][f"{key} interval low"] == ""
        found = {row["system"]: row for row in client.get(f"{board}/board.json").json()["rows"]}
        assert found["BM25"]["intervals"] == {key: {"low": low, "high": high}}
        assert found["printed"]["intervals"] == {}


def test_markdown_is_one_table_with_the_best_in_bold(client: Client) -> None:
    dataset = nasty_dataset()
    lines = client.get(f"/datasets/{dataset.slug}/board.md").content.decode().splitlines()
    table = [line for line in lines if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
    assert len(table) == 2 + 4
    assert len(widths) == 1
    assert "**0.5000**" in table[2]
    assert r"\<b\> \| \`c\` \*d\*" in table[2]
    assert lines[-1].endswith("/>")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("https://evil.example", "https&#8203;://evil.example"),
        ("see WWW.evil.example", "see WWW&#8203;.evil.example"),
        ("@someone (@team/a)", "@&#8203;someone (@&#8203;team/a)"),
        ("a.b@c_d.org", r"a.b@&#8203;c\_d.org"),
        ("me/it#12 GH-7", r"me/it\#&#8203;12 GH&#8203;-7"),
        ("nDCG@10 on C# 4.5", r"nDCG@10 on C\# 4.5"),
    ],
)
def test_nothing_in_markdown_is_a_link_or_calls_anybody(client: Client, name: str, written: str) -> None:
    dataset = scored_dataset()
    score(dataset, name, ndcg=0.5)
    assert f"| {written} |" in client.get(f"/datasets/{dataset.slug}/board.md").content.decode()


def test_bibtex_has_the_dated_board_and_every_publication_once_under_a_key_of_its_own(client: Client) -> None:
    dataset = nasty_dataset()
    source = make_source("ada-2020")
    Source.objects.filter(pk=source.pk).update(bibtex="@inproceedings{ada2020,\n  title = {{On}},\n}")
    for name in ("First", "Second"):
        report(dataset, source, name, ndcg=0.1)
    text = client.get(f"/datasets/{dataset.slug}/board.bib").content.decode()
    library = bibtexparser.parse_string(text)
    assert not library.failed_blocks
    assert text.startswith("% Best: ")
    assert "@" not in text.partition("\n")[0]
    keys = [entry.key for entry in library.entries]
    assert len(keys) == len(set(keys)) == 4
    assert keys[0].startswith(f"dataset-{dataset.slug}-20")
    assert set(keys[1:]) == {"same", "same-2", "ada2020"}
    own = library.entries[0].fields_dict
    assert "/at/" in own["howpublished"].value
    assert own["note"].value.startswith("Leaderboard as of 20")
    assert re.search(r"^  month = [a-z]{3},$", text, re.MULTILINE)
    assert "% No reference is known for: Broken, BM25" in text


def test_what_is_no_bibtex_is_left_out() -> None:
    assert parse_entries("@misc{a, x={1}} noise @comment{c, d} @book{b, y={2}}")[1].key == "b"
    assert [reference.key for reference in parse_entries("@a{x, {{} @misc{k, t={u}}")] == ["k"]
    found = parse_entries("@misc{K, t={1}} @misc{k, t={2}} @misc{K,  t={1}}")
    assert bibliography(found) == ["@misc{K, t={1}}", "@misc{k-2, t={2}}"]


@pytest.mark.parametrize(
    "text",
    [
        '@article{k, title={x\\}}\n@preamble{"\\input{evil}"}\n, note={\\{}}',
        '@article{k, title={x\\{\\{}} @preamble{"\\input{evil}"} \\}\\}}}',
        '@article{k, !, note={@preamble{"\\input{evil}"}}}',
        '@article{k, !, note={@ preamble ("\\input{evil}")}}',
        "@article{k, title={swallows the next\\}}",
        "@article{k, title={ends early\\{}} , note={}}",
    ],
)
def test_no_reference_ends_or_begins_another(client: Client, text: str) -> None:
    dataset = scored_dataset()
    score(
        dataset,
        make_system("Evil", bibtex=f'{text} @misc{{good, title={{A \\"{{u}} and a@b.org}}}}'),
        ndcg=0.5,
    )
    export = client.get(f"/datasets/{dataset.slug}/board.bib").content.decode()
    assert "evil" not in export
    assert "@misc{good," in export
    assert len(re.findall(r"@\w+\{", export)) == 2


def test_references_are_read_in_linear_time() -> None:
    for text in ("@a{b,", "@", "@a{b,}", "@a{", "{", "@a{b,c={@", "@ a"):
        started = time.process_time()  # of this process alone: a busy machine does not lengthen it
        parse_entries(text * 20_000)
        assert time.process_time() - started < 10


@pytest.mark.parametrize(
    ("view", "said", "key", "head"),
    [
        ("delta", "Difference from BM25 in nDCG@10", "fiqa delta", "FiQA-2018 Δ"),
        ("relative", "Relative difference from BM25 in nDCG@10", "fiqa relative", "FiQA-2018 Δ %"),
        ("rank", "Rank by nDCG@10", "fiqa rank", "FiQA-2018 rank"),
    ],
)
def test_exports_of_a_view_say_which_one_it_is(client: Client, view: str, said: str, key: str, head: str) -> None:
    load_reported()

    def text(ending: str) -> str:
        return client.get(f"/benchmarks/beir/board.{ending}?view={view}&domain=Finance").content.decode()

    heading, _, _verdict, _, heads, *_, where = text("md").splitlines()
    assert heading.startswith(f"**BEIR**, {said}: 10 of 10 rows; 1 of 19 datasets, chosen by domain: Finance.")
    assert f" {head} |" in heads
    assert re.search(rf"as of \d{{4}}-.*Z: <http://testserver/benchmarks/beir/at/.*view={view}", where)
    board = client.get(f"/benchmarks/beir/board.json?view={view}&domain=Finance").json()
    assert board["view"] == view
    assert head in [column["label"] for column in board["columns"]]
    assert "fiqa" in board["rows"][0]["values"]
    caption = text("tex").partition(r"\caption[{BEIR}]{")[2]
    assert caption.startswith(escape(f"{said} on BEIR (benchmark), all rows; 1 of 19 datasets, chosen by domain"))
    narrow = client.get(f"/benchmarks/beir/board.tex?view={view}&domain=Finance&hide=over-all&hide=delta").content
    assert all(escape(word) in narrow.decode() for word in head.split())
    assert f"title = {{{{BEIR: {said}}}}}" in text("bib")
    rows = list(csv.DictReader(io.StringIO(text("csv"))))
    assert "fiqa" not in rows[0]
    assert key in rows[0]
    assert {(row["measure"], row["view"]) for row in rows} == {("nDCG@10", view)}
    assert {(row["as_of"], row["permalink"]) for row in rows} == {(board["as_of"], board["permalink"])}


def test_exports_of_scores_name_no_view(client: Client) -> None:
    load_reported()
    assert client.get("/benchmarks/beir/board.json").json()["view"] == "score"
    assert "**BEIR**, nDCG@10: 10 of 10 rows.\n" in client.get("/benchmarks/beir/board.md").content.decode()
    rows = csv.DictReader(io.StringIO(client.get("/benchmarks/beir/board.csv").content.decode()))
    assert next(rows)["view"] == "score"


def test_latex_shows_what_can_be_read(client: Client, tmp_path: Path) -> None:
    """Eight columns, none smaller than 8 points, no wider than the text of an article; what is left out is said."""
    load_reported()
    wide = client.get("/benchmarks/beir/board.tex").content.decode()
    narrow = client.get(
        "/benchmarks/beir/board.tex?domain=Finance&hide=about&hide=efficiency&hide=delta&hide=over-all"
    ).content.decode()
    assert table_shape(wide)[1] == MAX_COLUMNS
    assert "% Not shown" in wide
    assert r"\footnotesize" in wide
    assert table_shape(narrow)[1] < MAX_COLUMNS
    assert "% Not shown" not in narrow
    assert r"\footnotesize\setlength" not in narrow
    for text in (wide, narrow):
        assert not re.search(r"\\(resizebox|scalebox|tiny|scriptsize)", text)
        assert not too_wide(compile_latex(text, tmp_path))


def test_numbers_come_before_texts_in_latex_and_what_does_not_fit_is_left_out(client: Client, tmp_path: Path) -> None:
    load_reported()
    text = client.get("/datasets/nq/board.tex?hide=effectiveness").content.decode()
    head = next(line for line in text.split("\n") if line.startswith(r"\#"))
    assert "Architecture" in head
    assert head.index("R@100") < head.index("Architecture")
    assert re.search("% Not shown .*: .*by", text)
    assert not too_wide(compile_latex(text, tmp_path))
    of_costs = client.get("/datasets/entityquestions/board.tex").content.decode()
    assert "Latency" in of_costs
    assert "Architecture" not in of_costs
    assert not too_wide(compile_latex(of_costs, tmp_path))


@pytest.mark.long
def test_every_board_is_typeset_by_tex(client: Client, tmp_path: Path) -> None:
    load_reported()
    nasty = nasty_dataset()
    slugs = Dataset.objects.filter(entries__isnull=False).distinct().values_list("slug", flat=True)
    addresses = [f"/datasets/{slug}/board.tex" for slug in {*slugs, nasty.slug}]
    addresses += [f"/benchmarks/{slug}/board.tex" for slug in Benchmark.objects.values_list("slug", flat=True)]
    assert len(addresses) > 20
    for path in addresses:
        for query in ("", "?hide=effectiveness", "?hide=effectiveness&hide=delta", "?hide=efficiency"):
            text = client.get(path + query).content.decode()
            log = compile_latex(text, tmp_path, insist=True)
            assert log, path
            assert not too_wide(log), path + query
            assert table_shape(text)[1] <= MAX_COLUMNS


def test_mean_ranks_have_two_decimals(client: Client) -> None:
    load_reported()
    markdown = client.get("/benchmarks/beir/board.md").content.decode()
    place = markdown.splitlines()[4].split(" | ").index("Mean rank")
    shown = [line.split(" | ")[place] for line in markdown.splitlines()[6:] if line.startswith("|")]
    assert all(re.fullmatch(r"[*]*\d+\.\d\d[*]*|—", text) for text in shown)
    page = client.get("/benchmarks/beir/?columns=all").content.decode()
    for text in shown:
        assert f">{text.strip('*')}<" in page


def test_exports_have_all_rows_and_leave_out_hidden_columns(client: Client) -> None:
    load_reported()
    whole = client.get("/benchmarks/beir/board.json").json()
    hidden = client.get("/benchmarks/beir/board.json?hide=about&page=7").json()
    assert len(hidden["rows"]) == len(whole["rows"]) == whole["total"]
    assert {column["key"] for column in whole["columns"]} - {column["key"] for column in hidden["columns"]} == {
        "architecture",
        "provenance",
        "by",
        "weights",
        "licence",
        "declared-parameters",
        "maximum-length",
        "model-bytes",
        "parameters",
    }
    page = client.get("/benchmarks/beir/?hide=about").content.decode()
    for ending in ("csv", "json", "md", "tex", "bib"):
        assert f'"/benchmarks/beir/board.{ending}?hide=about"' in page
        wrong = client.get(f"/benchmarks/beir/board.{ending}?sort=colour")
        assert wrong.status_code == 400
        assert wrong.headers["Content-Type"].startswith("application/json" if ending == "json" else "text/plain")


def test_macros_in_a_caption_are_all_known(client: Client) -> None:
    load_reported()
    text = client.get("/benchmarks/beir/board.tex").content.decode()
    known = {
        "begin", "end", "centering", "caption", "label", "linewidth", "toprule", "midrule", "raggedright",
        "arraybackslash", "setlength", "tabcolsep", "shortstack",
        "bottomrule", "cmidrule", "multicolumn", "textbf", "underline", "emph", "url", "uparrow", "downarrow", "Delta",
        "ddagger", "footnotesize", "%", "#", "&", "_", "{", "}", "\\", "$", "times", "cdot", "ldots", ",",
        "mathrm", "pm",
    }  # fmt: skip

    def macros(nodes: list[LatexNode]) -> set[str]:
        found = {node.macroname for node in nodes if isinstance(node, LatexMacroNode)}
        for node in nodes:
            found |= macros([inner for inner in getattr(node, "nodelist", None) or [] if inner is not None])
            arguments = getattr(getattr(node, "nodeargd", None), "argnlist", None) or []
            found |= macros([argument for argument in arguments if argument is not None])
        return found

    assert macros(latex_nodes(text)) <= known
