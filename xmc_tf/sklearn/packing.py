"""A transformer's folder inside a pickle: the model's parts are files, which may be gone when the pickle is read."""

import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from xmc_tf.common.process.run_records import TemporaryFolder

if TYPE_CHECKING:
    from xmc_tf.models.xtransformer import XTransformer


def pack(model: "XTransformer") -> dict[str, bytes]:
    """Return the files of a model, by their paths within its folder."""
    with TemporaryFolder() as place:
        folder = Path(place) / "model"
        model.save(folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def unpack(files: dict[str, bytes]) -> "XTransformer":
    """Return the model of these files, in a temporary folder that exists as long as the model."""
    from xmc_tf.models.xtransformer import XTransformer

    place = TemporaryFolder()
    for name, content in files.items():
        path = Path(place.name) / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    model = XTransformer.load(Path(place.name) / "model")
    weakref.finalize(model, place.cleanup)
    return model
