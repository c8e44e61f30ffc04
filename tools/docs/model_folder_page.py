"""The page of the parts of a model's folder, made from the table of the code."""

from tools.docs.markdown import code, plain, table
from xmc_tf.store.models import FOLDERS, PARTS


def page() -> str:
    """Return the page of the parts of a model's folder."""
    rows = (
        [code(part.name + ("/" if part.name in FOLDERS else "")), plain(part.about), code(part.written_by)]
        for part in PARTS
    )
    return "\n\n".join([
        "# Model folder",
        "Reference: the parts of a model's folder. Nothing in it is absolute: copy or rename it freely. A folder "
        "without `params.json` is not a model, because this file is written last. `xmc-tf check --model MODEL` "
        "compares all files with their checksums in it; loading compares those that it reads. Other "
        "files beside the parts stay when a model is replaced.",
        table(["part", "content", "written and read by"], rows),
    ]) + "\n"  # fmt: skip
