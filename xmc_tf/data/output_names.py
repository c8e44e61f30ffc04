"""Names of output files of matrices."""

from pathlib import Path

from xmc_tf.common.errors import InputError

_OTHER_FORMATS = frozenset(
    (".npz", ".npy", ".jsonl", ".json", ".csv", ".tsv", ".txt", ".gz", ".zip", ".pkl", ".parquet", ".xlsx", ".h5")
)


def prediction_path(path: str | None, folder_name: str | None = None) -> str | None:
    """Return the output file of a prediction command, given its ``-o``; in an existing folder, ``folder_name``."""
    if path is None:
        return None
    if folder_name and Path(path).is_dir():
        return str(Path(path) / folder_name)
    if Path(path).suffix not in (".npz", ".jsonl"):
        _check(path, "predictions are", "a name that ends in .npz (a matrix) or in .jsonl (a line per document)")
    return path


def embedding_path(path: str) -> Path:
    """Return the output file of an embedding command, given its ``-o``; in an existing folder, ``embeddings.npy``."""
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
