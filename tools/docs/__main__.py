"""Build the documentation site: ``python -m tools.docs`` (``make docs``).

The strict build fails for a broken link, a page outside the navigation, or a public name that cannot be found. No page
refers to another server. Afterwards it counts public names without documentation, and examples that no test runs; both
numbers must be 0.
"""

import logging
import sys
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from tools.docs.examples import all_examples, pages
from tools.docs.parameter_page import page as parameter_page
from tools.docs.public_names import problems, public_names

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Build the site, print the two numbers, and return the exit status."""
    return max(build_site(), count())


def build_site(folder: Path = ROOT / "build" / "site") -> int:
    """Build the site in a folder and return the exit status."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder))
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    except Abort as abort:
        print(abort.format_message(), file=sys.stderr)
        return 1
    finally:
        config.plugins.on_shutdown()
    print(f"site: {folder}/index.html")
    return 0


def count() -> int:
    """Print the numbers of undocumented public names and of examples that are not run; return the exit status."""
    texts = [page.read_text(encoding="utf-8") for page in pages() if page.parent.name == "reference"]
    undocumented = problems([*texts, parameter_page()])
    examples = all_examples()
    not_run = [example for example in examples if not example.runs]
    print(f"undocumented public names: {len(undocumented)} (of {len(public_names())})")
    for problem in undocumented:
        print(f"  {problem}")
    print(f"examples that are not run: {len(not_run)} (of {len(examples)})")
    for example in not_run:
        print(f"  {example.place}: {example.language or 'no language'}")
    return 1 if undocumented or not_run else 0


if __name__ == "__main__":
    sys.exit(main())
