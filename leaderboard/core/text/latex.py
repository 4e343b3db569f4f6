"""Any text as LaTeX that compiles: every character is escaped, written as mathematics, or one that pdfLaTeX has."""

import re
import unicodedata

_ESCAPED = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "`": r"\textasciigrave{}",
    "Δ": r"$\Delta$",
    "‡": r"$^{\ddagger}$",
    "†": r"$^{\dagger}$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "→": r"$\rightarrow$",
    "µ": r"$\mu$",
    "°": r"$^{\circ}$",
    "²": "$^{2}$",
    "³": "$^{3}$",
    "—": "---",
    "–": "--",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\ldots{}",
    "\u00a0": "~",
    "\u2007": " ",
    "\u2008": " ",
    "\u2009": r"\,",
}
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi o pi rho varsigma sigma tau upsilon"
_ESCAPED |= {chr(0x3B1 + place): rf"$\{name}$" for place, name in enumerate(_GREEK.split()) if name != "o"}
_ESCAPED |= {"φ": r"$\phi$", "χ": r"$\chi$", "ψ": r"$\psi$", "ω": r"$\omega$"}
#: What a text to be cited has no use for: commands that read, write or run something, give signs another meaning, or
#: make commands of letters; and the notation of TeX for any sign (`^^5c` is a backslash).
_COMMAND = re.compile(
    r"\\(?:(?:openin|openout|input|include|includegraphics|verbatiminput|lstinputlisting|InputIfFileExists|read|readline"
    r"|write|immediate|special|usepackage|RequirePackage|directlua|latelua|luaexec|ShellEscape|catcode"
    r"|csname|scantokens|newcommand|renewcommand|def|edef|gdef|xdef|let|futurelet|pdf[a-z]+)(?![A-Za-z])|@@)|\^\^"
)
#: A straight quotation mark that opens: what is quoted follows, and no word stands before.
_OPENING = re.compile(r"(?<![^\s(\[{/–—-])\"(?=\S)")
#: Letters of Latin-1 and Latin Extended-A: LaTeX reads them as UTF-8 since 2018.
_LATIN = range(0xC0, 0x180)


def find_forbidden_command(text: str) -> str:
    """The first thing in a text that is LaTeX already which does more than set type; empty where there is none."""
    found = _COMMAND.search(text)
    return found[0] if found else ""


def escape(text: str) -> str:
    """The text as LaTeX, on one line. A letter of no Latin alphabet becomes its nearest one, else a question mark."""
    return "".join(map(_character, _OPENING.sub("“", " ".join(text.split()))))


def _character(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if " " <= character <= "~" or (ord(character) in _LATIN and character.isalpha()):
        return character
    plain = [
        part
        for part in unicodedata.normalize("NFKD", character)
        if " " <= part <= "~" or (part in _ESCAPED and part != character)
    ]
    if plain:
        return "".join(_ESCAPED.get(part, part) for part in plain)
    return "" if unicodedata.category(character)[0] in "CM" else "?"


def escape_url(url: str) -> str:
    r"""An address for `\url` within a caption, where `%`, `#` and unbalanced braces would end the table."""
    quoted = "".join(
        character if character.isascii() and character not in ' {}\\^`"<>|' else _quoted(character)
        for character in url
    )
    return quoted.replace("%", r"\%").replace("#", r"\#")


def _quoted(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())
