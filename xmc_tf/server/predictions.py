"""Predictions over HTTP: the paths, statuses and errors of TensorFlow Serving."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from xmc_tf.common.errors import InputError
from xmc_tf.server.application import HttpAnswer, Limits, RefusedError, Request, as_json
from xmc_tf.server.batching import Batcher, OverloadedError
from xmc_tf.server.questions import SIGNATURES, BestLabels, Question, answer_of, numbers_of, parse_question
from xmc_tf.server.versions import ServedModel, Version

_LOG = logging.getLogger(__name__)
_METRICS_PATH = "/monitoring/prometheus/metrics"  # the path of TensorFlow Serving
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class ServerMetrics:
    """Metrics of a server in the format of Prometheus, with the process's memory, CPU time and open files."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, waiting: Callable[[], float], version: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.requests = self._counter("requests", "Answered requests, by status.", ["status"])
        self.texts = self._counter("texts", "Texts with a prediction.")
        self.reloads = self._counter("reloads", "New versions of the model: loaded or failed.", ["result"])
        about = "Time from a request's head to its answer."
        self.seconds = Histogram("xmc_tf_request_seconds", about, buckets=_SECONDS, registry=self._registry)
        self.batch = Histogram("xmc_tf_batch_texts", "Texts in a batch.", buckets=_TEXTS, registry=self._registry)
        Gauge("xmc_tf_waiting_texts", "Texts that wait.", registry=self._registry).set_function(waiting)
        Gauge("xmc_tf_model_version", "Served version.", registry=self._registry).set_function(version)

    def _counter(self, name: str, about: str, labels: tuple[str, ...] | list[str] = ()) -> Counter:
        return Counter(f"xmc_tf_{name}", about, labels, registry=self._registry)

    def page(self) -> bytes:
        return bytes(generate_latest(self._registry))


class ServerOptions(NamedTuple):
    name: str = "xmc"  # of the model in the paths
    k: int = 10  # labels per text, unless the request says otherwise
    most: int = 100  # labels that a request may ask for
    max_batch: int = 64  # texts in a batch
    max_waiting: int = 4096  # texts without an answer, and texts in a request
    poll_s: float = 5.0  # between two searches for a new version


class Predictions:
    """The routes that answer with the labels of texts."""

    headers: ClassVar[dict[str, str]] = {}

    def __init__(self, served: ServedModel, options: ServerOptions, limits: Limits) -> None:
        self._served, self._options, self._limits = served, options, limits
        self._batcher: Batcher | None = None
        self.metrics = ServerMetrics(
            lambda: float(self._batcher.waiting) if self._batcher else 0.0, lambda: float(served.current.number)
        )
        model = f"/v1/models/{re.escape(quote(options.name))}"
        self._model_path = re.compile(rf"{model}(?:/versions/([0-9]{{1,18}}))?(:predict|/metadata)?")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Predict batches and look for new versions until the server ends."""
        options = self._options
        async with Batcher(options.max_batch, options.max_waiting, self.metrics.batch.observe) as self._batcher:
            refreshing = asyncio.create_task(self._refresh())
            yield
            refreshing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await refreshing

    def answered(self, status: int, seconds: float) -> None:
        self.metrics.requests.labels(str(status)).inc()
        self.metrics.seconds.observe(seconds)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(self._options.poll_s)
            try:
                await asyncio.to_thread(self._served.refresh, lambda result: self.metrics.reloads.labels(result).inc())
            except Exception:  # noqa: BLE001 - a fault of one version must not end the search for later ones
                _LOG.exception("the search for a new version failed")

    async def answer(self, request: Request) -> HttpAnswer:
        if request.path == "/healthz":
            request.allow("GET", "HEAD")
            return as_json(200, {"status": "ok", "version": self._served.current.number})
        if request.path == _METRICS_PATH:
            request.allow("GET", "HEAD")
            return HttpAnswer(200, self.metrics.page(), self.metrics.content_type)
        found = self._model_path.fullmatch(request.path)
        if found is None:
            there = f"/v1/models/{self._options.name}:predict"
            raise RefusedError(404, f"there is nothing at {request.path[:200]}; predictions are at {there}")
        version = self._served.current
        if found[1] and int(found[1]) != version.number:
            raise RefusedError(404, f"version {found[1]} is not served; version {version.number} is")
        if found[2] == ":predict":
            request.allow("POST")
            return await self._predicted(version, await request.body())
        request.allow("GET", "HEAD")
        if found[2]:
            return as_json(200, self._metadata(version))
        status = {"error_code": "OK", "error_message": ""}
        served = {"version": str(version.number), "state": "AVAILABLE", "status": status}
        return as_json(200, {"model_version_status": [served]})

    async def _predicted(self, version: Version, body: bytes) -> HttpAnswer:
        question = parse_question(body, self._limits.max_bytes)
        if len(question.texts) > self._options.max_waiting:
            raise RefusedError(413, f"too many texts in one request: at most {self._options.max_waiting:,}")
        if question.signature == "about":
            return as_json(200, numbers_of(question, self._numbers(version)))
        k = self._k(question, version)
        restricted = await asyncio.to_thread(version.only, question.only_labels) if question.only_labels else version
        assert self._batcher is not None
        try:
            asked = self._batcher.ask(restricted.predict, question.texts, k)
            best = await asyncio.wait_for(asked, self._limits.seconds)
        except OverloadedError:
            raise RefusedError(503, "too many texts are waiting; retry later", ("retry-after", "1")) from None
        except TimeoutError:
            raise RefusedError(504, f"no prediction within {self._limits.seconds:g} s") from None
        self.metrics.texts.inc(len(best))
        if question.ks:
            best = [BestLabels(one.labels[:k], one.scores[:k]) for one, k in zip(best, question.ks, strict=True)]
        return as_json(200, answer_of(question, best, version.model.names, k))

    def _k(self, question: Question, version: Version) -> int:
        """Return the number of labels to predict: the largest that a text asks for."""
        numbers = self._numbers(version)
        if not question.ks:
            return numbers["k"]
        if min(question.ks) < 1:
            raise InputError("k must be at least 1", received=str(min(question.ks)))
        if max(question.ks) > numbers["most"]:
            raise InputError(f"k may be at most {numbers['most']} on this server", received=str(max(question.ks)))
        return max(question.ks)

    def _numbers(self, version: Version) -> dict[str, int]:
        nr_labels = version.model.metadata.nr_labels
        most = min(self._options.most, nr_labels)
        return {"nr_labels": nr_labels, "k": min(self._options.k, most), "most": most}

    def _metadata(self, version: Version) -> dict[str, Any]:
        metadata = version.model.metadata
        return {
            "model_spec": {"name": self._options.name, "signature_name": "", "version": str(version.number)},
            "metadata": {
                "signatures": {name: list(inputs) for name, inputs in SIGNATURES.items()},
                "numbers": self._numbers(version),
                "model": metadata.model,
            },
        }
