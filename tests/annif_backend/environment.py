"""An environment with Annif, which needs another NumPy than TensorFlow does; made once, and kept in the cache."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ANNIF = "annif==1.4.3"
# Of its dependencies, those that are needed on top by the package.
PACKAGES = (ANNIF, "numba>=0.60")
_PUNKT = ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab")


def annif_environment() -> Path:
    """Return the environment's folder; skip the test where no package index has Annif."""
    cache = Path(os.environ.get("XMC_TF_TEST_CACHE", Path.home() / ".cache" / "xmc_tf"))
    folder = cache / f"{ANNIF.replace('==', '-')}-py{sys.version_info[0]}.{sys.version_info[1]}"
    if (folder / "ready").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-compile"]
    made = subprocess.run([*pip, *PACKAGES], capture_output=True, text=True)
    if made.returncode:
        shutil.rmtree(folder)
        pytest.skip(f"Annif cannot be installed, so its backend is not tested: {made.stderr[-500:]}")
    # Annif's tokenizer wants NLTK's data of sentence ends, which it downloads. Empty lists do for these texts.
    punkt = folder / "nltk_data" / "tokenizers" / "punkt_tab" / "english"
    punkt.mkdir(parents=True)
    for name in _PUNKT:
        (punkt / name).touch()
    (folder / "ready").touch()
    return folder
