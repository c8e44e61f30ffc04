"""The model card in a model's folder, and the mark of a card that xmc_tf has written."""

from pathlib import Path

CARD = "README.md"
MARK = "<!-- Written by xmc_tf: `xmc-tf report` replaces this file. Remove this line to keep your changes. -->"
_HEAD = 20_000


def is_foreign(path: Path) -> bool:
    """Return whether a file has content that is not a card of ours."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return bool(head) and MARK.encode() not in head


def remove_card(folder: Path) -> None:
    """Remove our card from the folder of a model that is about to be replaced; other people's files stay."""
    path = folder / CARD
    if path.is_file() and not is_foreign(path):
        path.unlink()
