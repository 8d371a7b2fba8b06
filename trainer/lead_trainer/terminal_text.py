"""Texts of strangers at a terminal: a name of a file may hold what it obeys, or a line like one of ours.

Used by whatever prints an error or a name; standard library only.
"""


def printable(text: str) -> str:
    """Returns a text in which everything that is no printable letter is escaped, line breaks too."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(letter: str) -> str:
    return letter if letter.isprintable() else repr(letter)[1:-1]
