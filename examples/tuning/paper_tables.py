"""Prints a sweep of `lambda_grid`, `experts` or `gate_input` as Markdown, beside the paper's numbers.

    tfr-moe tune-report --sweep SWEEP
    python examples/tuning/paper_tables.py SWEEP

What is printed and how it is to be read: `tfr_moe.reproduce.sweep_tables`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tfr_moe.errors import UserError
from tfr_moe.reproduce.sweep_tables import sweep_lines


def main(sweep: str) -> None:
    """Prints the table of the study that the sweep is."""
    print("\n".join(sweep_lines(Path(sweep))))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/tuning/paper_tables.py SWEEP")
    try:
        main(sys.argv[1])
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
