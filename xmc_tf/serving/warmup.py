"""Warm-up requests, which TensorFlow Serving runs before any other, because a graph's first run is slow."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.protobuf import field
from xmc_tf.store.files import atomic_file

# Messages are encoded by hand, because TensorFlow does not have `PredictionLog` of tensorflow_serving.apis.
# tests/serving/test_command.py reads them with TensorFlow Serving's own parser.

# Where TensorFlow Serving looks for requests, and the maximum number that it reads.
WARMUP = "assets.extra/tf_serving_warmup_requests"
MAX_REQUESTS = 1000
_BATCH = 16
_EXAMPLES, _EXAMPLE_LENGTH = 3, 2000

# Numbers of the fields in prediction_log.proto, predict.proto and model.proto.
_PREDICTION_LOG_PREDICT_LOG, _PREDICT_LOG_REQUEST = 6, 1
_PREDICT_REQUEST_MODEL_SPEC, _PREDICT_REQUEST_INPUTS, _MODEL_SPEC_SIGNATURE_NAME = 1, 2, 3


def check_warmup(texts: Sequence[str] | Sequence[bytes], count: int) -> None:
    """Raise an InputError if ``write_warmup`` cannot write ``count`` requests from these texts."""
    if not 1 <= count <= MAX_REQUESTS - 3:
        raise InputError(
            f"{count:,} warm-up requests cannot be written",
            expected=f"1 to {MAX_REQUESTS - 3}: TensorFlow Serving reads no more (--warmup 0 writes none)",
            received=f"{count:,}",
        )
    if not len(texts):
        raise InputError("there are no texts for warm-up requests", expected="texts (-t), one per line")


def write_warmup(folder: str | Path, texts: Sequence[str] | Sequence[bytes], count: int = 64) -> Path:
    """Write requests into an exported model: one per chosen text, a batch, and one each for ``top_k`` and ``paths``."""
    check_warmup(texts, count)
    import tensorflow as tf

    chosen = _chosen(texts, count)
    requests = [_request("serving_default", [text]) for text in chosen]
    requests += [
        _request("serving_default", chosen[:_BATCH]),
        _request("top_k", chosen[:1], k=np.ones(1, np.int32)),
        _request("paths", chosen[:1]),
    ]
    path = Path(folder) / WARMUP
    path.parent.mkdir(exist_ok=True)
    with atomic_file(path) as part, tf.io.TFRecordWriter(str(part)) as writer:
        for request in requests:
            writer.write(request)
    return path


def example_texts(texts: Sequence[str] | Sequence[bytes], count: int) -> list[str]:
    """Return the beginnings of some texts that ``write_warmup`` chooses, as examples to try the model with."""
    chosen = [text.decode(errors="replace") for text in dict.fromkeys(_chosen(texts, count)) if text.strip()]
    return [text[:_EXAMPLE_LENGTH] for text in chosen[:_EXAMPLES]]


def _chosen(texts: Sequence[str] | Sequence[bytes], count: int) -> list[bytes]:
    """Return at most ``count`` texts in UTF-8, evenly spaced over all texts."""
    some = [texts[int(at)] for at in np.unique(np.linspace(0, len(texts) - 1, min(count, len(texts))))]
    return [text.encode() if isinstance(text, str) else text for text in some]


def _request(signature: str, texts: Sequence[bytes], **more: np.ndarray) -> bytes:
    import tensorflow as tf

    tensors = {"text": tf.make_tensor_proto(list(texts), tf.string, [len(texts)])}
    tensors |= {name: tf.make_tensor_proto(array) for name, array in more.items()}
    request = field(_PREDICT_REQUEST_MODEL_SPEC, field(_MODEL_SPEC_SIGNATURE_NAME, signature))
    for name, tensor in tensors.items():
        # An entry of a map is a message of its key (1) and its value (2).
        request += field(_PREDICT_REQUEST_INPUTS, field(1, name) + field(2, tensor.SerializeToString()))
    return field(_PREDICTION_LOG_PREDICT_LOG, field(_PREDICT_LOG_REQUEST, request))
