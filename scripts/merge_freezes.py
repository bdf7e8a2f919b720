"""Merges `pip freeze` outputs of several Python versions into one constraints file.

    python scripts/merge_freezes.py 3.10=freeze310.txt 3.11=freeze311.txt > constraints/tf215.txt

A distribution with the same version everywhere becomes a plain pin; where versions differ, each pin
carries the marker of its Python. How to refresh the files is in BUILD_NOTES.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

SETUP_TOOLS = {"pip", "setuptools", "wheel"}


def read_freeze(path: str) -> dict[str, str]:
    """Name -> version of one `pip freeze --exclude-editable`."""
    pins = (line.split("==") for line in Path(path).read_text().split() if "==" in line)
    return {name.lower().replace("_", "-"): version for name, version in pins}


def merge(freezes: dict[str, dict[str, str]]) -> list[str]:
    """Lines of a constraints file, sorted by name."""
    lines = []
    for name in sorted(set().union(*freezes.values()) - SETUP_TOOLS):
        versions = {python: pins[name] for python, pins in freezes.items() if name in pins}
        if len(set(versions.values())) == 1:
            lines.append(f"{name}=={next(iter(versions.values()))}")
        else:
            lines += [
                f"{name}=={version}; python_version == '{python}'"
                for python, version in versions.items()
            ]
    return lines


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    print(f"# Made by scripts/merge_freezes.py for Python {', '.join(given)}.")
    print("\n".join(merge({python: read_freeze(path) for python, path in given.items()})))
