"""Concurrent requests share batches, and each gets its own answer."""

import asyncio
import threading

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from xmc_tf.server.__main__ import parser
from xmc_tf.server.predictions import Batcher, OverloadedError
from xmc_tf.server.questions import BestLabels
from xmc_tf.server.versions import Version


class _Model:
    """A model whose only label of a text is the text's length; it waits until it is released."""

    def __init__(self, release=True):
        self.batches, self.asked, self._go = [], threading.Event(), threading.Event()
        if release:
            self._go.set()

    def release(self):
        self._go.set()

    def predict(self, texts, k):
        self.asked.set()
        self._go.wait(60)
        self.batches.append((list(texts), k))
        if "bad" in texts:
            raise ValueError("bad text")
        return [BestLabels(np.array([len(text)]), np.array([float(k)])) for text in texts]


def test_negative_scores_are_kept_without_a_threshold():
    """As ``predict`` does: models without probabilities have scores of any sign."""

    class Model:
        def predict(self, texts, **options):
            return csr_matrix(np.array([[0.5, -0.25, -2.0]] * len(texts)))

    kept = [len(Version(1, Model(), None, threshold, 1).predict(["a"], 3)[0].labels) for threshold in (0.0, -1.0)]
    assert kept == [1, 2]
    default = parser().parse_args(["-m", "model"]).threshold
    assert Version(1, Model(), None, default, 1).predict(["a"], 3)[0].scores.tolist() == [0.5, -0.25, -2.0]


async def _until(condition):
    """Let the other tasks run until something is so."""
    while not condition():
        await asyncio.sleep(0.001)


def _run(body, most=4, most_waiting=100):
    async def main():
        async with Batcher(most, most_waiting) as batcher:
            return await asyncio.wait_for(body(batcher), 60)

    return asyncio.run(main())


def test_requests_that_wait_share_a_batch():
    model = _Model(release=False)

    async def body(batcher):
        first = asyncio.create_task(batcher.ask(model.predict, ["a"], 1))
        await _until(model.asked.is_set)
        texts = [["bb"], ["ccc", "dddd"], ["ee"], ["fff"], []]
        others = [asyncio.create_task(batcher.ask(model.predict, one, 1)) for one in texts]
        await _until(lambda: batcher.waiting == 6)
        model.release()
        return [[int(best.labels[0]) for best in await task] for task in (first, *others)]

    assert _run(body) == [[1], [2], [3, 4], [2], [3], []]
    assert [texts for texts, _ in model.batches] == [["a"], ["bb", "ccc", "dddd", "ee"], ["fff"]]


def test_a_batch_has_one_model_and_one_k():
    old, new = _Model(), _Model()

    async def body(batcher):
        asked = [(old, 1), (new, 1), (old, 2), (old, 1)]
        return await asyncio.gather(*(batcher.ask(model.predict, ["a"], k) for model, k in asked))

    assert [float(best[0].scores[0]) for best in _run(body)] == [1, 1, 2, 1]
    assert old.batches == [(["a", "a"], 1), (["a"], 2)]
    assert new.batches == [(["a"], 1)]


def test_a_request_larger_than_a_batch_is_one_batch():
    model = _Model()
    assert len(_run(lambda batcher: batcher.ask(model.predict, ["a"] * 9, 1))) == 9
    assert [len(texts) for texts, _ in model.batches] == [9]


def test_an_error_reaches_all_requests_of_its_batch_only():
    model = _Model()

    async def body(batcher):
        with pytest.raises(ValueError, match="bad text"):
            await batcher.ask(model.predict, ["bad"], 1)
        return await batcher.ask(model.predict, ["good"], 1)

    assert int(_run(body)[0].labels[0]) == 4


def test_too_many_waiting_texts_are_refused_and_cancelled_ones_are_forgotten():
    model = _Model(release=False)

    async def body(batcher):
        waiting = [asyncio.create_task(batcher.ask(model.predict, ["a", "b"], 1)) for _ in range(3)]
        await _until(lambda: model.asked.is_set() and batcher.waiting == 6)
        with pytest.raises(OverloadedError):
            await batcher.ask(model.predict, ["c"], 1)
        waiting[2].cancel()
        await _until(lambda: batcher.waiting == 4)
        last = asyncio.create_task(batcher.ask(model.predict, ["c"], 1))
        await _until(lambda: batcher.waiting == 5)
        model.release()
        await asyncio.gather(*waiting[:2], last)
        return batcher.waiting

    assert _run(body, most=1, most_waiting=6) == 0
    assert [texts for texts, _ in model.batches] == [["a", "b"], ["a", "b"], ["c"]]
