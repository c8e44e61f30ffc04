"""An environment with Annif, whose NumPy, SciPy and transformers are older; made once, and kept in the cache."""

import hashlib
import os
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

from tests.required import missing

ROOT = Path(__file__).resolve().parents[2]
ANNIF = "annif==1.4.3"
_PUNKT = ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab")


def annif_environment() -> Path:
    """Return the environment's folder; skip the test where no package index has Annif.

    Where Annif alone can be installed, our own requirements conflict with it, and the error is raised.
    """
    try:
        return make_environment()
    except subprocess.CalledProcessError as error:
        alone = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--no-deps", "--ignore-installed", ANNIF]
        if subprocess.run(alone, capture_output=True).returncode == 0:
            raise AssertionError(f"Annif cannot be installed beside our requirements: {error.stderr}") from error
        missing("annif", f"Annif cannot be installed, so its backend is not tested: {error.stderr[-500:]}")


def make_environment(*more: str) -> Path:
    """Return the folder of an environment with Annif, which is made if it is not in the cache.

    Args:
        more: packages to install beside it.
    """
    cache = Path(os.environ.get("XMC_TF_TEST_CACHE", Path.home() / ".cache" / "xmc_tf"))
    packages = [ANNIF, *requirements(), *more]
    key = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:12]
    folder = cache / f"{ANNIF.replace('==', '-')}-py{sys.version_info[0]}.{sys.version_info[1]}-{key}"
    if (folder / "ready").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-compile"]
    try:
        subprocess.run([*pip, *packages], capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError:
        shutil.rmtree(folder)
        raise
    (folder / "ready").touch()
    return folder


def requirements() -> list[str]:
    """Return what the package needs with its extra ``tf``, as ``pip install 'xmc_tf[tf]'`` installs it beside Annif."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    needed = (config["options"]["install_requires"], config["options.extras_require"]["tf"])
    return [line for text in needed for line in text.split("\n") if line]


def annif_variables(folder: Path) -> dict[str, str]:
    """Return the environment variables with which Annif finds the backend and the data of its tokenizer.

    Args:
        folder: where that data is written.
    """
    # NLTK's lists of abbreviations and sentence starters, which Annif downloads. Empty ones split a few sentences more.
    punkt = folder / "nltk_data" / "tokenizers" / "punkt_tab" / "english"
    punkt.mkdir(parents=True, exist_ok=True)
    for file in _PUNKT:
        (punkt / file).touch()
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "ANNIF_CONFIG": "xmc_tf.annif.Config",
        "NLTK_DATA": str(folder / "nltk_data"),
    }
