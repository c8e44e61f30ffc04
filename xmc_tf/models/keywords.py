"""The keywords of ``predict``, ``best`` and ``train``: options, and the columns of a DataFrame."""

from collections.abc import Mapping
from typing import Any, TypedDict, cast

from xmc_tf.models.documents import FrameColumns
from xmc_tf.params import PredictionOptions


class ExportKeywords(TypedDict, total=False):
    """The fields of :class:`PredictionOptions` that an exported model keeps, for type checkers and editors."""

    beam_size: int | None
    only_topk: int | None
    post_processor: str | None
    scores: str | None
    threshold: float | None
    min_precision: float | None


class PredictionKeywords(ExportKeywords, FrameColumns, total=False):
    """The fields of :class:`PredictionOptions` as keywords, and a DataFrame's columns.

    Example:
        >>> model.predict(["gradient of a sparse matrix"], only_topk=3, beam_size=20)
    """

    ensemble_method: str | None
    max_pred_chunk: int
    batch_tokens: int
    threads: int
    quiet: bool


class TrainingKeywords(FrameColumns, total=False):
    """Further keywords of :meth:`XRLinear.train`, and a DataFrame's columns.

    Example:
        >>> model = XRLinear.train(["a red car", "a green garden"], [["car"], ["garden"]], probabilities=False)
    """

    probabilities: bool | None
    """Predict calibrated probabilities instead of the rankers' scores, learned from documents that are held out for
    that; they also rank labels better (default: if there are enough documents)."""


def options_and_columns(keywords: Mapping[str, Any]) -> tuple[PredictionOptions, FrameColumns]:
    """Return the options of a prediction and the columns of a DataFrame that keywords name.

    Args:
        keywords: the keywords of a call.

    Raises:
        InputError: a value is not allowed, or two options exclude each other.
        TypeError: there is no such keyword.
    """
    columns = {name: value for name, value in keywords.items() if name in FrameColumns.__annotations__}
    options = {name: value for name, value in keywords.items() if name not in columns}
    return PredictionOptions(**options), cast(FrameColumns, columns)
