"""Runs the code cells of a notebook in this process, in order, without Jupyter.

    cd /tmp/empty && python scripts/run_notebook.py NOTEBOOK [--write]

`--write` stores what the cells print, and the value of their last line, as their outputs.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def run_cell(source: str, name: str, namespace: dict[str, Any]) -> str:
    """Runs one cell and returns what it prints, and its last value if it is an expression."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
            if value is not None:
                print(value)
    return printed.getvalue()


def main(path: Path, write: bool) -> None:
    """Runs the notebook; the first error ends the process."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
        text = run_cell("".join(cell["source"]), f"{path.name}, cell {number}", namespace)
        lines = text.splitlines(keepends=True)
        stream = {"output_type": "stream", "name": "stdout", "text": lines}
        cell |= {"execution_count": number, "outputs": [stream] if lines else []}
    if write:
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), "--write" in sys.argv[2:])
