"""The source of an encoder and its tokenizer: a folder, or a name on the hub or in its cache."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.common.process.quiet import muted_stderr
from xmc_tf.common.regular import open_regular
from xmc_tf.encoder.adapters import CONFIG as CONFIG_OF_ADAPTERS
from xmc_tf.encoder.adapters import PublishedAdapters
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.weight_files import HDF5, INDEX, SAFETENSORS, TORCH, listed_files, weight_files
from xmc_tf.store.checksums import verify

_LOG = logging.getLogger(__name__)
_CONFIG = "config.json"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
WEIGHT_ENDINGS = (".safetensors", ".h5", ".bin")  # verified when they are read
# Only these files are checked, because other files of the folder belong to the user.
_JSON_FILES = frozenset((
    _CONFIG, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "generation_config.json", *(f"{file}{INDEX}" for file in (SAFETENSORS, HDF5, TORCH)),
))  # fmt: skip
_LARGEST_JSON = 1 << 30  # tokenizers of a quarter of a million tokens take 20 MB
_MAX_WEIGHTS_PER_BYTE = 8  # weights take 2 or 4 bytes each, so this is generous; truncated files are reported elsewhere
_LFS = b"version https://git-lfs"
_TRUE = ("1", "ON", "YES", "TRUE")  # values of environment variables


class EncoderSource:
    def __init__(self, name_or_folder: str | Path, part: str, cache_dir: str = "") -> None:
        self.cache_dir, self.part = cache_dir or None, part
        self.folder: Path | None = None
        self.adapters: PublishedAdapters | None = None
        folder = Path(name_or_folder).expanduser()
        if (folder / CONFIG_OF_ADAPTERS).is_file() and not (folder / _CONFIG).is_file():
            self.adapters = PublishedAdapters(folder)
            name_or_folder = self.adapters.base
            folder = Path(name_or_folder).expanduser()
        if folder.is_dir():
            self.folder = _inner_folder(folder, part)
            verify(self.folder, skip=WEIGHT_ENDINGS)
            _check_files(self.folder)
        elif folder.exists() or folder.is_absolute() or str(name_or_folder).startswith((".", "~")):
            raise InputError(
                f"{name_or_folder} is not a folder with {_ARTICLE[part]}",
                expected="a folder, or a name on the hub such as bert-base-cased",
                received="a file" if folder.exists() else "a path that does not exist",
                fix="check the path",
            )
        self.name = str(self.folder or name_or_folder)

    def read(self, file: str) -> bytes | None:
        """Return the content of a small file, or None if there is no such file."""
        found = self.path_of(file)
        return found.read_bytes() if found else None

    def path_of(self, file: str) -> Path | None:
        """Return the path of a file, downloaded if needed, or None if there is no such file."""
        if self.folder is not None:
            return self.folder / file if (self.folder / file).is_file() else None
        return self._cached(file)

    def weight_paths(self) -> list[Path]:
        """Return the paths of the weight files; safetensors is preferred to the other formats."""
        if self.folder is None:
            return self._cached_weights()
        paths = weight_files(self.folder)
        for path in paths:
            with path.open("rb") as opened:
                if opened.read(len(_LFS)) == _LFS:
                    raise InputError(
                        f"{path} contains a pointer instead of weights",
                        expected="the weights themselves",
                        received="a Git LFS pointer",
                        fix="run 'git lfs pull' in that folder",
                    )
        if not paths:
            raise InputError(
                f"{self.folder} has a configuration but no weights",
                expected=" or ".join((SAFETENSORS, HDF5, TORCH)),
                fix="copy the whole folder again",
            )
        return paths

    def _cached_weights(self) -> list[Path]:
        for file in (SAFETENSORS, TORCH, HDF5):
            if (found := self._cached(file)) is not None:
                return [found]
            if (index := self._cached(f"{file}{INDEX}")) is not None:
                paths = [self._cached(name) for name in listed_files(index)]
                if None not in paths:
                    return [path for path in paths if path is not None]
        raise self.not_found(OSError("no weights in a supported format"))

    def _cached(self, file: str) -> Path | None:
        """Return the path of a model's file in the hub's cache, downloading it if needed; None if it is missing."""
        from huggingface_hub import hf_hub_download  # a folder needs no hub
        from huggingface_hub.errors import EntryNotFoundError, HFValidationError

        try:
            return Path(hf_hub_download(self.name, file, cache_dir=self.cache_dir))
        except EntryNotFoundError:  # also without a network, if the file is not in the cache
            return None
        except (OSError, HFValidationError) as error:
            raise self.not_found(error) from None

    def check_claims(self, config: EncoderConfig) -> None:
        """Raise an InputError if the configuration implies more weights than the folder's files can contain."""
        if self.folder is None:
            return
        layers = config.architecture.own_layers(config)
        least = config.vocabulary * config.embedding_width + layers * config.width**2
        held = sum(entry.stat().st_size for entry in self.folder.iterdir() if entry.is_file())
        if least > _MAX_WEIGHTS_PER_BYTE * held:
            raise InputError(
                f"{self.folder / 'config.json'} does not belong to the weights beside it",
                expected="the configuration that was saved with the weights",
                received=f"a configuration of at least {least:,} weights, and files of {held:,} bytes",
                fix="copy the whole folder again",
            )

    def not_found(self, error: BaseException) -> InputError:
        """Return the InputError for an encoder or tokenizer that cannot be loaded."""
        if self.folder is not None:
            return InputError(
                f"the {self.part} in {self.folder} cannot be read",
                expected="the files as transformers or xmc_tf saved them",
                received=_first_line(error),
                fix="copy the whole folder again",
            )
        why = f" because {_offline()} is set" if _offline() else ""
        return InputError(
            f"there is no {self.part} {self.name!r}: it is not a folder, not cached, and cannot be downloaded{why}",
            expected="a folder, or a name on the hub",
            received=_first_line(error),
            fix=f"on a machine with network access, run: hf download {self.name} --local-dir FOLDER; copy FOLDER here "
            "and use it instead of the name",
        )


def check_available(name_or_folder: str | Path, cache_dir: str = "") -> None:
    """Raise an InputError if the encoder (``--model-shortcut``) or its tokenizer definitely cannot be loaded."""
    source = EncoderSource(name_or_folder, "encoder", cache_dir)
    if source.folder is not None:
        source.weight_paths()
        EncoderSource(name_or_folder, "tokenizer", cache_dir)
        return
    import requests
    from huggingface_hub import constants, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import build_hf_headers

    try:
        if isinstance(try_to_load_from_cache(source.name, _CONFIG, cache_dir=source.cache_dir), str):
            return
        url = hf_hub_url(source.name, _CONFIG)
    except HFValidationError as error:
        raise _unavailable(source.name, f"neither a folder nor a name on the hub ({error})") from None
    if constants.HF_HUB_OFFLINE or _offline():
        raise _unavailable(source.name, f"not in the cache, and {_offline() or 'HF_HUB_OFFLINE'} is set")
    try:
        # No retries: the libraries would retry for half a minute.
        answer = requests.head(url, headers=build_hf_headers(), timeout=5.0, allow_redirects=True)
    except requests.RequestException as error:
        reason = f"not in the cache, and the hub cannot be reached ({type(error).__name__})"
        raise _unavailable(source.name, reason) from None
    if answer.status_code in (401, 403, 404):
        raise _unavailable(source.name, f"the hub answers {answer.status_code}: no such encoder, or no access to it")
    if answer.status_code >= 400:
        _LOG.debug("%s: the hub responded %s; trying to load the encoder", source.name, answer.status_code)


def _offline() -> str:
    """Return the name of the environment variable that forbids downloads; empty if they are allowed."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return next((name for name in names if os.environ.get(name, "").upper() in _TRUE), "")


def _unavailable(name: str, reason: str) -> InputError:
    return InputError(
        f"--model-shortcut {name}: the encoder is not available",
        expected="a folder with config.json, weights and tokenizer, or a name on the Hugging Face hub",
        received=reason,
        fix=f"on a machine with network access, run: hf download {name} --local-dir FOLDER; copy FOLDER here and "
        "use it instead of the name",
    )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the log of transformers and the hub client's warnings in this context; exceptions are still raised."""
    with muted_stderr():
        from transformers.utils import logging as transformers_logging  # only those who use it wait for the import

    before = transformers_logging.get_verbosity()
    hub = logging.getLogger("huggingface_hub")
    of_hub = hub.level
    if not os.environ.get("XMC_TF_CHATTER"):
        transformers_logging.set_verbosity(transformers_logging.CRITICAL)
        hub.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(transformers|huggingface_hub)\.")
            yield
    finally:
        transformers_logging.set_verbosity(before)
        hub.setLevel(of_hub)


def auto_tokenizer(source: EncoderSource) -> Any:
    """Load a tokenizer with transformers' ``AutoTokenizer``; log settings that it assumes."""
    with quiet_transformers():
        from transformers import AutoTokenizer  # takes a second to import

        found = AutoTokenizer.from_pretrained(
            source.name, cache_dir=source.cache_dir, use_fast=True, **_inferred_type(source.folder)
        )
        _note_defaults(source.folder, found)
    return found


def _inferred_type(folder: Path | None) -> dict[str, str]:
    """Return the tokenizer type as an argument if only the PECOS encoder beside the folder tells it, else nothing."""
    if (
        folder is None
        or _content(folder / "config.json").get("model_type")
        or _content(folder / "tokenizer_config.json").get("tokenizer_class")
    ):
        return {}
    kind = _content(folder.parent / "text_encoder" / "config.json").get("model_type")
    return {"tokenizer_type": kind} if isinstance(kind, str) else {}


def _note_defaults(folder: Path | None, tokenizer: Any) -> None:
    """Log the settings that are assumed for a vocabulary without settings; warn if they look wrong."""
    lowers = getattr(tokenizer, "do_lower_case", None)
    if folder is None or lowers is None or any((folder / name).is_file() for name in _TOKENIZER_FILES[:2]):
        return
    special = set(tokenizer.all_special_tokens)
    cased = sum(1 for token in tokenizer.get_vocab() if token not in special and token != token.lower())
    assumed = f"{folder} has no tokenizer_config.json: assuming {type(tokenizer).__name__}"
    if lowers and cased > len(tokenizer) // 100:
        _LOG.warning(
            '%s, which converts text to lower case, but %s tokens have capitals; if the encoder is cased, add '
            'tokenizer_config.json with {"do_lower_case": false}', assumed, f"{cased:,}",
        )  # fmt: skip
    else:
        _LOG.info("%s, which %s", assumed, "converts text to lower case" if lowers else "keeps upper and lower case")


def _content(path: Path) -> dict[str, Any]:
    """Return a small JSON object; empty if the file is missing or unreadable (its main reader reports that)."""
    try:
        return dict(read_json(path, limit=1 << 24, foreign=True))
    except (OSError, InputError):
        return {}


_ARTICLE = {"encoder": "an encoder", "tokenizer": "a tokenizer"}
# Where each part is in a parent folder: PECOS's names, also those of its first versions, and those of our own folder.
_INNER = {"encoder": ("text_encoder", "encoder"), "tokenizer": ("text_tokenizer", "tokenizer", "encoder")}


def _inner_folder(folder: Path, part: str) -> Path:
    needed = (_CONFIG,) if part == "encoder" else _TOKENIZER_FILES
    for place in (folder, *(folder / inner for inner in _INNER[part])):
        if any((place / file).is_file() for file in needed):
            return place
    raise InputError(
        f"{folder} is not a folder with {_ARTICLE[part]}",
        expected=f"{' or '.join(needed)} in it, or a subfolder {' or '.join(_INNER[part])}",
        received=", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "an empty folder",
    )


def _check_files(folder: Path) -> None:
    """Check the JSON files with our own reader first, because the libraries hang on pipes and fail on deep nesting."""
    for entry in folder.iterdir():
        if entry.exists() and not entry.is_dir():
            if entry.name in _JSON_FILES:
                read_json(entry, top=None, limit=_LARGEST_JSON, foreign=True, fix="copy the whole folder again")
            elif not entry.is_file():
                open_regular(entry, fix="copy the whole folder again").close()  # raises the right error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
