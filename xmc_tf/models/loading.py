import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import require
from xmc_tf.models.folder import kind_of, read_metadata
from xmc_tf.store.models import FINE_TUNED

if TYPE_CHECKING:
    from types import ModuleType

    from xmc_tf.models.model import Model

# Each model class is imported only when it is needed: a linear model needs no encoder code.


HUB = "hf://"
_ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?/?")


def load(folder: str | Path, *, runtime: str = "auto") -> "Model":
    """Load a model of xmc_tf, or a model folder of ``pecos.xmc.xtransformer`` or ``pecos.xmc.xlinear``.

    Example:
        >>> load("model").best(["gradient of a sparse matrix"], k=3)
        [[('scipy.sparse', …), …]]

    Args:
        folder: the model folder; or ``hf://user/model`` or ``hf://user/model@revision`` for a model on the Hugging Face
            hub that was uploaded with :func:`push`.
        runtime: runtime of the encoder: "tensorflow", "onnx" (ONNX Runtime), or "auto", which uses TensorFlow unless it
            is not installed or the model was exported for ONNX Runtime. Linear models need neither.

    Returns:
        An :class:`XTransformer` or an :class:`XRLinear`.

    Raises:
        InputError: the folder is not a model; the message names the missing or damaged file.
    """
    if isinstance(folder, str) and folder.startswith(HUB):
        folder = download(folder)
    folder = Path(folder)
    if kind_of(folder) == FINE_TUNED:
        from xmc_tf.models.xtransformer import XTransformer

        return XTransformer.load(folder, runtime=runtime)
    from xmc_tf.models.xr_linear import XRLinear

    return XRLinear.load(folder)


def download(address: str) -> Path:
    """Download a model folder, or find it in the cache of the Hugging Face hub, and return its path."""
    repository, revision = _parsed(address)
    hub = _hub()
    try:
        return Path(hub.snapshot_download(repository, revision=revision))
    except hub.errors.LocalEntryNotFoundError as error:  # not in the cache, and no answer from the hub
        offline = next((name for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if os.environ.get(name)), "")
        raise InputError(
            f"{address} is not in the cache and cannot be downloaded",
            expected="access to the Hugging Face hub, or a model that was downloaded before",
            received=f"{offline}={os.environ[offline]}" if offline else _first_line(error),
            fix=f"on a machine with network access, run: hf download {repository} --local-dir FOLDER; copy FOLDER here "
            "and use it instead of the address",
        ) from None
    except (hub.errors.HfHubHTTPError, ValueError, OSError) as error:
        raise _refused(address, error) from None


def push(folder: str | Path, address: str, *, private: bool = True) -> str:
    """Upload a model folder to the Hugging Face hub, including the model card if ``xmc-tf report`` has written one.

    You must be logged in (``hf auth login``). All files in the folder are uploaded, including training data kept there.

    ``xmc_tf.push("model", "hf://user/model")`` returns ``'https://huggingface.co/user/model'``.

    Args:
        folder: the model folder.
        address: ``hf://user/model``; the repository is created if it does not exist.
        private: whether to make a new repository private.

    Returns:
        The URL of the model page.

    Raises:
        InputError: the folder is not a model, the address is wrong, or the hub rejects the upload.
    """
    repository, revision = _parsed(address)
    read_metadata(Path(folder))
    hub = _hub()
    try:
        hub.create_repo(repository, private=private, exist_ok=True)
        hub.upload_folder(
            repo_id=repository, folder_path=str(folder), revision=revision, commit_message="Upload a model of xmc_tf"
        )
    except (hub.errors.HfHubHTTPError, ValueError, OSError) as error:
        raise _refused(address, error) from None
    return f"https://huggingface.co/{repository}"


def _parsed(address: str) -> tuple[str, str | None]:
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise InputError(
            f"{address} is not the address of a model on the hub", expected="hf://user/model or hf://user/model@revision",
            received=address,
        )  # fmt: skip
    return found[1], found[2]


def _hub() -> "ModuleType":
    require("huggingface_hub")
    import huggingface_hub
    import huggingface_hub.errors

    return huggingface_hub


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _refused(address: str, error: Exception) -> InputError:
    return InputError(
        f"{address}: {_first_line(error)}",
        expected="a repository that exists, and access to it",
        fix="check the name; hf auth login gives access to private models",
    )
