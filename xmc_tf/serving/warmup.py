"""Requests that a server runs through before it takes any: the first run of a graph is slow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.atomic import atomic_file
from xmc_tf.common.errors import InputError

# Where TensorFlow Serving looks, and how many it reads at the most.
WARMUP = "assets.extra/tf_serving_warmup_requests"
MOST_REQUESTS = 1000
_BATCH = 16


def write_warmup(folder: str | Path, texts: Sequence[str] | Sequence[bytes], count: int = 64) -> Path:
    """Writes warm-up requests into an exported model.

    Single texts for each way to ask with text, and one batch of several.

    Example:
        >>> write_warmup("served/1", TextFile("X.trn.txt"))

    Args:
        folder: the exported model, which reads text.
        texts: real ones, as of the training; some from all over them are taken.
        count: how many.

    Returns:
        The file.
    """
    if not 1 <= count <= MOST_REQUESTS - 3:
        raise InputError(
            "so many warm-up requests are not read", expected=f"1 to {MOST_REQUESTS - 3}", received=str(count)
        )
    chosen = [_as_bytes(texts[int(at)]) for at in np.unique(np.linspace(0, len(texts) - 1, min(count, len(texts))))]
    if not chosen:
        raise InputError("there are no texts to warm up with", expected="a file of texts, one a line")
    requests = [_request("serving_default", [text]) for text in chosen]
    requests += [
        _request("serving_default", chosen[:_BATCH]),
        _request("top_k", chosen[:1], k=np.ones(1, np.int32)),
        _request("paths", chosen[:1]),
    ]
    path = Path(folder) / WARMUP
    import tensorflow as tf

    with atomic_file(path) as part, tf.io.TFRecordWriter(str(part)) as writer:
        for request in requests:
            writer.write(request)
    return path


def _request(signature: str, texts: Sequence[bytes], **more: np.ndarray) -> bytes:
    import tensorflow as tf

    predict_pb2, prediction_log_pb2 = _protos()
    request = predict_pb2.PredictRequest()
    request.model_spec.signature_name = signature
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(list(texts), tf.string, [len(texts)]))
    for name, array in more.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(array))
    log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
    return bytes(log.SerializeToString())


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _protos() -> tuple[Any, Any]:
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ImportError as error:
        raise InputError(
            f"warm-up requests cannot be written: {error}",
            expected="the package tensorflow-serving-api",
            fix="install it: pip install 'xmc_tf[serving]'",
        ) from None
    return predict_pb2, prediction_log_pb2
