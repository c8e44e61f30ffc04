from pathlib import Path

from xmc_tf.common.errors import InputError


def log_folder(folder: str | Path) -> str:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"{folder} cannot hold TensorBoard's files: {error.strerror}"
        raise InputError(problem, expected="a writable folder, or a new one", fix="use another logdir") from None
    return str(folder)
