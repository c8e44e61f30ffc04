"""Files of tokenized documents. One rank per host or shared disk writes them, and all ranks memory-map them."""

import hashlib
import logging
import secrets
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.data.text import TextFile
from xmc_tf.data.tokens import TokenStore
from xmc_tf.data.windows import WindowOptions
from xmc_tf.encoder.tokenizer import Text, TextTokenizer, TruncationCounter

log = logging.getLogger(__name__)

_CHUNK = 4096


def tokenize_file(
    texts: TextFile | Sequence[Text],
    tokenizer: TextTokenizer,
    folder: str | Path,
    *,
    max_length: int,  # tokens of a window, including special ones
    max_windows: int = 1,  # of a document; 1: documents are truncated
    communicator: Any = None,
) -> TokenStore:
    """Tokenize documents into a folder, or reuse matching files. All ranks must call it with the same arguments."""
    tokenizer.check_max_length(max_length)
    folder = Path(folder)
    about = {
        "texts": _fingerprint(texts), "documents": len(texts),
        "tokenizer": tokenizer.fingerprint, "max_length": max_length,
    } | ({"max_windows": max_windows} if max_windows > 1 else {})  # fmt: skip
    if communicator is None or communicator.size == 1:
        return _matching(folder, about) or _write(texts, tokenizer, folder, about)
    everywhere = communicator.allgather(about)
    if different := [rank for rank, theirs in enumerate(everywhere) if theirs != everywhere[0]]:
        raise InputError(
            f"the documents or tokenizer settings of rank {different[0]} differ from those of rank 0",
            expected=str(everywhere[0]),
            received=str(everywhere[different[0]]),
            fix="use the same files and options on all hosts",
        )
    problem = ""
    if _first_to_see(folder, communicator) == communicator.rank:
        try:
            if _matching(folder, about) is None:
                _write(texts, tokenizer, folder, about)
        except (OSError, InputError) as error:
            problem = f"rank {communicator.rank}: {error}"
    if problems := [one for one in communicator.allgather(problem) if one]:
        raise InputError(f"the documents could not be tokenized: {problems[0]}")
    return TokenStore.open(folder, verify=False)


def _matching(folder: Path, about: dict[str, Any]) -> TokenStore | None:
    """Return the token store in the folder if it is complete and was made from the same inputs, else None."""
    if not (folder / "store.json").is_file():
        return None
    try:
        store = TokenStore.open(folder)
    except InputError as error:
        log.warning("tokenizing again, because the existing files are incomplete: %s", error.problem)
        return None
    return store if store.about == about else None


def _write(
    texts: TextFile | Sequence[Text], tokenizer: TextTokenizer, folder: Path, about: dict[str, Any]
) -> TokenStore:
    truncation, reading = TruncationCounter(), WindowOptions(about["max_length"], about.get("max_windows", 1))
    with (
        TokenStore.create(folder, about, tokenizer.vocabulary_size) as writer,
        Progress("tokenizing", len(texts), "documents") as progress,
    ):
        for chunk in _chunks(texts):
            writer.write(*tokenizer.windows(chunk, reading, truncation))
            progress.add(len(chunk))
    cure = "--truncate-length, or use --long-texts max" if reading.max_windows == 1 else "--max-windows"
    truncation.log_summary(reading, f"fix: raise {cure}")
    return TokenStore.open(folder, verify=False)


def _first_to_see(folder: Path, communicator: Any) -> int:
    """Return the lowest rank that shares this rank's folder: the first on the host, or rank 0 on a shared disk."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    run = communicator.broadcast(secrets.token_hex(8))
    mark = folder.parent / f".{folder.name}-{run}-{communicator.rank}"
    mark.touch()
    communicator.barrier()
    first = min(int(path.name.rsplit("-", 1)[1]) for path in folder.parent.glob(f".{folder.name}-{run}-*"))
    communicator.barrier()
    mark.unlink(missing_ok=True)
    return first


def _chunks(texts: TextFile | Sequence[Text]) -> Iterator[Sequence[Text]]:
    for first in range(0, len(texts), _CHUNK):
        # The tokenizer accepts bytes, and the file returns bytes without a conversion.
        yield texts.lines(first, first + _CHUNK) if isinstance(texts, TextFile) else texts[first : first + _CHUNK]


def _fingerprint(texts: TextFile | Sequence[Text]) -> str:
    """Return a hash of all documents, which also depends on their boundaries."""
    digest = hashlib.sha256()
    for text in chain.from_iterable(_chunks(texts)):
        # Encoded as for tokenizing: bytes and strings of the same document have the same hash.
        content = text.encode("utf-8", errors="replace") if isinstance(text, str) else text
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()[:32]
