"""What MkDocs calls during a build: pages made from the code, and links to files outside docs/."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.docs import command_pages, environment_page, model_folder_page, parameter_page

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {
    "reference/commands.md": command_pages.page,
    "reference/parameters.md": parameter_page.page,
    "reference/model-folder.md": model_folder_page.page,
    "reference/environment.md": environment_page.page,
}
# Files of the repository that are pages of the site.
INCLUDED = {"project/contributing.md": "CONTRIBUTING.md", "project/changelog.md": "CHANGELOG.md"}
_LINK = re.compile(r"(\[[^\]]*\])\(([^)\s#]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated and the included pages."""
    for name, page in GENERATED.items():
        files.append(File.generated(config, name, content=page()))
    for name, source in INCLUDED.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links to files outside docs/, which the site does not contain, by the name of the file."""
    name = page.file.src_uri
    folder = posixpath.dirname(INCLUDED.get(name, f"docs/{name}"))

    def replaced(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        included = {source: page_name for page_name, source in INCLUDED.items()}
        here = included.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if here is not None:
            return f"{text}({posixpath.relpath(here, posixpath.dirname(name) or '.')}{anchor})"
        if not (ROOT / path).exists():
            return link[0]  # the strict build fails for it
        return f"`{path}`"

    return _LINK.sub(replaced, markdown)
