"""Zips from strangers: what comes out, and what is refused with which words."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.archives.zip import ZipPolicy, drop_companions, is_zip, open_archive
from evaluation.core.problems import InvalidContent, Problem
from tests.fuzz.bombs import BOMBS, zip_of

POLICY = ZipPolicy(max_members=3, members_hint="At most three.", expansion_hint="Send it plain.")


def packed(path: Path, *members: tuple[str | zipfile.ZipInfo, str], method: int = zipfile.ZIP_DEFLATED) -> Path:
    """A zip of these members."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def extracted(path: Path, names: list[str] | None = None, policy: ZipPolicy = POLICY) -> dict[str, str]:
    """The members' contents, taken out under numbers."""
    with open_archive(path, policy) as archive:
        targets = {name: path.parent / str(n) for n, name in enumerate(names or archive.names)}
        archive.extract(targets)
    return {name: target.read_text() for name, target in targets.items()}


def refused(path: Path, names: list[str] | None = None, policy: ZipPolicy = POLICY) -> Problem:
    """The problem that the zip is refused with, before anything of it is written."""
    with pytest.raises(InvalidContent) as error:
        extracted(path, names, policy)
    (problem,) = error.value.report.problems
    return problem


def test_members_come_out_under_the_names_that_the_caller_chose(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", ("runs/a.txt", "A"), ("b.txt", "B"), ("__MACOSX/._b.txt", "x"), ("c/", ""))
    assert is_zip(path)
    assert extracted(path) == {"runs/a.txt": "A", "b.txt": "B"}
    assert {each.name for each in tmp_path.iterdir()} == {"a.zip", "0", "1"}


def test_members_that_nobody_asked_for_are_left_alone(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("readme")
    link.external_attr = 0o120777 << 16
    path = packed(tmp_path / "a.zip", (link, "/etc/passwd"), ("README", "x"), ("b.txt", "B"))
    assert extracted(path, ["b.txt"]) == {"b.txt": "B"}
    assert refused(path, ["readme"]).code == "member_kind"


def test_names_that_differ_in_case_alone_are_refused(tmp_path: Path) -> None:
    problem = refused(packed(tmp_path / "a.zip", ("a.txt", "1"), ("A.txt", "2")))
    assert (problem.code, problem.message) == ("member_name", "the zip has a.txt twice")


CLUTTER = (
    "__MACOSX/._b.txt", "._b.txt", ".DS_Store", "runs/.ds_store", "Thumbs.db", "ehthumbs.db", "desktop.ini",
    "runs\\desktop.ini", ".git/config", ".gitignore", ".gitattributes", "b.txt~", "~$b.docx", ".b.txt.swp", "b.txt.bak",
    ".#b.txt", "#b.txt#", ".idea/workspace.xml", "__pycache__/b.pyc", ".ipynb_checkpoints/b-checkpoint.txt", "Icon\r",
    "$RECYCLE.BIN\\x", ".directory", "b.lnk",
)  # fmt: skip


def test_files_that_systems_and_editors_add_are_passed_over(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", ("b.txt", "B"), *((name, "x") for name in CLUTTER))
    assert extracted(path) == {"b.txt": "B"}


def test_backslashes_of_windows_stand_between_folders(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", ("runs\\", ""), ("runs\\a.txt", "A"), ("runs/b.txt", "B"))
    assert extracted(path) == {"runs/a.txt": "A", "runs/b.txt": "B"}
    problem = refused(packed(tmp_path / "b.zip", ("runs\\a.txt", "A"), ("runs/a.txt", "B")))
    assert problem.message == "the zip has runs/a.txt twice"


def test_descriptions_beside_other_files_are_told_by_their_names() -> None:
    names = ["README.md", "runs/LICENSE", "readme_first.txt", "CITATION.cff", "nfcorpus.txt", "licensed.txt"]
    assert drop_companions(names) == ("nfcorpus.txt", "licensed.txt")
    assert drop_companions(["readme.txt"]) == ("readme.txt",)


def test_companions_of_other_files_are_told_by_their_extensions() -> None:
    companions = (
        "run.sh", "src/train.PY", "paper.pdf", "notes.md", "plot.png", "logs/demo.log", "params.yaml", "a.yml",
        "pyproject.toml", "runs/search.ipynb", "report.html", "LICENSE", "Makefile", "requirements.txt",
    )  # fmt: skip
    runs = (
        "demo.txt",
        "demo.run",
        "metadata.json",
        "a.py.txt",
        "b.log.gz",
        "md",
        "c.tsv",
        "sh.csv",
        "d.jsonl",
    )
    assert drop_companions([*companions, *runs]) == runs
    assert drop_companions(companions) == companions


@pytest.mark.parametrize(
    "name",
    [
        "../a.txt", "b/../../a.txt", "/a.txt", "a\nb.txt", "..\\a.txt", "b\\..\\..\\a.txt", "\\a.txt", "C:\\a.txt",
        "C:/a.txt", "c:a.txt", "\\\\server\\a.txt",
        "..\\desktop.ini", "..\\__MACOSX\\a.txt", "__MACOSX/../../a.txt",
    ],
)  # fmt: skip
def test_doubtful_paths_are_refused(tmp_path: Path, name: str) -> None:
    assert refused(packed(tmp_path / "a.zip", (name, "x"))).code == "member_name"


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", ("a.txt", "x"))
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert refused(path).code == "member_kind"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_expand_without_measure_are_refused(tmp_path: Path, method: int) -> None:
    problem = refused(packed(tmp_path / "a.zip", ("a.txt", " " * 1000), method=method))
    assert problem.code == "compression"
    assert "deflate" in problem.hint
    assert not (tmp_path / "0").exists()


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    problem = refused(packed(tmp_path / "a.zip", *((f"{n}.txt", "") for n in range(4))))
    assert (problem.code, problem.hint) == ("too_many_files", "At most three.")


def test_a_list_of_members_too_long_to_read_is_refused_unread(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", *((f"{n:060}/", "") for n in range(25_000)), method=zipfile.ZIP_STORED)
    problem = refused(path)
    assert (problem.code, problem.hint) == ("too_many_files", "At most three.")
    assert "list of files takes 2." in problem.message


def test_what_comes_out_is_counted_over_all_members(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", ("a.txt", " " * 600_000), ("b.txt", " " * 600_000))
    problem = refused(path, policy=replace(POLICY, ratio_floor_bytes=2**20))
    assert problem.message == "the zip expands to more than 1 MiB at b.txt"
    assert problem.hint == "Send it plain."
    assert refused(path, policy=replace(POLICY, max_expanded_bytes=1000)).message.endswith("at a.txt")
    assert len(extracted(path)) == 2


def test_a_size_that_lies_is_not_believed(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", ("a.txt", " " * 600_000))
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = (10).to_bytes(4, "little")
    path.write_bytes(data)
    assert refused(path).code == "compression"


def test_members_that_share_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(zip_of(b"x", 1, members=2, apart=False, method=0))
    problem = refused(path)
    assert problem.code == "compression"
    assert "the zip is damaged at " in problem.message


def test_a_member_may_not_reach_into_the_list_of_members(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", ("a.txt", "x"), method=zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    listed = data.index(b"PK\x01\x02")
    for place in (18, 22, listed + 20, listed + 24):
        data[place : place + 4] = (40).to_bytes(4, "little")
    path.write_bytes(data)
    assert "list of members" in refused(path).message


@pytest.mark.parametrize(("place", "value", "what"), [
    (8, 8, "a different method or encryption"), (14, 7, "size or checksum"), (18, 2, "size or checksum"),
    (22, 9, "size or checksum"),
    (30, ord("b"), "a different name"), (0, 0, "no header"),
])  # fmt: skip
def test_a_member_whose_two_headers_differ_is_refused(tmp_path: Path, place: int, value: int, what: str) -> None:
    path = packed(tmp_path / "a.zip", ("c.txt", "x"), ("a.txt", "x"), method=zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\x03\x04") + place] = value
    path.write_bytes(data)
    problem = refused(path, ["c.txt"])
    assert problem.code == "compression"
    assert problem.message.startswith("the zip is damaged at a.txt: ")
    assert what in problem.message


def test_honest_zips_of_other_programs_are_read(tmp_path: Path) -> None:
    """Sizes after the data, as programs write that cannot go back; and room for large sizes."""
    path = tmp_path / "a.zip"

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", "A")
    path.write_bytes(pipe.getvalue())
    assert extracted(path) == {"a.txt": "A"}
    with zipfile.ZipFile(path, "w") as archive, archive.open("b.txt", "w", force_zip64=True) as member:
        member.write(b"B")
    assert extracted(path) == {"b.txt": "B"}


def test_a_name_that_is_empty_or_holds_nul_is_refused(tmp_path: Path) -> None:
    for name in (b"\0.txt", b"a\0txt"):
        path = packed(tmp_path / "a.zip", ("a.txt", "x"))
        path.write_bytes(path.read_bytes().replace(b"a.txt", name))
        assert refused(path).code == "member_name"


def test_a_place_that_no_file_can_have_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(BOMBS["zip, place of 2^64"].make())
    assert refused(path).code == "compression"


def test_a_message_shows_the_beginning_of_a_long_name(tmp_path: Path) -> None:
    name = "a" * 5000
    path = packed(tmp_path / "a.zip", (name, "x"), (name.upper(), "x"))
    assert len(refused(path).message) < 200
    path = packed(tmp_path / "a.zip", (name, "x"))
    path.write_bytes(path.read_bytes().replace(b"a" * 5000, b"b" * 5000, 1))
    assert len(refused(path).message) < 200


def test_a_message_shows_no_character_that_nobody_can_read(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", ("a.txt", "x"), ("__MACOSX/x", "y"))
    content = path.read_bytes()
    listed = content.rindex(b"__MACOSX/x")
    path.write_bytes(content[:listed] + b"__MACOSX/\0" + content[listed + 10 :])
    assert refused(path).message.isprintable()


def test_a_full_disk_is_a_fault_of_ours(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", ("a.txt", "x"))
    with pytest.raises(OSError, match="No space left"):
        extracted(path, policy=replace(POLICY, free_bytes=2**62))


@pytest.mark.parametrize("damage", [slice(-40, None), slice(-22, -4), slice(4, 60)])
def test_damage_is_said(tmp_path: Path, damage: slice) -> None:
    path = packed(tmp_path / "a.zip", ("a.txt", "some words that shrink, some words that shrink"))
    data = bytearray(path.read_bytes())
    data[damage] = b"\xff" * len(data[damage])
    path.write_bytes(data)
    problem = refused(path)
    assert problem.code == "compression"
    assert problem.message.startswith("the zip is damaged")
