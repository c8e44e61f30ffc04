"""The files of a tokenizer: read by transformers, or without it where we have saved them."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import read_json
from xmc_tf.encoder.sources import Source, quiet_transformers
from xmc_tf.encoder.tokenizer_kind import inferred_type, note_defaults

OWN_FILE = "tokenizer_files.json"
_MAIN = "tokenizer.json"


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer as its files describe it.

    Attributes:
        backend: from texts to ids, without padding and truncation.
        pad_id: the padding id.
        save: writes the files into a folder.
    """

    backend: Tokenizer
    pad_id: int
    save: Callable[[Path], None]

    @property
    def fingerprint(self) -> str:
        """Equal for tokenizers that produce the same ids."""
        return hashlib.sha256(self.backend.to_str().encode()).hexdigest()[:32]


def of_transformers(tokenizer: Any) -> TokenizerFiles:
    """Return the files of a fast tokenizer of transformers."""
    if not tokenizer.is_fast:
        raise InputError(
            f"no fast tokenizer was found for {tokenizer.name_or_path}", expected="a folder with tokenizer.json"
        )

    def save(folder: Path) -> None:
        with quiet_transformers():
            written = tokenizer.save_pretrained(folder)
        names = sorted({path.name for path in map(Path, written) if path.is_file()})
        about = {"pad_id": files.pad_id, "fingerprint": files.fingerprint, "files": names}
        (folder / OWN_FILE).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")

    # A copy of the backend, because the tokenizer must keep its own truncation settings.
    backend = _bare(Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()))
    files = TokenizerFiles(backend, int(tokenizer.pad_token_id or 0), save)
    return files


def read_own(folder: Path | None) -> TokenizerFiles | None:
    """Read what ``save`` wrote, without transformers; None if somebody else wrote or changed the files.

    Args:
        folder: the tokenizer's folder; None for a name on the hub.
    """
    if folder is None or not (folder / OWN_FILE).is_file() or not (folder / _MAIN).is_file():
        return None
    about = read_json(folder / OWN_FILE, fix="delete the file")
    pad_id, names = about.get("pad_id"), about.get("files")
    if not isinstance(pad_id, int) or not isinstance(names, list):
        return None

    def save(to: Path) -> None:
        for name in (*names, OWN_FILE):
            shutil.copyfile(folder / Path(str(name)).name, to / Path(str(name)).name)

    files = TokenizerFiles(_bare(Tokenizer.from_file(str(folder / _MAIN))), pad_id, save)
    # transformers also applies the settings beside the file, so it decides about a file that is not ours any more.
    return files if files.fingerprint == about.get("fingerprint") else None


def read_with_transformers(source: Source) -> TokenizerFiles:
    """Read a folder, or a name on the hub, as transformers does."""
    with quiet_transformers():
        from transformers import AutoTokenizer  # takes a second to import

        found = AutoTokenizer.from_pretrained(
            source.name, cache_dir=source.cache_dir, use_fast=True, **inferred_type(source.folder)
        )
        note_defaults(source.folder, found)
    return of_transformers(found)


def _bare(backend: Tokenizer) -> Tokenizer:
    backend.no_padding()
    backend.no_truncation()
    return backend
