"""Loads pages in Chromium, headless and without a network; tests are skipped if it is absent.

A script in a copy of the page measures it and writes the result into the document, which Chromium
prints.
"""

import html
import json
import re
import shutil
import subprocess

import pytest

DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"
MEASURE = """
<script>
function channels(text) { return text.match(/[\\d.]+/g).slice(0, 3).map(Number); }
function luminance(text) {
  const linear = channels(text).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}
function contrast(a, b) {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}
const paper = getComputedStyle(document.body).backgroundColor;
const found = {
  paper: paper,
  width: innerWidth,
  page: document.documentElement.scrollWidth,
  contrast: {},
  plots: [...document.querySelectorAll(".js-plotly-plot")].map(plot => {
    const box = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll("text")].map(t => t.getBoundingClientRect())
      .filter(rectangle => rectangle.height > 0);  // hidden ones have none
    const out = Math.max(0, ...texts.map(t => Math.max(box.left - t.left, t.right - box.right,
      box.top - t.top, t.bottom - box.bottom)));
    return {label: plot.getAttribute("aria-label"), height: box.height, out: out,
      smallest: Math.min(...texts.map(t => t.height))};
  }),
};
for (const what of ["h1", "p", "th", "td", ".lead", "pre"]) {
  const element = document.querySelector(what);
  if (element) found.contrast[what] = contrast(getComputedStyle(element).color, paper);
}
for (const text of document.querySelectorAll(".xtick text")) {
  found.contrast["axis"] = contrast(getComputedStyle(text).fill, paper);
}
parent.postMessage(JSON.stringify(found), "*");
</script>
"""
# Chromium makes no window narrower than 500 pixels; a frame can be as narrow as a phone.
FRAME = """<!DOCTYPE html>
<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">
<pre id="measured"></pre>
<script>
onmessage = event => { document.getElementById("measured").textContent = event.data; };
</script>
<iframe src="measured.html" style="width: WIDTHpx; height: 900px; border: 0"></iframe>
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
    found = subprocess.run(
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
    return found.stdout, [line for line in found.stderr.splitlines() if "CONSOLE" in line]


def measured(chromium, page, tmp_path, width=1000, *flags):
    text = page.read_text(encoding="utf-8")
    (tmp_path / "measured.html").write_text(text.replace("</body>", f"{MEASURE}</body>"))
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)))
    printed, console = run(
        chromium, frame, tmp_path, "--dump-dom", "--virtual-time-budget=5000", *flags
    )
    assert not console
    note = re.search(r'<pre id="measured">(.*?)</pre>', printed, re.DOTALL)
    return json.loads(html.unescape(note[1]))
