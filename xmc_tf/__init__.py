"""Extreme multi-label classification in TensorFlow: from raw text to a served model.

The public names load on first use, so that ``import xmc_tf`` costs nothing and the parts that need no
TensorFlow (``xmc_tf.linear``, ``xmc_tf.tree``) run on machines that have none.
"""

import os
import sys

# transformers' TensorFlow classes are written for Keras 2. Both settings only work before TensorFlow's import.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

__version__ = "0.1.0"

# Public name -> the module that defines it.
_LAZY = {
    "CollectiveStrategy": "xmc_tf.collective.strategy",
    "XTransformer": "xmc_tf.pipeline.model",
}


def __getattr__(name: str) -> object:
    """Loads a public name when it is first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """What is there and what would load."""
    return sorted([*globals(), *_LAZY])


def _begin_command_line() -> None:
    """If this is one of our command lines, prepare for its end before its imports, which take seconds.

    A signal that comes while they run shows no traceback, and a rank whose launcher is killed leaves a record.
    """
    module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    if not module.startswith("xmc_tf.") or module.startswith("xmc_tf.collective."):
        return
    from xmc_tf.common import launcher, signals

    signals.end_at_once()
    if launcher.is_rank():
        from xmc_tf.common import run_records

        run_records.record_launcher()
        launcher.end_with_it()


if sys.argv[:1] == ["-m"] and "-m" in sys.orig_argv:
    _begin_command_line()
