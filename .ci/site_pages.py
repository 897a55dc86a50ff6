"""Pages of the site that do not lie in ``notebooks``, and links to them."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure import StructureItem
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {  # that lie outside of notebooks/
    "index.md": "README.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": ".github/CONTRIBUTING.md",
    "SECURITY.md": ".github/SECURITY.md",
}
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
TABLE_IN_LIST = re.compile(r"^( +\|.*\n)(?=- )", re.MULTILINE)  # GitHub needs no line behind it
LINK_OF_NOTEBOOK = re.compile(r'(?<=href=")([^"#:]+)\.md(?=["#])')
SOURCE = "---\nsearch:\n  exclude: true\n---\n"
listed: list[StructureItem] = []


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that do not lie in notebooks/."""
    made = {uri: (ROOT / path).read_text() for uri, path in PAGES.items()}
    written = {file.src_uri: file.content_string for file in files if file.src_uri.endswith(".md")}
    for uri, text in (made | written).items():
        for path in (path_of_link(uri, link) for link in LINK.findall(text)):
            if not path.startswith("notebooks/") and path not in PAGES.values():
                made[uri_of(path)] = SOURCE + source(ROOT / path)
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links to files of the repository lead to pages of the site."""
    uri = page.file.src_uri
    if uri.startswith(("source/", "reference/")):
        return markdown
    folder = posixpath.dirname(uri) or "."

    def linked(link: re.Match[str]) -> str:
        return posixpath.relpath(uri_of(path_of_link(uri, link[1])), folder)

    return LINK.sub(linked, TABLE_IN_LIST.sub(r"\1\n", markdown))


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Let links of notebooks lead to pages of the site."""
    return LINK_OF_NOTEBOOK.sub(r"\1.html", html) if page.file.src_uri.endswith(".ipynb") else html


def on_nav(nav: Navigation, **_: object) -> None:
    """Keep the list of pages for the end."""
    listed[:] = nav.items


def on_post_build(config: MkDocsConfig) -> None:
    """Write ``llms.txt``: every page with its title."""
    head = f"# {config.site_name}\n\n> {config.site_description}\n"
    (Path(config.site_dir) / "llms.txt").write_text("\n".join([head, *titles(listed, 2)]) + "\n")


def titles(items: list[StructureItem], level: int) -> Iterator[str]:
    """List pages under the titles of their sections."""
    for item in items:
        if isinstance(item, Page):
            yield f"- [{item.title}]({item.url})"
        elif isinstance(item, Section):
            yield f"\n{'#' * level} {item.title}\n"
            yield from titles(item.children, level + 1)


def path_of_link(uri: str, link: str) -> str:
    """Return the path in the repository that a link of a page names."""
    path = PAGES.get(uri, f"notebooks/{uri}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def uri_of(path: str) -> str:
    """Return the page of the site that shows a file of the repository."""
    uris = {path: uri for uri, path in PAGES.items()}
    if path in uris:
        return uris[path]
    inside = path.removeprefix("notebooks/")
    return inside if inside != path else f"source/{path.lstrip('.')}.md"


def source(path: Path) -> str:
    """Return the page of a file of the repository, or of a folder."""
    title = f"# {path.relative_to(ROOT)}\n\n"
    if path.is_dir():
        return title + "".join(f"- `{each.name}`\n" for each in sorted(path.glob("[!_]*")))
    language = "python" if path.suffix == ".py" else "text"
    return f"{title}`````{language}\n{path.read_text()}\n`````\n"
