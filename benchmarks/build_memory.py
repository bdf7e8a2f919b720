"""Memory of `tfr-moe build` in one process, under a hard limit on its address space.

    python benchmarks/build_memory.py [--rows N]... [--limit-gb 2] [--hot 100000] [--json FILE]

For each number of rows a synthetic log is written, with one more list of `--hot` rows spread over
all files. A child process with that limit (`RLIMIT_AS`, which counts everything that is mapped,
used or not) builds it; the output has its peak resident memory, which should not grow with the
number of rows.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tfr_moe.synthetic import SearchLogOptions, generate

ROWS_A_SESSION = 12.04
FILES = 8

CHILD = """
import json, resource, sys, time
limit = int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from tfr_moe.beam import BuildOptions, build
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.process_time()
manifest = build(BuildOptions("search-logs", sys.argv[1], sys.argv[2], sys.argv[3]))
print(json.dumps({
    "rows": manifest["rows"],
    "lists": sum(split["lists"] for split in manifest["splits"].values()),
    "cut": manifest["cut"],
    "longest": manifest["list_length"]["max"],
    "rss_mb_before": before // 1024,
    "rss_mb_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    "cpu_seconds": round(time.process_time() - started, 1),
}))
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--rows", type=int, action="append", help="may be repeated; default 5000000"
    )
    parser.add_argument("--limit-gb", type=float, default=2.0)
    parser.add_argument("--hot", type=int, default=100_000, help="rows of the one long list")
    parser.add_argument(
        "--work", type=Path, help="folder for the files; by default a temporary one"
    )
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    return parser.parse_args()


def add_hot_list(logs: Path, rows: int) -> None:
    """Appends the rows of one list to all files, as a further gzip member."""
    files = sorted(logs.glob("logs-*"))
    with gzip.open(files[0], "rt", newline="") as file:
        reader = csv.DictReader(file)
        columns, example = list(reader.fieldnames or ()), next(reader)
    for at, path in enumerate(files):
        with gzip.open(path, "at", newline="") as file:
            writer = csv.DictWriter(file, columns)
            for number in range(at, rows, len(files)):
                changes = {
                    "session_id": "hot",
                    "position": rows - number,
                    "item_id": f"h{number % 999}",
                }
                writer.writerow({**example, **changes})


def measure(rows: int, work: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    logs, data = work / f"logs-{rows}", work / f"data-{rows}"
    started = time.time()
    generate(logs, SearchLogOptions(sessions=round(rows / ROWS_A_SESSION), num_files=FILES))
    add_hot_list(logs, arguments.hot)
    print(f"{rows:,} rows written in {time.time() - started:.0f} s", file=sys.stderr)
    child = subprocess.run(
        [
            sys.executable,
            "-c",
            CHILD,
            f"{logs}/logs-*",
            str(logs / "schema.yaml"),
            str(data),
            str(int(arguments.limit_gb * (1 << 30))),
        ],
        capture_output=True,
        text=True,
    )
    if child.returncode:
        raise SystemExit(f"{rows} rows: {child.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    shutil.rmtree(logs)
    shutil.rmtree(data)
    return result


def main() -> None:
    arguments = parse_arguments()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="build-memory-"))
    work.mkdir(exist_ok=True)
    runs = []
    try:
        for rows in arguments.rows or [5_000_000]:
            runs.append(measure(rows, work, arguments))
            print(json.dumps(runs[-1]), flush=True)
    finally:
        shutil.rmtree(work)
    if arguments.json:
        result = {"limit_gb": arguments.limit_gb, "hot": arguments.hot, "runs": runs}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    unused = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"largest child: {unused} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
