"""The type of a tokenizer whose folder does not name it, as in folders of PECOS with ``vocab.txt`` alone."""

import logging
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import read_json

_LOG = logging.getLogger(__name__)
_LARGEST = 1 << 24  # bytes of a configuration
_SETTINGS = ("tokenizer.json", "tokenizer_config.json")


def inferred_type(folder: Path | None) -> dict[str, str]:
    """Return what tells ``AutoTokenizer`` the type: the encoder's, where a folder of PECOS has it beside the tokenizer.

    Args:
        folder: of the tokenizer; None for a name on the hub.
    """
    if folder is None or _content(folder / "config.json").get("model_type"):
        return {}
    if _content(folder / "tokenizer_config.json").get("tokenizer_class"):
        return {}
    kind = _content(folder.parent / "text_encoder" / "config.json").get("model_type")
    return {"tokenizer_type": kind} if isinstance(kind, str) else {}


def note_defaults(folder: Path | None, tokenizer: Any) -> None:
    """Log which settings are assumed where a folder has a vocabulary without any; warn if they look wrong."""
    if folder is None or any((folder / name).is_file() for name in _SETTINGS):
        return
    lowers = getattr(tokenizer, "do_lower_case", None)
    if lowers is None:
        return
    special = set(tokenizer.all_special_tokens)
    cased = sum(1 for token in tokenizer.get_vocab() if token not in special and token != token.lower())
    said = f"{folder} has no tokenizer_config.json: assuming {type(tokenizer).__name__}"
    if lowers and cased > len(tokenizer) // 100:
        _LOG.warning(
            '%s, which converts text to lower case, but %s tokens have capitals; if the encoder is cased, add '
            'tokenizer_config.json with {"do_lower_case": false}', said, f"{cased:,}",
        )  # fmt: skip
    else:
        _LOG.info("%s, %s", said, "which converts text to lower case" if lowers else "which keeps upper and lower case")


def _content(path: Path) -> dict[str, Any]:
    """A small JSON object; empty where it is missing or unreadable, which whoever needs it will say."""
    try:
        return dict(read_json(path, limit=_LARGEST, foreign=True))
    except (OSError, InputError):
        return {}
