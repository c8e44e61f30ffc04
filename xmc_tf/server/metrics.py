from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

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
        self.seconds = Histogram(
            "xmc_tf_request_seconds",
            "Time from a request's head to its answer.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.batch = Histogram("xmc_tf_batch_texts", "Texts in a batch.", buckets=_TEXTS, registry=self._registry)
        Gauge("xmc_tf_waiting_texts", "Texts that wait.", registry=self._registry).set_function(waiting)
        Gauge("xmc_tf_model_version", "Served version.", registry=self._registry).set_function(version)

    def _counter(self, name: str, about: str, labels: tuple[str, ...] | list[str] = ()) -> Counter:
        return Counter(f"xmc_tf_{name}", about, labels, registry=self._registry)

    def page(self) -> bytes:
        return bytes(generate_latest(self._registry))
