"""Build the documentation site: ``python -m tools.docs`` (``make docs``).

The strict build fails for a broken link, a page outside the navigation, or a public name that cannot be found. No page
refers to another server.
"""

import logging
import sys
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Build the site and return the exit status."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    config = load_config(str(ROOT / "mkdocs.yml"))
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    except Abort as abort:
        print(abort.format_message(), file=sys.stderr)
        return 1
    finally:
        config.plugins.on_shutdown()
    print(f"site: {Path(config.site_dir).relative_to(ROOT)}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
