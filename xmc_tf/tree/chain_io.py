"""Label trees on disk, as PECOS's folder of matrices or as a single matrix of labels × clusters."""

import json
from collections.abc import Sequence
from pathlib import Path

from scipy.sparse import issparse, sparray, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.data import load_matrix, save_matrix
from xmc_tf.store.checksums import verify
from xmc_tf.store.models import CHAIN
from xmc_tf.store.publishing import publish
from xmc_tf.tree.label_tree import LabelTree, cluster_matrix, upper_splits

CONFIG = "config.json"
RANKER = Path("ranker", "param.json")  # in a folder of linear rankers


def load_chain(path: str | Path, nr_splits: int = 16, min_codes: int | None = None) -> LabelTree:
    """Read a label tree from its folder, a folder of linear rankers, or one matrix, to which upper levels are added."""
    path = Path(path)
    verify(path, skip=("W.npz",))
    if path.is_dir():
        chain = [_read(file) for file in _matrices(path)]
    else:
        leaves = _read(path)
        chain = [*map(cluster_matrix, upper_splits(leaves.shape[1], nr_splits, min_codes)), leaves]
    try:
        return LabelTree.from_chain(chain)
    except InputError as error:
        raise error.found_in(path) from None


def save_chain(path: str | Path, chain: LabelTree | Sequence[spmatrix | sparray]) -> None:
    """Write a label tree atomically as PECOS's folder of matrices (float32, CSC). Other files there are kept."""
    tree = chain if isinstance(chain, LabelTree) else LabelTree.from_chain(chain)
    with publish(path, CHAIN) as folder:
        matrices = tree.to_chain()
        (folder / CONFIG).write_text(json.dumps({"len": len(matrices)}), encoding="utf-8")
        for t, matrix in enumerate(matrices):
            save_matrix(folder / f"C{t}.npz", matrix)


def _matrices(folder: Path) -> list[Path]:
    """Return the matrix files, from the root down, in a folder of a tree or of linear rankers (ours or PECOS's)."""
    file, found = folder / CONFIG, sorted(folder.glob("C*.npz"))
    if not file.exists() and (folder / RANKER).is_file():
        files: list[Path] = []
        while (matrix := folder / "ranker" / f"{len(files)}.model" / "C.npz").is_file():
            files.append(matrix)
        if not files:
            raise InputError(
                f"{folder} contains no label tree", expected="ranker/0.model/C.npz, as in a folder of linear rankers",
                fix="copy the whole folder again",
            )  # fmt: skip
        return files
    if not file.exists():
        raise InputError(
            f"{folder} contains no label tree", expected=f"a {CONFIG} beside C0.npz, C1.npz …",
            received=", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "an empty folder",
            fix="name the folder tree/ of a model, or a matrix of labels × clusters (.npz)",
        )  # fmt: skip
    form = 'a JSON object with the number of matrices, such as {"len": 3}'
    config = read_json(file, expected=form, top=None)
    depth = config.get("len") if isinstance(config, dict) else None
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 1:
        problem = f"{file} does not give the depth of the tree"
        raise InputError(problem, expected=form, received=json.dumps(config)[:100])
    files = [folder / f"C{t}.npz" for t in range(depth)]
    for matrix in files:
        if not matrix.is_file():
            raise InputError(
                f"{matrix} is missing", expected=f"{depth} matrices, as {CONFIG} says: C0.npz to C{depth - 1}.npz",
                received=f"{len(found)} of them", fix="copy the whole folder again",
            )  # fmt: skip
    if (folder / f"C{depth}.npz").exists():
        raise InputError(
            f"{folder} holds more matrices than {CONFIG} says", expected=f"{depth} matrices", received=f"{len(found)}",
            fix="two trees may have been mixed: copy the folder again into an empty one",
        )  # fmt: skip
    return files


def _read(file: Path) -> spmatrix:
    matrix = load_matrix(file, name="label tree", mmap=False)
    if not issparse(matrix):
        raise InputError(
            f"{file} is not a sparse matrix", expected="a scipy .npz of labels × clusters with one entry per label",
            received="a dense array", fix="scipy.sparse.save_npz(path, scipy.sparse.csc_matrix(C))",
        )  # fmt: skip
    return matrix
