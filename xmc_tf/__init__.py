"""Extreme multi-label classification in TensorFlow: from raw text to a served model.

    >>> from xmc_tf import XRLinear
    >>> model = XRLinear.train(texts, labels)                   # lists, Series, or a DataFrame and its columns
    >>> model.best(["climate change and forests"], k=3)

Start with:

    load, XRLinear, XTransformer   models: train, load, predict, explain, evaluate, save, export
    XMCClassifier                  both models as a scikit-learn classifier
    evaluate, write_report         measure predictions; a report as an HTML page
    CollectiveStrategy             shard the embedding tables of any Keras model over ranks

``dir(xmc_tf)`` lists all public names. They load when they are first used: ``import xmc_tf`` costs nothing, and the
parts that need no TensorFlow (``xmc_tf.rankers``, ``xmc_tf.tree``) run on machines that have none. ``python -m xmc_tf``
lists the commands.
"""

import os
import sys
from functools import cache
from types import ModuleType

# This has an effect only before TensorFlow is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@cache
def _modules() -> dict[str, str]:
    """Return the module of each public name, read from the type stub ``__init__.pyi``."""
    found = {}
    # No import of pathlib or ast, because this runs at the start of every command.
    with open(f"{os.path.dirname(__file__)}/__init__.pyi", encoding="utf-8") as stub:
        for line in stub:
            if line.startswith("from "):
                _, module, _, name, *_ = line.split()
                found[name] = module
    return found


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "__all__":
        return sorted(_modules())
    if name == "__version__":
        from xmc_tf.common.version import __version__

        return __version__
    if (name.startswith("__") and name.endswith("__")) or name not in _modules():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    try:
        return getattr(importlib.import_module(_modules()[name]), name)
    except ModuleNotFoundError as error:
        from xmc_tf.common.process.extras import missing_package

        raise missing_package(error) or error from error


def __dir__() -> list[str]:
    """Return the public names and the imported modules."""
    return sorted({*globals(), *_modules()} - {"ModuleType", "cache", "os", "sys"})


class _Package(ModuleType):
    """The type of this module; it keeps imported submodules, such as xmc_tf.evaluate, from replacing public names."""

    def __setattr__(self, name: str, value: object) -> None:
        if not isinstance(value, ModuleType) or name not in _modules():
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def _begin_command_line() -> None:
    """If this process runs one of our commands, prepare for its termination before the slow imports.

    A signal during the imports then prints no traceback, and a rank ends with its launcher.
    """
    module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    if not module.startswith("xmc_tf.") or module in ("xmc_tf.launch.node", "xmc_tf.launch.rank_proxy"):
        return
    from xmc_tf.common.process import launcher

    launcher.prepare()


if sys.argv[:1] == ["-m"] and "-m" in sys.orig_argv:
    _begin_command_line()
