"""A client of TensorFlow Serving for exported models, over REST or gRPC."""

import base64
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.common.process.extras import pip_install
from xmc_tf.common.progress import Progress
from xmc_tf.serving.local import as_matrix

# Far larger than any answer, and still allowed by gRPC.
_MAX_MESSAGE = 1 << 30
_MAX_ERROR = 1 << 20


class ServerError(OSError):
    """Raised if the server does not answer, has no such model, or reports an internal error."""


class Answer(NamedTuple):
    """The best labels of each text, best first. Missing labels are -1 with an empty name."""

    labels: np.ndarray  # int64 [texts, k]
    scores: np.ndarray  # float32 [texts, k]
    names: list[list[str]]


class Client:
    """A client for one model on a TensorFlow Serving server.

    Example:
        >>> client = Client("http://localhost:8501")            # REST; "grpc://localhost:8500" for gRPC
        >>> client.best(["gradient of a sparse matrix"], k=3).names
        [['scipy.sparse', …]]

    Args:
        url: http:// or https:// (REST) or grpc://, with host and port. A path (``/name``) is the name of the model.
        model: name of the model on the server, if the URL does not contain it.
        timeout: maximum time to wait for an answer, in seconds.
    """

    def __init__(self, url: str, model: str = "xmc", timeout: float = 60) -> None:
        if not url.isprintable() or any(character.isspace() for character in url):
            raise InputError(f"{url!r} is not the address of a server", expected="no spaces or control characters")
        try:
            parts = urlsplit(url if "://" in url else f"grpc://{url}")
            whole = parts.scheme in ("http", "https", "grpc") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # an unfinished IPv6 address, or a port out of range
            whole = False
        if not whole:
            raise InputError(
                f"{url!r} is not the address of a server",
                expected="http://host:8501 for REST or grpc://host:8500",
                received=url,
            )
        name = parts.path.strip("/").rpartition("/")[2] or model
        self._wire: _Grpc | _RestInterface
        if parts.scheme == "grpc":
            self._wire = _Grpc(parts.netloc, name, timeout)
        else:
            self._wire = _RestInterface(f"{parts.scheme}://{parts.netloc}/v1/models/{name}", timeout)

    def best(self, texts: Sequence[str] | Sequence[bytes], k: int | None = None) -> Answer:
        """Return the best labels of each text.

        Args:
            texts: the texts, as strings or as bytes in UTF-8.
            k: number of labels per text; None: the number that the model was exported with.

        Raises:
            InputError: the server rejects the request. The error contains the server's message.
            ServerError: the server cannot be reached, has no such model, or reports an internal error.
        """
        encoded = [text.encode() if isinstance(text, str) else text for text in texts]
        if k is None:
            out = self._wire.ask("serving_default", {"text": encoded})
        else:
            out = self._wire.ask("top_k", {"text": encoded, "k": np.full(len(encoded), k, np.int32)})
        names = [[_as_text(name) for name in row] for row in out["names"]]
        if not encoded:
            return Answer(np.zeros((0, k or 0), np.int64), np.zeros((0, k or 0), np.float32), names)
        labels, scores = np.asarray(out["labels"], np.int64), np.asarray(out["scores"], np.float32)
        return Answer(labels.reshape(len(encoded), -1), scores.reshape(len(encoded), -1), names)

    def about(self) -> dict[str, int]:
        """Return the model's number of labels (``nr_labels``), default k (``k``), and maximum k (``most``)."""
        return {name: int(np.asarray(value)[0]) for name, value in self._wire.ask("about", {"text": [b""]}).items()}

    def predict(
        self,
        texts: Sequence[str] | Sequence[bytes],
        k: int | None = None,
        batch: int = 64,
        names: dict[int, str] | None = None,
    ) -> csr_matrix:
        """Return the best labels of many texts, which are sent in batches.

        Args:
            texts: the texts, as strings or as bytes in UTF-8.
            k: number of labels per text; None: the number that the model was exported with.
            batch: number of texts per request.
            names: dictionary to which the names of the returned labels are added, with label numbers as keys.

        Returns:
            A texts × labels matrix of scores, descending within each row, like that of a model's own ``predict``.
        """
        about = self.about()
        labels, scores = list[np.ndarray](), list[np.ndarray]()
        with Progress("asking the server", len(texts), "documents") as progress:
            for at in range(0, len(texts), batch):
                answer = self.best(texts[at : at + batch], k)
                labels.append(answer.labels)
                scores.append(answer.scores)
                progress.add(len(answer.labels))
                if names is not None:
                    for row, row_names in zip(answer.labels.tolist(), answer.names, strict=True):
                        named = zip(row, row_names, strict=True)
                        names.update((label, name) for label, name in named if label >= 0)
        if not labels:
            return csr_matrix((0, about["nr_labels"]), dtype=np.float32)
        return as_matrix(np.concatenate(labels), np.concatenate(scores), about["nr_labels"])


class _RestInterface:
    """The REST interface. Texts are sent as base64, which preserves all bytes."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url, self._timeout = url, timeout

    def ask(self, signature: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        values = {
            name: one.tolist() if isinstance(one, np.ndarray) else [{"b64": base64.b64encode(x).decode()} for x in one]
            for name, one in inputs.items()
        }
        body = json.dumps({"signature_name": signature, "inputs": values}).encode()
        request = urllib.request.Request(f"{self._url}:predict", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as reply:
                content = reply.read(_MAX_MESSAGE + 1)
        except urllib.error.HTTPError as error:
            message = _rest_message(error.read(_MAX_ERROR))
            if error.code == 400:
                raise InputError(f"{self._url} rejects the request: {_plain_message(message)}") from None
            raise ServerError(f"{self._url}: {error.code} {message}") from None
        except (urllib.error.URLError, TimeoutError) as error:
            raise ServerError(f"{self._url} does not answer: {getattr(error, 'reason', error)}") from None
        try:
            answer = parse_json(content, of=self._url, limit=_MAX_MESSAGE, top=None, foreign=True)
        except InputError as error:
            raise ServerError(f"{self._url} does not answer in JSON: {error}") from None
        if not isinstance(answer, dict) or not isinstance(answer.get("outputs"), dict):
            raise ServerError(f"{self._url}: the response has no outputs; the server is not TensorFlow Serving")
        return answer["outputs"]


class _Grpc:
    def __init__(self, target: str, name: str, timeout: float) -> None:
        try:
            import grpc  # type: ignore[import-untyped]
            from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
        except ImportError as error:
            raise InputError(
                f"gRPC is not available: {error}",
                expected="the packages grpcio and tensorflow-serving-api",
                fix=f"install them: {pip_install('serving')}, or use REST: http://host:8501",
            ) from None
        self._grpc, self._predict_pb2 = grpc, predict_pb2
        self._target, self._name, self._timeout = target, name, timeout
        sizes = [(f"grpc.max_{way}_message_length", _MAX_MESSAGE) for way in ("send", "receive")]
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(target, sizes))

    def ask(self, signature: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        import tensorflow as tf

        request = self._predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = self._name, signature
        for name, values in inputs.items():
            kind = None if isinstance(values, np.ndarray) else tf.string
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values, kind, [len(values)]))
        try:
            reply = self._stub.Predict(request, timeout=self._timeout)
        except self._grpc.RpcError as error:
            where = f"{self._target}, model {self._name!r}"
            if error.code() == self._grpc.StatusCode.INVALID_ARGUMENT:
                raise InputError(f"{where} rejects the request: {_plain_message(error.details())}") from None
            raise ServerError(f"{where}: {error.code().name}: {error.details()}") from None
        return {name: tf.make_ndarray(tensor) for name, tensor in reply.outputs.items()}


def _as_text(name: Any) -> str:
    if isinstance(name, Mapping):  # invalid UTF-8 is returned as base64
        name = base64.b64decode(name["b64"])
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _plain_message(message: str) -> str:
    """Return the exported model's own message, without the text that TensorFlow adds to it."""
    found = re.search(r"assertion failed: \[(.*?)\]\s*(\n|$)", message, re.DOTALL)
    return found.group(1) if found else message


def _rest_message(body: bytes) -> str:
    try:
        return str(parse_json(body, of="the answer", foreign=True)["error"])
    except (InputError, KeyError):
        return body[:200].decode(errors="replace")
