import shlex
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json

# Each top-level module that the core lacks -> the extra of setup.cfg that installs it.
EXTRAS = {
    **dict.fromkeys(("tensorflow", "tensorflow_text", "keras", "h5py", "ml_dtypes", "tensorboard"), "tf"),
    **dict.fromkeys(("transformers", "requests"), "tf"),
    # Training requires TensorFlow before it imports the last two; predictions need only these three packages.
    **dict.fromkeys(("onnxruntime", "tokenizers", "safetensors"), "onnx"),
    "mpi4py": "mpi",
    "horovod": "distributed",
    **dict.fromkeys(("grpc", "tensorflow_serving"), "serving"),
    **dict.fromkeys(("httptools", "prometheus_client", "uvicorn"), "server"),
    "sklearn": "sklearn",
    "pynvml": "gpus",
    "rdflib": "skos",
    "pyarrow": "tables",
    "huggingface_hub": "hub",
}


def pip_install(extra: str) -> str:
    """Return the pip command that installs an extra from the source of this copy of xmc_tf."""
    try:
        written = distribution("xmc_tf").read_text("direct_url.json") or "{}"
        origin = parse_json(written, of="direct_url.json", foreign=True)
    except (PackageNotFoundError, InputError):
        origin = {}
    url = str(origin.get("url", ""))
    if url.startswith("file:"):
        return "pip install " + shlex.quote(f"{unquote(urlsplit(url).path)}[{extra}]")
    if "vcs_info" in origin:
        vcs = origin["vcs_info"].get("vcs", "git")
        return "pip install " + shlex.quote(f"xmc_tf[{extra}] @ {vcs}+{url}")
    return f"pip install 'xmc_tf[{extra}]'"


def require(package: str) -> None:
    """Raise InputError if ``package``, a top-level module that belongs to an extra, is not installed."""
    if find_spec(package) is None and (missing := missing_package(ModuleNotFoundError(name=package))) is not None:
        raise missing


def missing_package(error: ModuleNotFoundError) -> InputError | None:
    """Return an error with the installation hint for a missing package, or None if no extra contains it."""
    package = (error.name or "").split(".")[0]
    if (extra := EXTRAS.get(package)) is None:
        return None
    expected = f"the extra {extra!r} of xmc_tf, which this command needs"
    return InputError(f"{package} is not installed", expected=expected, fix=pip_install(extra))
