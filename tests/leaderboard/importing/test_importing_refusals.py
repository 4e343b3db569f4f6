"""What the importer refuses, with the message that its sender sees. Nothing is stored then."""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from evaluation.core.problems import InvalidContent, Problem
from evaluation.judgements.qrels import read_qrels
from leaderboard.core.audit import acting
from leaderboard.datasets.qrels import scoring_target
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ZIP_POLICY, ImportOptions
from leaderboard.importing.collections.twins import NOT_COMPARED, shared_pairs
from leaderboard.judgements.disclosure import COMPARED
from leaderboard.models import AuditRecord, Dataset, DatasetVersion, WorkRequest
from tests.factories import make_a_curator, make_user
from tests.leaderboard.tiny_collection import HEADER, good_files, write_folder, write_zip
from tests.leaks.opening import clear_kept_judgements, opened_below, private_judgements

pytestmark = pytest.mark.django_db


def problems_of(path: Path, **options: Any) -> tuple[Problem, ...]:
    """The problems that importing the path is refused with; no row is left."""
    before = Dataset.objects.count(), DatasetVersion.objects.count()
    with pytest.raises(InvalidContent) as refused:
        import_dataset(path, ImportOptions(slug="tiny", **options))
    assert (Dataset.objects.count(), DatasetVersion.objects.count()) == before
    return refused.value.report.problems


def only_problem(folder: Path, changes: Mapping[str, str | None], **options: Any) -> Problem:
    """The single problem of the good collection with these changes."""
    (problem,) = problems_of(write_folder(folder, changes), **options)
    return problem


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    problem = only_problem(tmp_path, {name: None})
    assert (problem.code, problem.message) == ("missing_file", f"{name} is missing")


def test_a_missing_split_names_those_that_are_there(tmp_path: Path) -> None:
    assert only_problem(tmp_path, {}, split="dev").hint == "Choose one of the available splits: --split test, train."


def test_an_unknown_language_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    problem = only_problem(tmp_path, {}, language="englsh")
    assert problem.code == "option_language"
    assert "“englsh” is neither the code nor the English name of a language. Did you mean en" in problem.message
    with pytest.raises(CommandError, match=r"--language: “xx” is neither the code.*Did you mean xh"):
        call_command("import_dataset", str(tmp_path), "--slug=tiny", "--language=xx")


def test_malformed_json_is_told_with_its_line(tmp_path: Path) -> None:
    corpus = good_files()["corpus.jsonl"] + '{"_id": "d6", "text": \n'
    problem = only_problem(tmp_path, {"corpus.jsonl": corpus})
    assert (problem.code, problem.lines) == ("malformed_json", (6,))
    assert problem.message.startswith("corpus.jsonl: 1 line ")
    assert problem.message.endswith("not a JSON object")


def test_duplicate_ids_are_told_with_their_lines(tmp_path: Path) -> None:
    files = good_files()
    corpus = files["corpus.jsonl"] + '{"_id": "d1", "text": "again"}\n'
    queries = files["queries.jsonl"] + '{"_id": "q3", "text": "again"}\n'
    problems = problems_of(write_folder(tmp_path, {"corpus.jsonl": corpus, "queries.jsonl": queries}))
    assert {(each.code, each.lines, each.message.split(":")[0]) for each in problems} == {
        ("duplicate_id", (6,), "corpus.jsonl"),
        ("duplicate_id", (4,), "queries.jsonl"),
    }


def test_unknown_queries_and_documents_are_counted_and_the_first_five_named(tmp_path: Path) -> None:
    qrels = HEADER + "".join(f"q1\tx{n}\t1\n" for n in range(7)) + "q9\td1\t1\n"
    folder = write_folder(tmp_path, {"qrels/test.tsv": qrels})
    problems = {each.code: each for each in problems_of(folder, strict=True)}
    assert problems["unknown_document"].count == 7
    assert problems["unknown_document"].message == ("test qrels: 7 documents not in the corpus: x0, x1, x2, x3, x4 …")
    assert problems["unknown_query"].message == "test qrels: 1 query not in queries.jsonl: q9"


def test_empty_judgements_are_refused(tmp_path: Path) -> None:
    problem = only_problem(tmp_path, {"qrels/test.tsv": HEADER})
    assert (problem.code, problem.message) == ("empty", "qrels/test.tsv: the file has no judgments")


@pytest.mark.parametrize("grade", ["1.5", "yes", "1e0"])
def test_grades_that_are_no_whole_numbers_are_refused_with_their_line(tmp_path: Path, grade: str) -> None:
    problem = only_problem(tmp_path, {"qrels/test.tsv": f"{HEADER}q1\td1\t1\nq1\td2\t{grade}\n"})
    assert (problem.code, problem.lines) == ("grade", (3,))
    assert "grade that is not a whole number" in problem.message


def test_all_problems_come_in_one_answer(tmp_path: Path) -> None:
    changes = {
        "corpus.jsonl": good_files()["corpus.jsonl"] + "nonsense\n",
        "queries.jsonl": None,
        "qrels/test.tsv": HEADER + "q1\td1\tgood\n",
        "qrels/train.tsv": HEADER + "q1\tnowhere\t1\n",
    }
    problems = problems_of(write_folder(tmp_path, changes), measures=("nonsense@5",), homepage="nonsense")
    assert {each.code for each in problems} == {
        "missing_file", "malformed_json", "grade", "unknown_document", "unknown_measure", "option_homepage",
    }  # fmt: skip


def test_a_path_that_is_no_collection_is_refused(tmp_path: Path) -> None:
    (file,) = problems_of(write_folder(tmp_path) / "corpus.jsonl")
    assert file.message == "corpus.jsonl is neither a folder nor a zip"
    (nothing,) = problems_of(tmp_path / "nowhere")
    assert nothing.message.endswith(" does not exist")


def test_plain_and_compressed_twins_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (problem,) = problems_of(write_folder(tmp_path, compressed=True))[:1]
    assert problem.message == "corpus.jsonl and corpus.jsonl.gz contain the same part of the collection"


def test_a_split_cannot_be_a_path(tmp_path: Path) -> None:
    (problem,) = problems_of(write_folder(tmp_path), split="../../etc")
    assert problem.code == "split"


def test_hidden_judgements_allow_three_measures_and_none_that_tells_what_is_judged(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    (problem,) = problems_of(folder, measures=("AP", "P@10", "RR@10"))
    assert problem.code == "too_many_measures"
    (problem,) = problems_of(folder, measures=("Hole@10",))
    assert problem.message == "Hole@10 reveals which documents or queries are judged"
    (problem,) = problems_of(folder, primary="Judged@10")
    assert problem.code == "revealing_measure"
    problems = problems_of(folder, measures=("ECE", "SearchCalls"))
    assert [problem.message for problem in problems if problem.code == "revealing_measure"] == [
        "ECE reveals which documents or queries are judged"
    ]
    messages = [problem.message for problem in problems_of(folder, primary="ECE")]
    assert "ECE reveals which documents or queries are judged" in messages
    assert (
        "ECE cannot be the primary measure of a dataset with hidden judgments, because lower values are better"
        in messages
    )


def test_a_baseline_run_is_checked_before_anything_is_stored(tmp_path: Path) -> None:
    run = tmp_path / "broken.txt"
    run.write_text("q1 Q0 d1 1 not-a-number tag\n")
    folder = write_folder(tmp_path / "tiny", {"corpus.jsonl": None})
    problems = problems_of(folder, runs_only=True, baseline=run)
    assert problems[0].message.startswith("broken.txt: ")


def test_an_expanding_zip_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "leaderboard.importing.collections.source.ZIP_POLICY", replace(ZIP_POLICY, ratio_floor_bytes=100_000)
    )
    bomb = write_zip(tmp_path / "bomb.zip", {"corpus.jsonl": " " * 5_000_000})
    (problem,) = problems_of(bomb)
    assert problem.code == "expansion"
    assert problem.hint.endswith("If the file is valid, import the folder instead.")


def test_a_full_disk_is_not_their_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leaderboard.importing.collections.source.ZIP_POLICY", replace(ZIP_POLICY, free_bytes=2**62))
    with pytest.raises(CommandError, match="the disk is full"):
        call_command("import_dataset", str(write_zip(tmp_path / "tiny.zip")), slug="tiny")
    assert not Dataset.objects.exists()


def test_an_encrypted_or_linked_entry_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "linked.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("queries.jsonl")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    (problem,) = problems_of(path)
    assert problem.message == "queries.jsonl is encrypted, a link, or a device"


def test_a_damaged_zip_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "tiny.zip")
    data = bytearray(path.read_bytes())
    start = data.index(b"tiny/corpus.jsonl") + 40
    data[start : start + 20] = b"\xff" * 20
    path.write_bytes(data)
    (problem,) = problems_of(path)
    assert problem.code == "compression"


@pytest.mark.parametrize("kind", ["w:gz", "w"])
def test_another_archive_is_named(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "tiny.tgz"
    with tarfile.open(path, kind) as archive:
        archive.add(write_folder(tmp_path / "tiny"), "tiny")
    (problem,) = problems_of(path)
    assert problem.message.startswith("tiny.tgz is neither a folder nor a zip: this is a tar archive")


def test_names_in_a_zip_are_never_paths(tmp_path: Path) -> None:
    (problem,) = problems_of(write_zip(tmp_path / "slip.zip", root="../../"))
    assert problem.code == "member_name"
    assert not (tmp_path.parent / "corpus.jsonl").exists()


def test_the_command_prints_every_problem_with_lines_and_hints(tmp_path: Path) -> None:
    changes = {"corpus.jsonl": good_files()["corpus.jsonl"] + "nonsense\n", "queries.jsonl": None}
    with pytest.raises(CommandError) as refused:
        call_command("import_dataset", str(write_folder(tmp_path, changes)), slug="tiny")
    text = str(refused.value)
    assert text.startswith("The import was rejected: 2 problems.")
    assert "not a JSON object (line 6)\n  Write one object per line" in text
    assert "- queries.jsonl is missing" in text


@pytest.mark.parametrize("split", ["backup", "train"])
def test_a_split_that_repeats_hidden_judgements_is_refused(tmp_path: Path, split: str) -> None:
    copied = HEADER + "q1\td2\t0\nq2\td3\t1\nq2\td1\t1\n"
    problem = only_problem(tmp_path, {f"qrels/{split}.tsv": copied})
    assert (problem.code, problem.count) == ("split_overlaps", 2)
    assert problem.message.startswith(f"{split} qrels: 2 of the hidden test judgments are also in it")
    assert f"Omit qrels/{split}.tsv" in problem.hint
    import_dataset(tmp_path, ImportOptions(slug="open", hidden=False))


JUDGED, UNJUDGED = "q1\td1\t1\n", "q1\td3\t1\n"


@pytest.fixture
def beside_hidden(tmp_path: Path) -> Callable[[str], Path]:
    """A hidden dataset; the fixture makes collections without its scored split, with these lines as its dev split."""
    import_dataset(write_folder(tmp_path / "hidden"), ImportOptions(slug="tiny"))

    def collection(lines: str) -> Path:
        return write_folder(
            tmp_path / lines.split("\t")[1],
            {"qrels/test.tsv": None, "qrels/train.tsv": None, "qrels/dev.tsv": HEADER + lines},
        )

    return collection


def test_an_import_without_the_hidden_judgements_is_held_against_those_kept(
    beside_hidden: Callable[[str], Path],
) -> None:
    reader = make_user("Rita", is_superuser=True)
    with acting(reader, "the dev split"):
        (problem,) = problems_of(beside_hidden(JUDGED), collecting=True)
        assert (problem.code, problem.count) == ("split_overlaps", 1)
        compared = AuditRecord.objects.get(action=COMPARED)
        assert (compared.actor, compared.after, compared.reason) == (reader, {"qrels": 1}, "the dev split")
        import_dataset(beside_hidden(UNJUDGED), ImportOptions(slug="tiny", collecting=True))
    assert AuditRecord.objects.filter(action=COMPARED).count() == 2


@pytest.mark.parametrize("curates", [True, False], ids=["a curator", "nobody in particular"])
def test_who_may_not_read_judgements_learns_nothing_by_importing_others(
    beside_hidden: Callable[[str], Path], curates: bool
) -> None:
    person = make_a_curator() if curates else None
    clear_kept_judgements()
    with opened_below(private_judgements()) as opened, acting(person):
        told = [problems_of(beside_hidden(lines), collecting=True) for lines in (JUDGED, UNJUDGED)]
    assert told == [(NOT_COMPARED,), (NOT_COMPARED,)]
    assert "ask a curator who may read hidden judgments" in NOT_COMPARED.hint
    assert not opened
    assert not AuditRecord.objects.filter(action=COMPARED).exists()


@pytest.mark.parametrize("curates", [True, False], ids=["a curator", "nobody in particular"])
def test_who_may_not_read_judgements_cannot_score_a_baseline_on_them(tmp_path: Path, curates: bool) -> None:
    import_dataset(write_folder(tmp_path / "hidden"), ImportOptions(slug="tiny"))
    guess = tmp_path / "guess.txt"
    guess.write_text("q1 Q0 d1 1 2.5 guess\n")
    without = write_folder(tmp_path / "without", {"qrels/test.tsv": None, "qrels/train.tsv": None})
    with acting(make_a_curator() if curates else None):
        assert problems_of(without, collecting=True, baseline=guess) == (NOT_COMPARED,)
    assert not WorkRequest.objects.filter(kind=WorkRequest.Kind.SCORE).exists()
    with acting(make_user("Rita", is_superuser=True), "a baseline"):
        named = import_dataset(without, ImportOptions(slug="tiny", collecting=True, baseline=guess))
    assert named.changes == ("files", "baseline run")


def test_the_command_compares_in_the_name_of_somebody_who_may_read_judgements(
    beside_hidden: Callable[[str], Path],
) -> None:
    for lines in (JUDGED, UNJUDGED):
        with pytest.raises(CommandError, match=r"hidden judgments, which you may not read\n.*--by EMAIL"):
            call_command("import_dataset", str(beside_hidden(lines)), slug="tiny", collecting=True)
    reader = make_user("Rita", is_superuser=True)
    said = {"slug": "tiny", "collecting": True, "by": reader.email, "why": "the dev split"}
    with pytest.raises(CommandError, match="1 of the hidden test judgments is also in it"):
        call_command("import_dataset", str(beside_hidden(JUDGED)), **said)
    assert AuditRecord.objects.get(action=COMPARED).actor == reader


def test_whether_the_hidden_judgements_are_the_same_is_recorded(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    import_dataset(folder, ImportOptions(slug="tiny"))
    assert not AuditRecord.objects.filter(action=COMPARED).exists()  # there was nothing to compare with
    curator = make_a_curator()
    with acting(curator):
        assert import_dataset(folder, ImportOptions(slug="tiny")).changes == ()
    assert AuditRecord.objects.get(action=COMPARED).actor == curator


def test_a_dataset_with_judgements_does_not_collect(tmp_path: Path) -> None:
    (problem,) = problems_of(write_folder(tmp_path), collecting=True)
    assert problem.code == "collecting_with_judgements"
    assert "Omit --collecting" in problem.hint
    assert not Dataset.objects.exists()


def test_the_splits_of_a_real_collection_do_not_overlap(shared_folder: Path) -> None:
    folder = shared_folder / "data" / "nfcorpus" / "qrels"
    test, *others = (read_qrels(folder / f"{split}.tsv") for split in ("test", "dev", "train"))
    assert [shared_pairs(test, other) for other in (*others, test)] == [0, 0, test.number_of_judgements]


def test_another_split_would_give_hidden_judgements_away(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    import_dataset(folder, ImportOptions(slug="tiny"))
    (problem,) = problems_of(folder, split="train")
    assert problem.code == "split_changed"
    assert "with --split train those would become public" in problem.message


@pytest.mark.parametrize("zipped", [False, True], ids=["folder", "zip"])
def test_listed_documents_are_refused_when_one_is_there_twice(tmp_path: Path, zipped: bool) -> None:
    changes = {"corpus.jsonl": None, "document-ids.txt": "d1\nd2\nd3\nd4\nd2\nd5\nd1\n"}
    source = write_zip(tmp_path / "tiny.zip", changes) if zipped else write_folder(tmp_path, changes)
    (problem,) = problems_of(source, runs_only=True)
    assert (problem.code, problem.count, problem.lines) == ("duplicate_id", 2, (5, 7))
    assert problem.message == "document-ids.txt: 2 lines repeat the id of an earlier line"


def test_a_baseline_that_is_no_file_is_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "baseline.txt"
    with pytest.raises(CommandError) as refused:
        call_command(
            "import_dataset",
            str(write_folder(tmp_path)),
            "--slug=tiny",
            "--runs-only",
            f"--baseline={missing}",
        )
    assert (
        str(refused.value)
        == f"The import was rejected: 1 problem.\n- the file {missing} does not exist\n  Enter the path of a run file."
    )
    assert not Dataset.objects.exists()


def answers_of(*lines: dict[str, object]) -> dict[str, str]:
    return {"answers.jsonl": "".join(f"{json.dumps(line)}\n" for line in lines)}


def test_a_measure_that_looks_for_answers_needs_them_and_texts(tmp_path: Path) -> None:
    problem = only_problem(tmp_path, {}, primary="Answer@20", measures=("R@2kt", "R@100"))
    assert problem.code == "missing_answers"
    assert problem.message.startswith("Answer@20 and R@2kt cannot be computed, because the dataset lacks answers")
    answers = answers_of({"_id": "q1", "answers": ["one"]}, {"_id": "q2", "answers": ["two"]})
    without_texts = only_problem(tmp_path, {**answers, "corpus.jsonl": None}, primary="Answer@20", runs_only=True)
    assert without_texts.code == "missing_answers"


def test_measures_of_answer_runs_need_correct_answers_but_no_texts(tmp_path: Path) -> None:
    problem = only_problem(tmp_path / "none", {}, primary="EM", measures=("AnswerF1",))
    assert problem.message == "EM and AnswerF1 cannot be computed, because the dataset lacks correct answers"
    assert problem.hint == "Import the collection with answers.jsonl, or choose other measures."
    answers = answers_of({"_id": "q1", "answers": ["one"]}, {"_id": "q2", "answers": ["two"]})
    ids = {"corpus.jsonl": None, "document-ids.txt": "".join(f"d{number}\n" for number in range(1, 6))}
    folder = write_folder(tmp_path / "ids", {**answers, **ids})
    imported = import_dataset(folder, ImportOptions(slug="tiny", primary="EM", runs_only=True))
    assert imported.dataset.primary_measure == "EM"
    assert scoring_target(imported.version, qrels=imported.qrels).corpus is None


DIVERSITY = "q1 1 d1 2\nq1 2 d1 1\nq1 1 d2 1\nq2 1 d3 1\n"


def test_a_measure_over_subtopics_needs_them(tmp_path: Path) -> None:
    problem = only_problem(tmp_path, {}, primary="alpha_nDCG@20", measures=("NRBP", "R@100"))
    assert problem.code == "missing_subtopics"
    assert problem.message.startswith("alpha_nDCG@20 and NRBP cannot be computed, because the dataset lacks judgments")


def test_problems_of_judgments_by_subtopic_name_the_file_and_its_lines(tmp_path: Path) -> None:
    changes = {"qrels/test.tsv": None, "subtopic-qrels.txt": DIVERSITY + "q2 1 d3 1\nq2 2 d3 one\n"}
    repeated, grade = sorted(problems_of(write_folder(tmp_path, changes)), key=lambda problem: problem.lines)
    assert repeated.message.startswith("subtopic-qrels.txt: a document judged twice for a subtopic")
    assert grade.message.startswith("subtopic-qrels.txt: not `query subtopic document grade`")
    assert (repeated.lines, grade.lines) == ((5,), (6,))


def test_diversity_qrels_have_a_name_of_their_own(tmp_path: Path) -> None:
    repeated = only_problem(tmp_path, {"qrels/test.tsv": None, "qrels.txt": DIVERSITY})
    assert repeated.hint.endswith("Name judgments by subtopic subtopic-qrels.txt.")
    ambiguous = problems_of(write_folder(tmp_path, {"subtopic-qrels.txt": DIVERSITY}))[0]
    assert (ambiguous.code, ambiguous.count) == ("ambiguous_files", 1)


def test_a_judged_query_without_an_answer_and_answers_that_never_end_are_one_line_each(
    tmp_path: Path,
) -> None:
    problem = only_problem(tmp_path, answers_of({"_id": "q1", "answers": ["one"]}), primary="Answer@20")
    assert problem.message == "answers.jsonl: 1 judged query has no answer: q2"
    endless = answers_of({"_id": "q1", "answers": [""]}, {"_id": "q2", "patterns": ["(a|a)+$"]})
    empty, slow = problems_of(write_folder(tmp_path, endless), primary="Answer@20")
    assert empty.message.startswith("answers.jsonl: 1 line without an answer")
    assert slow.message.startswith("answers.jsonl: 1 line with a pattern that takes more than 0.2 s")
    assert (empty.lines, slow.lines) == ((1,), (2,))
