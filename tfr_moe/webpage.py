"""HTML pages that need no network: light and dark, on a phone and on paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

_CSS = Path(__file__).with_name("webpage.css")


def page(title: str, parts: Iterable[str], scripts: Iterable[str] = ()) -> str:
    """A whole page.

    Args:
        title: plain text.
        parts: HTML of the body; empty ones are left out.
        scripts: `<script>` elements, which stand at the end of the body.

    Example:
        >>> text = page("A & B", ["<h1>A &amp; B</h1>"])
        >>> "<title>A &amp; B</title>" in text, text.endswith("</html>\\n")
        (True, True)
    """
    body = [part for part in [*parts, *scripts] if part]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_CSS.read_text(encoding='utf-8')}</style>\n"
        "</head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def tile(value: str, what: str, first: bool = False) -> str:
    """A number that stands out, with what it is beneath."""
    kind = "tile first" if first else "tile"
    return f'<div class="{kind}"><b>{escape(value)}</b><span>{escape(what)}</span></div>'


def figure(drawing: str, caption: str, wide: bool = False) -> str:
    """A drawing, HTML, with a caption, plain text; a wide one scrolls sideways."""
    box = "scroll wide" if wide else "scroll"
    return (
        f'<figure><div class="{box}">{drawing}</div>\n'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    text: int = 0,
    best: int | None = None,
    box: str = "scroll",
    attributes: Mapping[str, str] | None = None,
) -> str:
    """A table that scrolls sideways where it must.

    Args:
        headings: plain text.
        rows: cells, plain text.
        text: so many first columns are words, the others numbers.
        best: the number of a row to mark.
        box: classes of the box around the table.
        attributes: of the table element.

    Example:
        >>> "<td>&lt;1</td>" in table(["n"], [["<1"]])
        True
    """

    def row(cells: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=text' if i < text else ''}>{escape(cell)}</{tag}>"
            for i, cell in enumerate(cells)
        )

    body = "\n".join(
        f"<tr{' class=best' if i == best else ''}>{row(cells, 'td')}</tr>"
        for i, cells in enumerate(rows)
    )
    told = "".join(f' {name}="{escape(value)}"' for name, value in (attributes or {}).items())
    return (
        f'<div class="{box}"><table{told}><thead><tr>{row(headings, "th")}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def duration(seconds: float) -> str:
    """Seconds in words.

    Example:
        >>> duration(42), duration(600), duration(9000)
        ('42 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
