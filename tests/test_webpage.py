"""Pages on paper: printed to PDF by a real browser."""

import pytest
from pypdf import PdfReader

from tests.browser import chromium, run
from tfr_moe import webpage

__all__ = ["chromium"]  # a fixture
COMMAND = " ".join(f"--set option_{i}=value_{i}" for i in range(40))


@pytest.fixture(scope="module")
def printed(chromium, tmp_path_factory):
    """The text of each page of a long table with long names, and of a long command."""
    folder = tmp_path_factory.mktemp("print")
    rows = [[f"Department {i} > Category {i} & more", *(["0.1234"] * 8)] for i in range(150)]
    headings = ["category", *(f"model-{i}" for i in range(8))]
    parts = [
        "<h2>Made by</h2>",
        f"<pre>{COMMAND}</pre>",
        webpage.table(headings, rows, text=1, box="scroll tall"),
    ]
    (folder / "page.html").write_text(webpage.page("page", parts))
    run(chromium, folder / "page.html", folder, f"--print-to-pdf={folder / 'page.pdf'}")
    return [page.extract_text().replace("\n", "") for page in PdfReader(folder / "page.pdf").pages]


def test_a_command_wider_than_the_paper_is_whole(printed):
    assert all(f"option_{i}=value_{i}" in "".join(printed) for i in range(40))


def test_a_long_table_has_its_headings_on_each_page_and_names_in_lines_that_can_be_read(printed):
    with_rows = [text for text in printed if "Category" in text]
    assert len(with_rows) >= 3
    assert all("model-7" in text for text in with_rows)
    assert all(f"Department {i} > " in "".join(printed) for i in range(150))
