"""Names of the files that matrices are written to.

PECOS writes a matrix to exactly the name that it is given, whatever the name ends in, and its loaders look at the
content. So do ours. Only a name that promises another format is refused.
"""

from pathlib import Path

from xmc_tf.common.errors import InputError

_OTHER_FORMATS = frozenset(
    (".npz", ".npy", ".jsonl", ".json", ".csv", ".tsv", ".txt", ".gz", ".zip", ".pkl", ".parquet", ".xlsx", ".h5")
)


def prediction_path(path: str | None, folder_name: str | None = None) -> str | None:
    """Return the file that ``-o`` of a command that predicts means.

    Args:
        path: what the user gave, None for nothing.
        folder_name: the file's name if ``path`` is an existing folder; None to refuse a folder.

    Raises:
        InputError: if the name promises a format that predictions are not written in.
    """
    if path is None:
        return None
    if folder_name and Path(path).is_dir():
        return str(Path(path) / folder_name)
    if Path(path).suffix not in (".npz", ".jsonl"):
        _check(path, "predictions are", "a name that ends in .npz (a matrix) or in .jsonl (a line per document)")
    return path


def embedding_path(path: str) -> Path:
    """Return the file that ``-o`` of a command that encodes means; in a folder it is ``embeddings.npy``."""
    if Path(path).is_dir():
        return Path(path) / "embeddings.npy"
    if Path(path).suffix != ".npy":
        _check(path, "embeddings are", "a name that ends in .npy")
    return Path(path)


def _check(path: str, what: str, expected: str) -> None:
    if Path(path).suffix.lower() in _OTHER_FORMATS:
        raise InputError(
            f"-o {path}: {what} not written in this form",
            expected=f"{expected}, or a name without an extension (a matrix)",
            received=Path(path).suffix,
        )
    if Path(path).is_dir():
        raise InputError(f"-o {path} is a folder", expected=expected, fix="name a file in it")
