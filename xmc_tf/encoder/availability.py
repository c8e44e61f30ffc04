"""Early check that an encoder can be loaded, from its files or by one short request to the hub."""

import logging
import os
from pathlib import Path

import requests
from huggingface_hub import constants, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import build_hf_headers

from xmc_tf.common.errors import InputError
from xmc_tf.encoder.sources import EncoderSource

_LOG = logging.getLogger(__name__)
_TIMEOUT_S = 5.0
_CONFIG = "config.json"


def check_available(name_or_folder: str | Path, cache_dir: str = "") -> None:
    """Raise an InputError if the encoder ``--model-shortcut`` or its tokenizer certainly cannot be loaded."""
    source = EncoderSource(name_or_folder, "encoder", cache_dir)
    if source.folder is not None:
        source.weight_paths()
        EncoderSource(name_or_folder, "tokenizer", cache_dir)
        return
    try:
        if isinstance(try_to_load_from_cache(source.name, _CONFIG, cache_dir=source.cache_dir), str):
            return
        url = hf_hub_url(source.name, _CONFIG)
    except HFValidationError as error:
        raise _unavailable(source.name, f"neither a folder nor a name on the hub ({error})") from None
    if constants.HF_HUB_OFFLINE or os.environ.get("TRANSFORMERS_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise _unavailable(source.name, "not in the cache, and HF_HUB_OFFLINE is set")
    try:
        # No retries: the libraries would retry for half a minute.
        answer = requests.head(url, headers=build_hf_headers(), timeout=_TIMEOUT_S, allow_redirects=True)
    except requests.RequestException as error:
        raise _unavailable(
            source.name, f"not in the cache, and the hub cannot be reached ({type(error).__name__})"
        ) from None
    if answer.status_code in (401, 403, 404):
        raise _unavailable(source.name, f"the hub answers {answer.status_code}: no such encoder, or no access to it")
    if answer.status_code >= 400:
        _LOG.debug("%s: the hub responded %s; trying to load the encoder", source.name, answer.status_code)


def _unavailable(name: str, reason: str) -> InputError:
    return InputError(
        f"--model-shortcut {name}: no such encoder",
        expected="a folder with config.json, weights and tokenizer, or a name on the Hugging Face hub",
        received=reason,
        fix=f"on a machine with a network run: hf download {name} --local-dir FOLDER; copy FOLDER here and use it "
        "instead of the name",
    )
