"""Extreme multi-label classification in TensorFlow: from raw text to a served model.

Models:
    XTransformer            a fine-tuned encoder, its label head, and linear rankers
    XRLinear                linear rankers only; needs TensorFlow for texts, not for features
    load                    load a model of either kind, ours or PECOS's
    Model                   the interface of both
    TrainingRun             how an XTransformer is trained: work folder, ranks, threads, seed
    ExportSettings          options of an exported model
    xmc_tf.sklearn          XMCClassifier: both models as a scikit-learn classifier

Data:
    TextFile                the documents of a text file, one per line
    load_matrix             a matrix of labels, features or predictions, from .npz or .npy
    Tfidf                   TF-IDF features of texts
    LabelTree               the hierarchy of labels that the models search
    prepare                 read a table, such as a CSV file, into a data set
    TableStore              a data set of a table: texts, labels and splits in one database
    PrepareOptions          how a table is read and split, with SourceOptions, ColumnOptions and SplitOptions

Using a model:
    evaluate                precision, recall, nDCG and F1 of predictions
    write_report            a report as one HTML page, with its data as JSON and CSV; takes ReportInputs
    Client                  ask a TensorFlow Serving that has an exported model
    InputError              what is raised for wrong input: expected, received, fix

Embedding tables of your own:
    CollectiveStrategy      a tf.distribute strategy that shards embedding tables over the ranks
    EmbeddingTable          one of several tables of a model: its shape, features and placement
    GrowingEmbedding        a Keras layer whose ids, such as strings, get rows when first seen
    LeastFrequent           evicts its rare ids
    OlderThan               evicts its old ids

Parameters:
    XRLinearParams, XTransformerParams, XTransformerPredParams, MatcherParams, MatcherPredParams, RankerParams,
    RankerPredParams, LinearChainParams, LinearChainPredParams, LinearLevelParams, LinearLevelPredParams,
    HierarchicalKMeansParams, TfidfParams

Example:
    >>> from xmc_tf import TextFile, evaluate, load, load_matrix
    >>> model = load("model")
    >>> print(evaluate(load_matrix("Y.tst.npz"), model.predict(TextFile("X.tst.txt"))))

The names load when they are first used: ``import xmc_tf`` costs nothing, and the parts that need no TensorFlow
(``xmc_tf.linear``, ``xmc_tf.tree``) run on machines that have none. ``python -m xmc_tf`` lists the commands.
"""

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

# Only works before TensorFlow's import.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

__version__ = "0.3.0"

if TYPE_CHECKING:  # what type checkers and editors see of the names in _LAZY
    from xmc_tf.collective.growing.eviction import LeastFrequent, OlderThan
    from xmc_tf.collective.growing.keras_embedding import GrowingEmbedding
    from xmc_tf.collective.several.embedding_table import EmbeddingTable
    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.common.errors import InputError
    from xmc_tf.data.matrices import load_matrix
    from xmc_tf.data.text import TextFile
    from xmc_tf.features.tfidf import Tfidf
    from xmc_tf.metrics.evaluation import evaluate
    from xmc_tf.models.loading import load
    from xmc_tf.models.model import Model
    from xmc_tf.models.training_run import TrainingRun
    from xmc_tf.models.xr_linear import XRLinear
    from xmc_tf.models.xtransformer import XTransformer
    from xmc_tf.params.linear import (
        LinearChainParams,
        LinearChainPredParams,
        LinearLevelParams,
        LinearLevelPredParams,
        RankerParams,
        RankerPredParams,
    )
    from xmc_tf.params.matcher import MatcherParams, MatcherPredParams
    from xmc_tf.params.tfidf import TfidfParams
    from xmc_tf.params.tree import HierarchicalKMeansParams
    from xmc_tf.params.xr_linear import XRLinearParams
    from xmc_tf.params.xtransformer import XTransformerParams, XTransformerPredParams
    from xmc_tf.report.inputs import ReportInputs
    from xmc_tf.report.writing import write_report
    from xmc_tf.serving.client import Client
    from xmc_tf.serving.export import ExportSettings
    from xmc_tf.tables.columns import ColumnOptions
    from xmc_tf.tables.preparation import PrepareOptions, prepare
    from xmc_tf.tables.reading.options import SourceOptions
    from xmc_tf.tables.splits import SplitOptions
    from xmc_tf.tables.store import TableStore
    from xmc_tf.tree.label_tree import LabelTree

# Public name -> the module that defines it, and its name there if that is another one.
_LAZY = {
    "Client": "xmc_tf.serving.client",
    "CollectiveStrategy": "xmc_tf.collective.strategy",
    "ColumnOptions": "xmc_tf.tables.columns",
    "EmbeddingTable": "xmc_tf.collective.several.embedding_table",
    "ExportSettings": "xmc_tf.serving.export",
    "GrowingEmbedding": "xmc_tf.collective.growing.keras_embedding",
    "HierarchicalKMeansParams": "xmc_tf.params.tree",
    "InputError": "xmc_tf.common.errors",
    "LabelTree": "xmc_tf.tree.label_tree",
    "LeastFrequent": "xmc_tf.collective.growing.eviction",
    "LinearChainParams": "xmc_tf.params.linear",
    "LinearChainPredParams": "xmc_tf.params.linear",
    "LinearLevelParams": "xmc_tf.params.linear",
    "LinearLevelPredParams": "xmc_tf.params.linear",
    "MatcherParams": "xmc_tf.params.matcher",
    "MatcherPredParams": "xmc_tf.params.matcher",
    "Model": "xmc_tf.models.model",
    "OlderThan": "xmc_tf.collective.growing.eviction",
    "PrepareOptions": "xmc_tf.tables.preparation",
    "RankerParams": "xmc_tf.params.linear",
    "RankerPredParams": "xmc_tf.params.linear",
    "ReportInputs": "xmc_tf.report.inputs",
    "SourceOptions": "xmc_tf.tables.reading.options",
    "SplitOptions": "xmc_tf.tables.splits",
    "TableStore": "xmc_tf.tables.store",
    "TextFile": "xmc_tf.data.text",
    "Tfidf": "xmc_tf.features.tfidf",
    "TfidfParams": "xmc_tf.params.tfidf",
    "TrainingRun": "xmc_tf.models.training_run",
    "XRLinear": "xmc_tf.models.xr_linear",
    "XRLinearParams": "xmc_tf.params.xr_linear",
    "XTransformer": "xmc_tf.models.xtransformer",
    "XTransformerParams": "xmc_tf.params.xtransformer",
    "XTransformerPredParams": "xmc_tf.params.xtransformer",
    "evaluate": "xmc_tf.metrics.evaluation",
    "load": "xmc_tf.models.loading",
    "load_matrix": "xmc_tf.data.matrices",
    "prepare": "xmc_tf.tables.preparation",
    "write_report": "xmc_tf.report.writing",
}

__all__ = [
    "Client",
    "CollectiveStrategy",
    "ColumnOptions",
    "EmbeddingTable",
    "ExportSettings",
    "GrowingEmbedding",
    "HierarchicalKMeansParams",
    "InputError",
    "LabelTree",
    "LeastFrequent",
    "LinearChainParams",
    "LinearChainPredParams",
    "LinearLevelParams",
    "LinearLevelPredParams",
    "MatcherParams",
    "MatcherPredParams",
    "Model",
    "OlderThan",
    "PrepareOptions",
    "RankerParams",
    "RankerPredParams",
    "ReportInputs",
    "SourceOptions",
    "SplitOptions",
    "TableStore",
    "TextFile",
    "Tfidf",
    "TfidfParams",
    "TrainingRun",
    "XRLinear",
    "XRLinearParams",
    "XTransformer",
    "XTransformerParams",
    "XTransformerPredParams",
    "evaluate",
    "load",
    "load_matrix",
    "prepare",
    "write_report",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name

    def __getattr__(name: str) -> object:
        """Load a public name when it is first used."""
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        module, _, original = _LAZY[name].partition(":")
        try:
            return getattr(importlib.import_module(module), original or name)
        except ModuleNotFoundError as error:
            from xmc_tf.common.process.extras import missing_package

            raise missing_package(error) or error from error


def __dir__() -> list[str]:
    """Return the public names, and the modules that are loaded."""
    return sorted({*globals(), *_LAZY} - {"ModuleType", "TYPE_CHECKING", "os", "sys"})


class _Package(ModuleType):
    """This module, in which an imported submodule does not replace a public name: there is a module xmc_tf.evaluate."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _LAZY or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def _begin_command_line() -> None:
    """If this is one of our command lines, prepare for its end before its imports, which take seconds.

    A signal that comes while they run shows no traceback, and a rank whose launcher is killed leaves a record.
    """
    module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    if not module.startswith("xmc_tf.") or module == "xmc_tf.launch.agent":
        return
    from xmc_tf.common.process import startup

    startup.prepare()


if sys.argv[:1] == ["-m"] and "-m" in sys.orig_argv:
    _begin_command_line()
