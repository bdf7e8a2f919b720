"""Loads pages in Chromium, headless and without a network; tests are skipped if it is absent.

A script in a copy of the page measures it and writes the result into the document, which Chromium
prints.
"""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"
MEASURE = """
<script>
parent.postMessage(JSON.stringify({
  paper: getComputedStyle(document.body).backgroundColor,
  width: innerWidth,
  page: document.documentElement.scrollWidth,
  hidden: [...document.querySelectorAll(".scroll")].filter(box => box.scrollWidth > box.clientWidth)
    .map(box => getComputedStyle(box).backgroundImage).filter(image => !image.includes("gradient")),
}), "*");
</script>
"""
AXE = """
<script>
for (const box of document.querySelectorAll("details")) box.open = true;
axe.run().then(result => {
  const text = document.createElement("pre");
  text.id = "violations";
  text.textContent = JSON.stringify(result.violations.map(
    rule => [rule.id, rule.nodes.slice(0, 3).map(node => node.html)]));
  document.body.append(text);
});
</script>
"""
# Chromium makes no window narrower than 500 pixels; a frame can be as narrow as a phone.
FRAMES = """<!DOCTYPE html>
<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">
<style>iframe { position: absolute; left: 0; top: 0; height: 900px; border: 0; }</style>
<pre id="measured"></pre>
<script>
const found = [];
onmessage = event => {
  found.push([Array.from(frames).indexOf(event.source), JSON.parse(event.data)]);
  document.getElementById("measured").textContent = JSON.stringify(found);
};
</script>
"""


@pytest.fixture(scope="module")
def chromium():
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.skip("no Chromium here (apt-get install chromium)")


def run(chromium, page, tmp_path, *flags):
    """What Chromium prints, and the errors on the page's console."""
    result = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={tmp_path / 'profile'}",
            *flags,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return result.stdout, [line for line in result.stderr.splitlines() if "CONSOLE" in line]


def measured_in_frames(chromium, pages, tmp_path, *flags):
    """What `MEASURE` finds of each (page, width), in their order; one Chromium loads all."""
    text = FRAMES
    for number, (page, width) in enumerate(pages):
        copy = tmp_path / f"measured-{number}.html"
        copy.write_text(
            page.read_text(encoding="utf-8").replace("</body>", f"{MEASURE}</body>"),
            encoding="utf-8",
        )
        text += f'<iframe src="{copy.name}" style="width: {width}px"></iframe>\n'
    (tmp_path / "frames.html").write_text(text, encoding="utf-8")
    printed, console = run(
        chromium,
        tmp_path / "frames.html",
        tmp_path,
        "--dump-dom",
        "--virtual-time-budget=5000",
        *flags,
    )
    assert not console
    note = re.search(r'<pre id="measured">(.*?)</pre>', printed, re.DOTALL)
    result = dict(json.loads(html.unescape(note[1])))
    return [result[number] for number in range(len(pages))]


def measured(chromium, page, tmp_path, width=1000, *flags):
    """The same of one page."""
    return measured_in_frames(chromium, [(page, width)], tmp_path, *flags)[0]


def violations(chromium, page, tmp_path, *flags):
    """The rules of axe that the page breaks, with elements; boxes are opened first."""
    return checked(chromium, page, tmp_path, *flags)[0]


def checked(chromium, page, tmp_path, *flags):
    """The same, and the document after its scripts have run; nothing may be on the console."""
    package = pytest.importorskip("axe_core_python")
    axe = Path(package.__path__[0], "axe.min.js").read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    copy = tmp_path / "checked.html"
    scripts = f"<script>{axe}</script>{AXE}</body>"
    copy.write_text(text.replace("</body>", scripts), encoding="utf-8")
    printed, console = run(
        chromium, copy, tmp_path, "--dump-dom", "--virtual-time-budget=20000", *flags
    )
    assert not console
    assert axe in printed
    result = re.search(r'<pre id="violations">(.*?)</pre>', printed, re.DOTALL)
    return json.loads(html.unescape(result[1])), printed.replace(axe, "")
