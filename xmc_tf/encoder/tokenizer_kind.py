"""The type of a tokenizer whose folder does not name it, such as PECOS's folders with only ``vocab.txt``."""

import logging
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import read_json

_LOG = logging.getLogger(__name__)
_LARGEST = 1 << 24  # bytes of a configuration
_SETTINGS = ("tokenizer.json", "tokenizer_config.json")


def inferred_type(folder: Path | None) -> dict[str, str]:
    """Return the tokenizer's type for ``AutoTokenizer``, taken from PECOS's encoder beside it; empty if not needed.

    Args:
        folder: the tokenizer's folder; None for a name on the hub.
    """
    if folder is None or _content(folder / "config.json").get("model_type"):
        return {}
    if _content(folder / "tokenizer_config.json").get("tokenizer_class"):
        return {}
    kind = _content(folder.parent / "text_encoder" / "config.json").get("model_type")
    return {"tokenizer_type": kind} if isinstance(kind, str) else {}


def note_defaults(folder: Path | None, tokenizer: Any) -> None:
    """Log the assumed settings of a folder that has a vocabulary without settings; warn if they look wrong."""
    if folder is None or any((folder / name).is_file() for name in _SETTINGS):
        return
    lowers = getattr(tokenizer, "do_lower_case", None)
    if lowers is None:
        return
    special = set(tokenizer.all_special_tokens)
    cased = sum(1 for token in tokenizer.get_vocab() if token not in special and token != token.lower())
    assumed = f"{folder} has no tokenizer_config.json: assuming {type(tokenizer).__name__}"
    if lowers and cased > len(tokenizer) // 100:
        _LOG.warning(
            '%s, which converts text to lower case, but %s tokens have capitals; if the encoder is cased, add '
            'tokenizer_config.json with {"do_lower_case": false}', assumed, f"{cased:,}",
        )  # fmt: skip
    else:
        _LOG.info(
            "%s, %s", assumed, "which converts text to lower case" if lowers else "which keeps upper and lower case"
        )


def _content(path: Path) -> dict[str, Any]:
    """Return a small JSON object; empty if it is missing or unreadable, which its actual reader reports."""
    try:
        return dict(read_json(path, limit=_LARGEST, foreign=True))
    except (OSError, InputError):
        return {}
