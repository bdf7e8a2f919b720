"""Prepares REES46 shop events: a log of one list per session and category, graded by event.

    python -m experiments.datasets.rees46.prepare --data FOLDER --out FOLDER

FOLDER holds events.csv.gz with the columns of the public REES46 files: event_time, event_type,
product_id, category_code, brand, price, user_id, user_session. A list is what one session looked at
in one category: the first two parts of the category code (electronics > smartphone) are the
hierarchy, the third is a feature of the product. The items are the products of the session in that
category, in the order of their first event, which is the position. The label is the best event of
the product in the session: view 0, cart 1, purchase 2. Lists with fewer than two products, or
without a cart or purchase, carry no information about the order; they are dropped and counted.

All features cover events before the first event of the list.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

GRADES = {"view": 0, "cart": 1, "purchase": 2}


class Event(NamedTuple):
    """One event of a session."""

    time: float
    kind: str
    product: str
    category: tuple[str, ...]
    brand: str
    price: float
    user: str
    session: str


Key = tuple[str, str, str]
"""Session, top category, sub-category."""


def read_events(path: Path, counts: Counter[str]) -> list[Event]:
    """Returns valid events, earliest first; dropped ones are counted by reason."""
    events = []
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            counts["rows read"] += 1
            category = tuple(row["category_code"].split("."))
            if row["event_type"] not in GRADES:
                counts[f"left out: event {row['event_type']}"] += 1
            elif len(category) < 2:
                counts["left out: no two-level category"] += 1
            elif not row["price"] or float(row["price"]) <= 0:
                counts["left out: no price"] += 1
            else:
                time = datetime.fromisoformat(row["event_time"].replace(" UTC", "+00:00"))
                names = ("user_id", "user_session")
                events.append(
                    Event(
                        time.timestamp(),
                        row["event_type"],
                        row["product_id"],
                        category,
                        row["brand"],
                        float(row["price"]),
                        *(row[name] for name in names),
                    )
                )
    return sorted(events, key=lambda event: event.time)


def find_lists(events: list[Event], counts: Counter[str]) -> dict[Key, list[Event]]:
    """Returns the events of each list to rank, in the order of their first events."""
    groups: dict[Key, list[Event]] = {}
    for event in events:
        groups.setdefault((event.session, event.category[0], event.category[1]), []).append(event)
    lists = {}
    for key, group in groups.items():
        if len({event.product for event in group}) < 2:
            counts["left out: lists of one product"] += 1
        elif all(event.kind == "view" for event in group):
            counts["left out: lists of nothing but views"] += 1
        else:
            lists[key] = group
    return lists


def list_rows(key: Key, group: list[Event], seen: Counter[tuple[str, ...]]) -> Iterator[dict]:
    """Yields the rows of one list; `seen` counts the events before it."""
    first = {event.product: event for event in reversed(group)}
    order = sorted(first.values(), key=group.index)
    usual = median(event.price for event in order)
    session, top, sub = key
    user = group[0].user
    for position, event in enumerate(order, start=1):
        grade = max(GRADES[e.kind] for e in group if e.product == event.product)
        yield {
            "list_id": f"{session}/{top}.{sub}",
            "time": int(group[0].time),
            "position": position,
            "grade": grade,
            "top_category": top,
            "sub_category": sub,
            "user_events": seen["user", user],
            "product_id": event.product,
            "brand": event.brand,
            "product_kind": event.category[2] if len(event.category) > 2 else "",
            "price": event.price,
            "price_to_list": round(event.price / usual, 4),
            **{f"item_{kind}s": seen["item", event.product, kind] for kind in GRADES},
            "brand_events": seen["brand", event.brand] if event.brand else 0,
            "user_item_events": seen["user item", user, event.product],
        }


def rows(events: list[Event], counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yields the rows, list by list in the order of their first events."""
    seen: Counter[tuple[str, ...]] = Counter()
    done = 0
    for key, group in find_lists(events, counts).items():
        while events[done].time < group[0].time:
            event = events[done]
            seen["item", event.product, event.kind] += 1
            seen["brand", event.brand] += 1
            seen["user", event.user] += 1
            seen["user item", event.user, event.product] += 1
            done += 1
        yield from list_rows(key, group, seen)


def write(path: Path, log: Iterator[dict[str, Any]], counts: Counter[str]) -> None:
    """Writes under a temporary name, renames at the end, and counts rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    lists, categories = set(), set()
    with gzip.open(partial, "wt", encoding="utf-8", newline="") as file:
        writer = None
        for row in log:
            if writer is None:
                writer = csv.DictWriter(file, list(row))
                writer.writeheader()
            writer.writerow(row)
            counts["rows written"] += 1
            counts[f"rows of grade {row['grade']}"] += 1
            lists.add(row["list_id"])
            categories.add((row["top_category"], row["sub_category"]))
    counts["lists"], counts["categories"] = len(lists), len(categories)
    partial.rename(path)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of events.csv.gz")
    parser.add_argument("--out", type=Path, required=True, help="folder for rows.csv.gz")
    arguments = parser.parse_args()
    source = arguments.data / "events.csv.gz"
    if not source.is_file():
        parser.error(f"--data: no file {source}")
    counts: Counter[str] = Counter()
    write(arguments.out / "rows.csv.gz", rows(read_events(source, counts), counts), counts)
    for name, count in counts.items():
        print(f"{count:>8,}  {name}")
    print(f"{arguments.out / 'rows.csv.gz'}: schema in {Path(__file__).with_name('schema.yaml')}")


if __name__ == "__main__":
    main()
