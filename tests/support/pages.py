"""Pages of HTML as tests read them: tags, tables, and the rules that every page keeps."""

import base64
import re
from html.parser import HTMLParser

import numpy as np

VOID = ("meta", "img")


class ParsedPage(HTMLParser):
    """Collect tags with their attributes, text and tables, and check that tags close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text = ""
        self.headings: list[tuple[str, str]] = []
        self.rows: list[list[str]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("h1", "h2", "h3"):
            self.headings.append((tag, ""))
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        inside = self.open[-1] if self.open else ""
        if inside in ("h1", "h2", "h3"):
            self.headings[-1] = inside, self.headings[-1][1] + data
        if inside in ("th", "td"):
            self.rows[-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        """Return the attributes of each tag of a name."""
        return [attributes for name, attributes in self.tags if name == tag]

    def titles(self) -> list[str]:
        """Return the titles of the sections."""
        return [text for tag, text in self.headings if tag == "h2"]

    def row(self, first: str) -> list[str]:
        """Return the other cells of the only row that begins with a text."""
        (found,) = [row[1:] for row in self.rows if row[0] == first]
        return found

    def svgs(self) -> list[str]:
        """Return the pictures in SVG."""
        start = "data:image/svg+xml;base64,"
        sources = [image["src"] for image in self.all("img")]
        found = [each.removeprefix(start) for each in sources if each.startswith(start)]
        return [base64.b64decode(each).decode() for each in found]


def check_rules(html: str) -> ParsedPage:
    """Check that a page needs nothing else, is small, and can be read by everyone; return it."""
    page = ParsedPage(html)
    assert len(html.encode()) < 2_000_000
    without_data = re.sub(r"base64,[A-Za-z0-9+/=]+", "", html)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", without_data)
    outside = {"link", "script", "iframe", "object", "embed", "base"}
    assert {tag for tag, _ in page.tags}.isdisjoint(outside)
    for svg in page.svgs():  # names of namespaces are no addresses
        assert not re.findall(r'(?:href|src)="(?!#|data:)', svg)
        assert "prefers-color-scheme:dark" in svg
        assert "<script" not in svg
    assert all(image["alt"].strip() for image in page.all("img"))
    assert all(cell.get("scope") in ("col", "row") for cell in page.all("th"))
    assert [tag for tag, _ in page.headings].count("h1") == 1
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    assert all(link["href"].removeprefix("#") in names for link in page.all("a"))
    for section in page.all("section"):
        assert section.get("aria-labelledby") in names
    return page


TEXT = re.compile(r'<!-- (.*?) -->\s*<g [^>]*"translate\(([-\d.]+) [-\d.]+\) scale\(([\d.]+) ')
LETTER_UNITS = 60  # width of a letter; an em has 100 units


def texts_outside(svg: str) -> list[str]:
    """The level texts of a picture of matplotlib that reach beyond its left or right side."""
    outside, width = [], float(re.findall(r'viewBox="0 0 ([\d.]+) ', svg)[0])
    for found in TEXT.finditer(svg):
        letters = svg[found.end() : svg.index("</g>", found.end())]
        last = max(map(float, re.findall(r'<use [^>]*"translate\(([\d.]+)', letters)), default=0)
        left, scale = float(found[2]), float(found[3])
        if left < 0 or left + (last + LETTER_UNITS) * scale > width:
            outside.append(found[1])
    return outside


def luminance(colour: str) -> float:
    """The relative luminance of a colour (WCAG 2.2)."""
    values = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    """The contrast of two colours (WCAG 2.2)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
