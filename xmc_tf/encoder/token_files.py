"""All documents tokenized once a host, into files that its ranks map."""

import hashlib
import logging
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.data.text import TextFile
from xmc_tf.data.tokens import TokenStore
from xmc_tf.encoder.tokenizer import Text, TextTokenizer
from xmc_tf.encoder.truncation import Truncation

log = logging.getLogger(__name__)

_AT_ONCE = 4096


def tokenize_file(
    texts: TextFile | Sequence[Text],
    tokenizer: TextTokenizer,
    folder: str | Path,
    *,
    max_length: int,
    communicator: Any = None,
) -> TokenStore:
    """Tokenize all documents into a folder, or takes the folder when it holds just that already.

    Where several ranks see the same folder, the first of them writes it and the others wait.

    Args:
        texts: the documents, the same on every rank.
        tokenizer: what to tokenize with.
        folder: where the token store lies or shall lie, the same path on every rank.
        max_length: most tokens of a document, special ones included.
        communicator: this process among the others; None for one process.

    Returns:
        The store, mapped into memory.

    Raises:
        InputError: on all ranks, when one of them cannot write or has other documents than the first.
    """
    tokenizer.check_max_length(max_length)
    folder = Path(folder)
    about = {
        "texts": _fingerprint(texts), "documents": len(texts),
        "tokenizer": tokenizer.fingerprint, "max_length": max_length,
    }  # fmt: skip
    if communicator is None or communicator.size == 1:
        return _matching(folder, about) or _write(texts, tokenizer, folder, about)
    everywhere = communicator.allgather(about)
    if different := [rank for rank, theirs in enumerate(everywhere) if theirs != everywhere[0]]:
        raise InputError(
            f"rank {different[0]} has different documents or a different tokenizer than rank 0",
            expected=str(everywhere[0]),
            received=str(everywhere[different[0]]),
            fix="give all hosts the same files",
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
    """The store in the folder if it is whole and of just these documents, else None."""
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
    truncation, longest = Truncation(), about["max_length"]
    with TokenStore.create(folder, about) as writer, Progress("tokenizing", len(texts), "documents") as progress:
        for first in range(0, len(texts), _AT_ONCE):
            chunk = _slice(texts, first)
            writer.write(tokenizer.tokenize(chunk, longest, truncation))
            progress.add(len(chunk))
    truncation.log(longest, "fix: raise --truncate-length")
    return TokenStore.open(folder, verify=False)


def _first_to_see(folder: Path, communicator: Any) -> int:
    """The lowest rank whose files appear in this rank's folder: on one host its first, on a shared disk rank 0."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    run = communicator.broadcast(secrets.token_hex(8))
    mark = folder.parent / f".{folder.name}-{run}-{communicator.rank}"
    mark.touch()
    communicator.barrier()
    first = min(int(path.name.rsplit("-", 1)[1]) for path in folder.parent.glob(f".{folder.name}-{run}-*"))
    communicator.barrier()
    mark.unlink(missing_ok=True)
    return first


def _slice(texts: TextFile | Sequence[Text], first: int) -> Sequence[Text]:
    # Bytes are as good as strings to the tokenizer, and the file has them ready.
    return texts.lines(first, first + _AT_ONCE) if isinstance(texts, TextFile) else texts[first : first + _AT_ONCE]


def _fingerprint(texts: TextFile | Sequence[Text]) -> str:
    """A hash of all documents and where each ends."""
    digest = hashlib.sha256()
    for first in range(0, len(texts), _AT_ONCE):
        for text in _slice(texts, first):
            # As they are tokenized: a document is the same whether it comes as bytes or as a string.
            content = text.encode("utf-8", errors="replace") if isinstance(text, str) else text
            digest.update(len(content).to_bytes(8, "little"))
            digest.update(content)
    return digest.hexdigest()[:32]
