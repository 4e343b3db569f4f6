"""The names of files that are put into one folder: each once, and none where another needs a folder."""

from __future__ import annotations


class MemberNames:
    """Names taken so far, whatever becomes of the files; capital letters make no difference, as on some disks."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: dict[str, str] = {}

    def take(self, name: str) -> str:
        """Take a file's name in normal form; what is wrong with it beside those before, empty where nothing is."""
        folders = [name[:place] for place, letter in enumerate(name) if letter == "/"]
        wrong = self._wrong(name.casefold(), folders)
        self._files.add(name.casefold())
        for folder in folders:
            self._folders.setdefault(folder.casefold(), folder)
        return wrong

    def _wrong(self, folded: str, folders: list[str]) -> str:
        if folded in self._files:
            return "the name is there twice"
        if folded in self._folders or any(folder.casefold() in self._files for folder in folders):
            return "it is a file and a folder at once"
        if any(self._folders.get(folder.casefold(), folder) != folder for folder in folders):
            return "another folder differs from its folder only by capital letters"
        return ""
