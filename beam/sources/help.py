"""What `tfr-moe build SOURCE --help` says about the source."""

from __future__ import annotations

import inspect
import textwrap

from . import Source, get_source, sources
from .settings import described

_WIDTH = 100


def text(name: str) -> str:
    """Purpose and options of a source; of `all`, a line for each source.

    Raises:
        UserError: if there is no such source.
    """
    if name == "all":
        there = [f"  {source.name:<14}{_first_line(source)}" for source in sources().values()]
        return "\n".join(["Sources (build SOURCE --help tells the options of one):", *there])
    source = get_source(name)
    about = inspect.cleandoc(source.read.__doc__ or "").split("\nRaises:")[0].strip()
    schema = "has its own, --schema replaces it" if source.schema else "--schema is needed"
    parts = [f"{source.name}: {about}", f"Schema: {schema}.", _options(source)]
    return "\n\n".join(parts)


def _first_line(source: Source) -> str:
    return (source.read.__doc__ or "").strip().splitlines()[0]


def _options(source: Source) -> str:
    options = described(source.options)
    if not options:
        return "It has no options of its own."
    lines = ["Options, each as --set key=value:"]
    for name, default, description in options:
        lines.append(f"  {name} ({default})")
        lines += textwrap.wrap(
            description, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    return "\n".join(lines)
