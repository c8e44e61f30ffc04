"""The keywords of ``predict``, ``best`` and ``train``: options, and the columns of a DataFrame."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypedDict, cast

from xmc_tf.common.errors import InputError
from xmc_tf.models.documents import FrameColumns
from xmc_tf.params import PredictionOptions


class SearchKeywords(TypedDict, total=False):
    """Keywords that predictions and exports share."""

    beam_size: int | None
    only_topk: int | None
    post_processor: str | None
    scores: str | None
    threshold: float | None
    min_precision: float | None


class ExportKeywords(SearchKeywords, total=False):
    """The fields of :class:`PredictionOptions` that an exported model keeps."""

    k: int | None
    """The same as ``only_topk``, which is PECOS's name: number of labels per document."""


class BestKeywords(SearchKeywords, FrameColumns, total=False):
    """The keywords of ``best``, whose ``k`` is an argument."""

    only_labels: Iterable[str | int] | None
    """Names or numbers of the labels that may be predicted (default: all)."""

    ensemble_method: str | None
    max_pred_chunk: int
    batch_tokens: int
    threads: int
    quiet: bool


class PredictionKeywords(BestKeywords, total=False):
    """The fields of :class:`PredictionOptions` as keywords, and a DataFrame's columns."""

    k: int | None
    """The same as ``only_topk``."""


class TrainingKeywords(FrameColumns, total=False):
    """Further keywords of :meth:`XRLinear.train`, and a DataFrame's columns."""

    probabilities: bool | None
    """Predict calibrated probabilities instead of the rankers' scores, learned from documents that are held out for
    that; they also rank labels better (default: if there are enough documents)."""


class ReadKeywords(NamedTuple):
    """The keywords of a prediction or an export."""

    options: PredictionOptions
    columns: FrameColumns
    only_labels: Iterable[str | int] | None


def read_keywords(keywords: Mapping[str, Any]) -> ReadKeywords:
    columns = {name: value for name, value in keywords.items() if name in FrameColumns.__annotations__}
    options = {name: value for name, value in keywords.items() if name not in columns}
    only_labels = options.pop("only_labels", None)
    if (k := options.pop("k", None)) is not None:
        if options.get("only_topk") is not None:
            raise InputError("k and only_topk are the same option", fix="leave one of them out")
        options["only_topk"] = k
    return ReadKeywords(PredictionOptions(**options), cast(FrameColumns, columns), only_labels)
