"""An exported model that is loaded in this process, for trials and measurements."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.common.process.forks import check_not_forked
from xmc_tf.common.process.quiet import muted_stderr
from xmc_tf.common.progress import Progress
from xmc_tf.store.checksums import Records, checksum_of, is_unchanged, verify
from xmc_tf.store.models import ABOUT, SERVING


class LocalModel:
    def __init__(self, folder: str | Path) -> None:
        check_not_forked("an exported model")
        self.folder = find_version(folder)
        self.about = _about(self.folder)
        with muted_stderr():
            import tensorflow as tf
            import tensorflow_text  # noqa: F401  # its ops are in the graph
        self._tf = tf
        try:
            verify(self.folder, records=Records.read(self.folder, ABOUT))
            self._model = tf.saved_model.load(str(self.folder))
        except (OSError, tf.errors.OpError) as error:
            raise InputError(
                f"{self.folder} cannot be loaded: {str(error).splitlines()[0]}",
                fix="the folder may be incomplete: copy it again, or export the model again",
            ) from None
        if "serving_default" not in self._model.signatures:
            raise InputError(f"{self.folder} has no signature serving_default", fix="export the model again")

    @property
    def signatures(self) -> list[str]:
        return sorted(self._model.signatures)

    def ask(
        self, texts: Sequence[str] | Sequence[bytes], signature: str = "serving_default", **more: Any
    ) -> dict[str, np.ndarray]:
        """Return the answer to one request, in the same form as a server's answer."""
        check_not_forked("an exported model")
        if signature not in self._model.signatures:
            raise InputError(
                f"{self.folder} has no signature {signature!r}", expected=", ".join(self.signatures), received=signature
            )
        inputs = {"text": self._tf.constant(list(texts), self._tf.string, [len(texts)])}
        inputs |= {name: self._tf.convert_to_tensor(value) for name, value in more.items()}
        return {name: value.numpy() for name, value in self._model.signatures[signature](**inputs).items()}

    def predict(self, texts: Sequence[str] | Sequence[bytes], batch: int = 64) -> csr_matrix:
        """Return a texts × labels matrix of the best labels, with scores in descending order within each row."""
        answers = []
        with Progress("asking the exported model", len(texts), "documents") as progress:
            for at in range(0, len(texts), batch):
                answers.append(self.ask(texts[at : at + batch]))
                progress.add(len(answers[-1]["labels"]))
        k = int(self.about["k"])
        labels = np.concatenate([np.zeros((0, k), np.int64), *(answer["labels"] for answer in answers)])
        scores = np.concatenate([np.zeros((0, k), np.float32), *(answer["scores"] for answer in answers)])
        return as_matrix(labels, scores, int(self.about["nr_labels"]))


def as_matrix(labels: np.ndarray, scores: np.ndarray, nr_labels: int) -> csr_matrix:
    """Convert an answer to a matrix with scores in descending order within each row; label -1 means no label."""
    there = labels >= 0
    result = csr_matrix((len(labels), nr_labels), dtype=np.float32)
    result.indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    result.indices = labels[there].astype(np.int32)
    result.data = scores[there].astype(np.float32)
    return result


def find_version(folder: str | Path) -> Path:
    """Return the folder with ``saved_model.pb``: the given folder, or its subfolder with the highest version."""
    folder = Path(folder)
    if (folder / "saved_model.pb").is_file():
        return folder
    versions = [path.parent for path in folder.glob("*/saved_model.pb") if path.parent.name.isdigit()]
    if versions:
        return max(versions, key=lambda path: int(path.name))
    if (folder / "params.json").is_file():
        raise InputError(
            f"{folder} is a trained model, not an exported one",
            expected="a folder with saved_model.pb",
            fix=f"export it: python -m xmc_tf.export -m {folder} -o served/1",
        )
    raise InputError(
        f"{folder} is not an exported model" if folder.exists() else f"{folder} does not exist",
        expected="a folder that contains saved_model.pb, or version subfolders (1, 2, …) that contain it",
        fix="export a model: python -m xmc_tf.export -m MODEL -o served/1",
    )


def _about(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    about: dict[str, Any] = read_json(path, fix="copy the folder again, or export again") if path.exists() else {}
    if about.get("format") != SERVING:
        raise InputError(
            f"{folder} was not exported by xmc_tf: {ABOUT} is missing or has an unknown format",
            expected="a folder written by python -m xmc_tf.export -m MODEL -o served/1",
        )
    if is_unchanged(about) is False:
        raise InputError(
            f"{folder / ABOUT} has changed since it was exported",
            expected=f"checksum {about['checksum']}",
            received=f"checksum {checksum_of(about)}",
            fix="restore the folder from an intact copy, or export the model again",
        )
    return about
