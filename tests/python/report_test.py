"""The page that the load driver writes: whole, without anything from elsewhere, and drawn inside its plots."""

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

from node import binary

# Elements that need no end.
VOID = {"br", "meta", "rect", "line", "polyline"}
# In a table of HTML these end by themselves.
SELF_ENDING = {"tr", "td", "th", "p"}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    path = folder / "run.html"
    command = [binary(), "bench", "run", "sessions", "--items", "300", "--seconds", "2.3", "--warm-up", "1", "--connections", "2"]
    done = subprocess.run([*command, "--html", path, "--data-path", folder, "--metrics-port", "0"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


class Shape(HTMLParser):
    """Notes what is open, and what a page asks for from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.outside = [], []

    def handle_starttag(self, tag, attributes):
        self.outside += [value for name, value in attributes if name in ("src", "href", "srcset", "action")]
        if tag not in VOID | SELF_ENDING:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        if tag not in VOID | SELF_ENDING:
            assert self.open and self.open.pop() == tag, f"</{tag}> ends what was not begun"


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(page):
    shape = Shape()
    shape.feed(page.read_text())
    assert (shape.open, shape.outside) == ([], [])
    assert not re.search(r"NaN|inf\b|@import|url\(", page.read_text())


def test_every_plot_draws_inside_its_frame_second_by_second(page):
    plots = re.findall(r"<svg.*?</svg>", page.read_text(), re.S)
    assert len(plots) == 4
    drawn = []
    for plot in plots:
        svg = ElementTree.fromstring(plot)
        width, height = map(float, svg.get("viewBox").split()[2:])
        lines = [line.get("points").split() for line in svg.iter("polyline")]
        for x, y in (map(float, point.split(",")) for line in lines for point in line):
            assert 0 <= x <= width and 0 <= y <= height, (x, y)
        drawn.append({len(line) for line in lines})
    # Rate and latency have a point for the second of warm-up and for each of the others; what was still under way at the end is none of its own.
    assert drawn[0] == {4} and drawn[1] == {4}, drawn


def test_a_browser_shows_it(page, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        pytest.skip("there is no Chromium here")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path}", "--dump-dom", f"file://{page}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.count("<polyline") == page.read_text().count("<polyline") > 4, done.stderr
    assert "every answer was right" in done.stdout
