"""Reads a page back: its elements, its embedded figures."""

import json
import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "input", "!doctype"}


class Page(HTMLParser):
    """Text, headings, cells, ids and links of a page; fails if elements are not properly nested."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.headings, self.cells = [], [], [], [], []
        self.text, self.scripts, self.handlers = "", [], []
        self.feed(text)
        self.close()
        assert not self.open
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href", "data", "action")]
        self.handlers += [k for k, _ in attrs if k.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)
            if tag in ("td", "h2", "script"):
                {"td": self.cells, "h2": self.headings, "script": self.scripts}[tag].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.open)

    def handle_data(self, data):
        if "script" in self.open:
            self.scripts[-1] += data
        elif "style" not in self.open:
            self.text += data
        for tag, found in (("td", self.cells), ("h2", self.headings)):
            if tag in self.open:
                found[-1] += data


def figures_of(text):
    """The figures of a page by id, as the page's script reads them."""
    return json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])


def sections_without_a_sentence(text):
    """Headings of the second level that no paragraph follows; those of runs are in a summary."""
    found = re.findall(r"<h2>(.*?)</h2>\s*(<p>|</summary>)?", text)
    return [heading for heading, follows in found if not follows]
