"""Reads a page back: its elements, and their nesting."""

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
        for tag, result in (("td", self.cells), ("h2", self.headings)):
            if tag in self.open:
                result[-1] += data


def findings_of(text):
    """The sentence that each section of the table of contents opens with, by its id."""
    nav = re.search("<nav.*?</nav>", text, re.DOTALL)[0]
    ids = [link for link in re.findall('href="#(.*?)"', nav) if link != "glossary"]
    opened = r'<section id="{}">\s*<h2>.*?</h2>\s*<p class="finding[^>]*>(.*?)</p>'
    return {name: re.search(opened.format(name), text, re.DOTALL)[1] for name in ids}
