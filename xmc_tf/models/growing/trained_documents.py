from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.folders.checksums import verified

KEYS = "keys.npy"


@dataclass(frozen=True, eq=False)
class TrainedDocuments:
    """The documents that a model was trained on, as ascending digests of their texts."""

    keys: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> Self:
        return cls(np.unique(_keys(texts)))

    def include(self, texts: Iterable[str]) -> np.ndarray:
        """Return for each text whether the model was trained on it."""
        return np.isin(_keys(texts), self.keys)

    def with_texts(self, texts: Iterable[str | bytes]) -> Self:
        return type(self)(np.union1d(self.keys, _keys(texts)))

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / KEYS, self.keys)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Read the folder; None if there is none."""
        path = folder / KEYS
        with verified(folder):
            if not path.exists():
                return None
            try:
                keys = np.load(path, allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise InputError(f"{path} cannot be read: {error}", fix="copy the model again") from None
        if keys.dtype != np.int64 or keys.ndim != 1:
            raise InputError(f"{path} has no digests of documents", fix="copy the model again")
        return cls(keys)


def _keys(texts: Iterable[str | bytes]) -> np.ndarray:
    """Return digests of texts, ignoring differences in white space."""
    from xmc_tf.tables.splits import text_key  # what tables need, a prediction does not

    lines = (text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts)
    return np.fromiter((text_key(" ".join(line.split())) for line in lines), np.int64)
