"""Conversion of arbitrary text to LaTeX that compiles with pdfLaTeX."""

import json
import re
import unicodedata
from pathlib import Path
from urllib.parse import quote

#: LaTeX code of characters that LaTeX does not print as they are.
_ESCAPED: dict[str, str] = json.loads(Path(__file__).with_name("latex.json").read_text("utf-8"))
#: Commands that citations do not need: those that read, write or execute, change the meaning of characters,
#: or define commands; and TeX's notation for arbitrary characters (`^^5c` is a backslash).
_COMMAND = re.compile(
    r"\\(?:(?:openin|openout|input|include|includegraphics|verbatiminput|lstinputlisting|InputIfFileExists|read|readline"
    r"|write|immediate|special|usepackage|RequirePackage|directlua|latelua|luaexec|ShellEscape|catcode"
    r"|csname|scantokens|newcommand|renewcommand|def|edef|gdef|xdef|let|futurelet|pdf[a-z]+)(?![A-Za-z])|@@)|\^\^"
)
#: A straight quotation mark that opens a quotation: text follows and no word precedes it.
_OPENING = re.compile(r"(?<![^\s(\[{/–—-])\"(?=\S)")
#: Letters of Latin-1 and Latin Extended-A, which LaTeX reads as UTF-8 since 2018.
_LATIN = range(0xC0, 0x180)


def find_forbidden_command(text: str) -> str:
    """Return the first command in LaTeX text that does more than typesetting; empty if there is none."""
    match = _COMMAND.search(text)
    return match[0] if match else ""


def escape(text: str) -> str:
    """Return the text as one line of LaTeX. Unsupported letters become their closest ASCII form, or a question mark."""
    return "".join(map(_escape_character, _OPENING.sub("“", " ".join(text.split()))))


def _escape_character(character: str) -> str:
    """Return a character as LaTeX: itself, a command, or its closest ASCII form.

    Unsupported controls and combining marks are dropped; other unsupported characters become a question mark.
    """
    if character in _ESCAPED:
        return _ESCAPED[character]
    if " " <= character <= "~" or (ord(character) in _LATIN and character.isalpha()):
        return character
    replacements = [
        part
        for part in unicodedata.normalize("NFKD", character)
        if " " <= part <= "~" or (part in _ESCAPED and part != character)
    ]
    if replacements:
        return "".join(_ESCAPED.get(part, part) for part in replacements)
    return "" if unicodedata.category(character)[0] in "CM" else "?"


def escape_url(url: str) -> str:
    r"""Escape a URL for `\url` in a caption, where `%`, `#` and unbalanced braces would break the table."""
    quoted = "".join(
        character if character.isascii() and character not in ' {}\\^`"<>|' else quote(character) for character in url
    )
    return quoted.replace("%", r"\%").replace("#", r"\#")
