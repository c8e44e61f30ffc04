"""Detection of the class of a model of xmc_tf or PECOS from its metadata, without loading the model."""

from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import read_json, read_unchanged_json

FINE_TUNED, LINEAR = "XTransformer", "XLinear"
_LARGEST = 1 << 24  # bytes of a parameter file


def model_kind(folder: Path) -> str:
    """Return "XTransformer" or "XLinear", or "" if params.json is damaged or neither it nor param.json exists."""
    try:
        if (folder / "params.json").exists():
            return str(read_unchanged_json(folder / "params.json").get("model", ""))
        if (folder / "param.json").exists():
            return FINE_TUNED if pecos_class(folder) == FINE_TUNED else LINEAR  # also if param.json is damaged
    except (InputError, OSError):
        pass  # loading the model reports it
    return ""


def pecos_class(folder: Path) -> str:
    """Return the name of the PECOS class that wrote a folder, such as "XTransformer", or "" for any other folder."""
    path = folder / "param.json"
    if (folder / "params.json").exists() or not path.is_file():
        return ""
    try:
        about = read_json(path, limit=_LARGEST, foreign=True)
    except InputError:
        return ""  # loading the model reports it
    meta = about.get("__meta__")
    name = meta.get("class_fullname") if isinstance(meta, dict) else None
    return name.rpartition("###")[2] if isinstance(name, str) and name.startswith("pecos.") else ""
