"""Predict the texts of concurrent requests in batches.

One thread predicts. While it is busy, requests wait, and the next batch contains all of them. So a request to an idle
server does not wait, a busy server predicts large batches, and there is no waiting time to configure.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

from xmc_tf.server.questions import BestLabels

Predict: TypeAlias = Callable[[Sequence[str], int], list[BestLabels]]


class OverloadedError(Exception):
    """Too many texts wait for a prediction."""


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
        """Return the k best labels of some texts. Requests with the same ``predict`` and ``k`` share batches."""
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
        """Stop after the batch in progress."""
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
        """Take the oldest request and all others with the same model and k that fit into a batch."""
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
