"""Predictions over HTTP, in batches, with the paths, statuses and errors of TensorFlow Serving.

One thread predicts one batch at a time. Requests that arrive in the meantime wait, and the next batch takes as many of
them as fit. So an idle server answers without delay, a busy server predicts large batches, and no waiting time needs to
be configured.
"""

import asyncio
import contextlib
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple, TypeAlias
from urllib.parse import quote

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from xmc_tf.common.errors import InputError
from xmc_tf.server.access import AllowedHosts
from xmc_tf.server.application import HttpAnswer, Limits, RefusedError, Request, as_json
from xmc_tf.server.questions import SIGNATURES, BestLabels, Question, answer_about_model, answer_of, parse_question
from xmc_tf.server.versions import ServedModel, Version

_LOG = logging.getLogger(__name__)
_METRICS_PATH = "/monitoring/prometheus/metrics"  # the path of TensorFlow Serving
# The second one is what curl sends by default. No form of a web page can send JSON with it.
_JSON_TYPES = ("application/json", "application/x-www-form-urlencoded", "")
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

Predict: TypeAlias = Callable[[Sequence[str], int], list[BestLabels]]


class OverloadedError(Exception):
    """Too many texts are waiting for predictions."""


class _Waiting(NamedTuple):
    texts: Sequence[str]
    k: int
    predict: Predict
    done: "asyncio.Future[list[BestLabels]]"


class Batcher:
    def __init__(self, most: int, most_waiting: int, observe: Callable[[int], object] = lambda size: None) -> None:
        self._most, self._most_waiting, self._observe = most, most_waiting, observe
        self._queue: deque[_Waiting] = deque()
        self._thread = ThreadPoolExecutor(1, "predicting")
        self._arrived = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self.waiting = 0

    async def ask(self, predict: Predict, texts: Sequence[str], k: int) -> list[BestLabels]:
        """Return the k best labels of each text. Requests with the same ``predict`` and ``k`` can share a batch."""
        if not texts:
            return []
        if self.waiting and self.waiting + len(texts) > self._most_waiting:
            raise OverloadedError
        done: asyncio.Future[list[BestLabels]] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(texts, k, predict, done))
        self.waiting += len(texts)
        self._arrived.set()
        try:
            return await done
        finally:
            self.waiting -= len(texts)

    async def __aenter__(self) -> "Batcher":
        self._runner = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop. Wait for the batch in progress, but drop its results."""
        assert self._runner is not None
        self._runner.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._runner
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            batch = self._next_batch()
            if not batch:
                self._arrived.clear()
                continue
            texts = [text for one in batch for text in one.texts]
            self._observe(len(texts))
            try:
                best = await loop.run_in_executor(self._thread, batch[0].predict, texts, batch[0].k)
            except Exception as error:  # noqa: BLE001 - the requests of the batch report it
                for one in batch:
                    if not one.done.done():
                        one.done.set_exception(error)
                continue
            place = 0
            for one in batch:
                if not one.done.done():
                    one.done.set_result(best[place : place + len(one.texts)])
                place += len(one.texts)

    def _next_batch(self) -> list[_Waiting]:
        """Take the oldest request from the queue, and all others with the same model and k that fit into the batch."""
        batch: list[_Waiting] = []
        others: deque[_Waiting] = deque()
        size = 0
        for one in self._queue:
            if one.done.done():  # the client has gone
                continue
            same = not batch or (one.predict == batch[0].predict and one.k == batch[0].k)
            if same and (not batch or size + len(one.texts) <= self._most):
                batch.append(one)
                size += len(one.texts)
            else:
                others.append(one)
        self._queue = others
        return batch


class ServerMetrics:
    """Metrics of the server in the Prometheus format, including the memory, CPU time and open files of the process."""

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


class Predictions:
    """The routes for predictions. They return ``k`` labels per text, or the requested number, up to ``most``."""

    headers: ClassVar[dict[str, str]] = {}

    def __init__(
        self, served: ServedModel, limits: Limits, *, name: str = "xmc", k: int = 10, most: int = 100,
        max_batch: int = 64, max_waiting: int = 4096, poll_s: float = 5.0, allowed: AllowedHosts | None = None,
    ) -> None:  # fmt: skip
        self._served, self._limits, self._name, self._poll_s = served, limits, name, poll_s
        self._usual, self._most, self._max_batch, self._max_waiting = k, most, max_batch, max_waiting
        self._allowed = allowed or AllowedHosts()
        self._batcher: Batcher | None = None
        self.metrics = ServerMetrics(
            lambda: float(self._batcher.waiting) if self._batcher else 0.0, lambda: float(served.current.number)
        )
        model = f"/v1/models/{re.escape(quote(name))}"
        self._model_path = re.compile(rf"{model}(?:/versions/([0-9]{{1,18}}))?(:predict|/metadata)?")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Predict batches, and look for new versions of the model, until the server stops."""
        async with Batcher(self._max_batch, self._max_waiting, self.metrics.batch.observe) as self._batcher:
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
            await asyncio.sleep(self._poll_s)
            try:
                await asyncio.to_thread(self._served.refresh, lambda result: self.metrics.reloads.labels(result).inc())
            except Exception:  # noqa: BLE001 - a fault of one version must not end the search for later ones
                _LOG.exception("the search for a new version failed")

    async def answer(self, request: Request) -> HttpAnswer:
        if request.path == "/healthz":
            request.allow("GET", "HEAD")
            return as_json(200, {"status": "ok", "version": self._served.current.number})
        self._allowed.check(request)  # not of health checks, which may use any name and learn nothing
        if request.path == _METRICS_PATH:
            request.allow("GET", "HEAD")
            return HttpAnswer(200, self.metrics.page(), self.metrics.content_type)
        found = self._model_path.fullmatch(request.path)
        if found is None:
            there = f"/v1/models/{self._name}:predict"
            raise RefusedError(404, f"there is nothing at {request.path[:200]}; predictions are at {there}")
        version = self._served.current
        if found[1] and int(found[1]) != version.number:
            raise RefusedError(404, f"version {found[1]} is not served; version {version.number} is")
        if found[2] == ":predict":
            request.allow("POST")
            if request.content_type not in _JSON_TYPES:
                raise RefusedError(415, "a request must have the content type application/json")
            return await self._predicted(version, await request.body())
        request.allow("GET", "HEAD")
        if found[2]:
            return as_json(200, self._metadata(version))
        status = {"error_code": "OK", "error_message": ""}
        served = {"version": str(version.number), "state": "AVAILABLE", "status": status}
        return as_json(200, {"model_version_status": [served]})

    async def _predicted(self, version: Version, body: bytes) -> HttpAnswer:
        question = parse_question(body, self._limits.max_bytes)
        if len(question.texts) > self._max_waiting:
            raise RefusedError(413, f"too many texts in one request: at most {self._max_waiting:,}")
        if question.signature == "about":
            return as_json(200, answer_about_model(question, self._numbers(version)))
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
        """Return the number of labels to predict, which is the largest number requested for any text."""
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
        most = min(self._most, nr_labels)
        return {"nr_labels": nr_labels, "k": min(self._usual, most), "most": most}

    def _metadata(self, version: Version) -> dict[str, Any]:
        metadata = version.model.metadata
        return {
            "model_spec": {"name": self._name, "signature_name": "", "version": str(version.number)},
            "metadata": {
                "signatures": {name: list(inputs) for name, inputs in SIGNATURES.items()},
                "numbers": self._numbers(version),
                "model": metadata.model,
            },
        }
