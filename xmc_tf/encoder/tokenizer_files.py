"""The files of a tokenizer: tokenizer.json is read directly, and transformers reads other forms."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import parse_json, read_json
from xmc_tf.encoder.sources import EncoderSource, quiet_transformers

_LOG = logging.getLogger(__name__)
_LARGEST = 1 << 24  # bytes of a configuration
_MAIN = "tokenizer.json"
_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")
# Settings of BERT's tokenizers that override the normalizer in tokenizer.json.
_OF_NORMALIZER = {
    "do_lower_case": "lowercase", "strip_accents": "strip_accents", "tokenize_chinese_chars": "handle_chinese_chars",
}  # fmt: skip
_PADDING = ("[PAD]", "<pad>")  # if the settings do not name it

# The tokenizer without padding and truncation, the padding id, and a function that writes the files into a folder.
Parts = tuple[Tokenizer, int, Callable[[Path], object]]


def read_main_file(source: EncoderSource) -> Parts | None:
    """Read tokenizer.json and the settings beside it, without transformers; None if there is no such file."""
    # transformers 5 would keep only the vocabulary and build its own tokenizer, with other ids for some architectures.
    content = source.read(_MAIN)
    if content is None:
        return None
    beside = {name: found for name in _SETTINGS if (found := source.read(name)) is not None}
    settings: dict[str, Any] = {}
    for name in reversed(beside):
        settings |= parse_json(beside[name], of=f"{source.name}: {name}", foreign=True)
    config = parse_json(content, of=f"{source.name}: {_MAIN}", foreign=True)
    normalizer = config.get("normalizer") or {}
    if normalizer.get("type") == "BertNormalizer":
        normalizer |= {ours: settings[theirs] for theirs, ours in _OF_NORMALIZER.items() if theirs in settings}
    backend = _bare(Tokenizer.from_str(json.dumps(config)))

    def save(folder: Path) -> None:
        for name, one in {_MAIN: content, **beside}.items():
            (folder / name).write_bytes(one)

    named = settings.get("pad_token")
    for one in (named.get("content") if isinstance(named, dict) else named, *_PADDING):
        if isinstance(one, str) and (found := backend.token_to_id(one)) is not None:
            return backend, int(found), save
    return backend, 0, save


def read_with_transformers(source: EncoderSource) -> Parts:
    with quiet_transformers():
        from transformers import AutoTokenizer  # takes a second to import

        found = AutoTokenizer.from_pretrained(
            source.name, cache_dir=source.cache_dir, use_fast=True, **_inferred_type(source.folder)
        )
        _note_defaults(source.folder, found)
    return of_transformers(found)


def of_transformers(tokenizer: Any) -> Parts:
    """Return the parts of a fast tokenizer of transformers."""
    if not tokenizer.is_fast:
        raise InputError(
            f"no fast tokenizer was found for {tokenizer.name_or_path}", expected="a folder with tokenizer.json"
        )

    def save(folder: Path) -> None:
        with quiet_transformers():
            tokenizer.save_pretrained(folder)

    # A copy of the backend, because the tokenizer must keep its own truncation settings.
    backend = _bare(Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()))
    return backend, int(tokenizer.pad_token_id or 0), save


def _bare(backend: Tokenizer) -> Tokenizer:
    backend.no_padding()
    backend.no_truncation()
    return backend


def _inferred_type(folder: Path | None) -> dict[str, str]:
    """Return the tokenizer's type for ``AutoTokenizer`` from PECOS's encoder beside it; empty if not needed."""
    if (
        folder is None
        or _content(folder / "config.json").get("model_type")
        or _content(folder / "tokenizer_config.json").get("tokenizer_class")
    ):
        return {}
    kind = _content(folder.parent / "text_encoder" / "config.json").get("model_type")
    return {"tokenizer_type": kind} if isinstance(kind, str) else {}


def _note_defaults(folder: Path | None, tokenizer: Any) -> None:
    """Log the settings assumed for a vocabulary without settings; warn if they look wrong."""
    lowers = getattr(tokenizer, "do_lower_case", None)
    if folder is None or lowers is None or any((folder / name).is_file() for name in (_MAIN, "tokenizer_config.json")):
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
        _LOG.info("%s, which %s", assumed, "converts text to lower case" if lowers else "keeps upper and lower case")


def _content(path: Path) -> dict[str, Any]:
    """Return a small JSON object; empty if it is missing or unreadable, which its actual reader reports."""
    try:
        return dict(read_json(path, limit=_LARGEST, foreign=True))
    except (OSError, InputError):
        return {}
