"""How good a model becomes with each click on the page to label texts, if a person always answers rightly.

    python -m benchmarks.labelling --data DIR [--texts 2000] [--labelled 300] [--seeds 2]

DIR holds X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz and labels.txt. The labels of random training documents are hidden,
and the model begins with the names of labels. Then somebody labels the texts that the page shows, by their true labels:
a click accepts a suggestion, types another label, or asks for the next text. Prints a JSON line for each number of
labelled texts, with the texts in the page's order and in random order: clicks, and P@1/3/5 on 1,000 test documents.
Another line has the figures of a training on all the texts, labelled by hand from the first to the last.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.sides.corpora import read_corpus
from xmc_tf.data import load_names
from xmc_tf.metrics import measure
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.server.labelling import learning
from xmc_tf.server.labelling.desk import Desk
from xmc_tf.server.labelling.learning import EVERY, Learner
from xmc_tf.server.labelling.store import LabelStore
from xmc_tf.server.labelling.training import train

_TESTED, _SHOWN = 1000, 50
learning.train_aside = lambda *inputs: train(*inputs[:-1])  # the same model, without starting a process
_PERSON = {"person": "oracle"}


class _RandomOrder(Learner):
    def _instructive(self, labelled: list[str]) -> list[int]:
        return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=2000, help="texts to choose from")
    parser.add_argument("--labelled", type=int, default=300, help="texts that are labelled")
    parser.add_argument("--seeds", type=int, default=2)
    a = parser.parse_args()
    texts, matrices = read_corpus(a.data)
    lines = load_names(a.data / "labels.txt")
    tested = texts["tst"][:_TESTED], matrices["tst"][:_TESTED]
    for seed in range(a.seeds):
        rows = np.random.default_rng(seed).permutation(len(texts["trn"]))[: a.texts]
        own, truth = [texts["trn"][row] for row in rows], csr_matrix(matrices["trn"][rows])
        about = {"figure": "labelling", "data": a.data.name, "seed": seed}
        for order, kind in (("the page's", Learner), ("random", _RandomOrder)):
            with tempfile.TemporaryDirectory() as folder:
                for found in _labelled(kind, Path(folder), own, truth, lines, a.labelled, tested):
                    print(json.dumps({**about, "order": order, **found}), flush=True)
        found = XRLinear.train(own, truth, names=lines).predict(tested[0], only_topk=5)
        figures = {"order": "all labelled", "texts": a.texts, "P": _precision(found, tested[1])}
        print(json.dumps({**about, **figures}), flush=True)


def _labelled(
    kind: type[Learner], folder: Path, texts: list[str], truth: csr_matrix, lines: list[str], most: int, tested: Any
) -> Any:
    """Yield clicks and precision as the texts are labelled."""
    store = LabelStore.open(folder / "texts.labels.sqlite")
    store.add_texts([str(row) for row in range(len(texts))], texts, [False] * len(texts))
    model = XRLinear.train(texts, names=lines)
    learner = kind(model, store, lines)
    desk = Desk(store, learner, lines)
    names = model.names or []
    clicks, shown = 0, desk.posts["/text"](_PERSON)
    learner.update()
    for count in range(most + 1):
        if count % _SHOWN == 0:
            found = learner.suggester.predict(tested[0], 5)
            yield {"texts": count, "clicks": clicks, "P": _precision(found, tested[1])}
        here = {**_PERSON, "text": shown["text"]}
        for label in {names[number] for number in truth[int(shown["name"])].indices}:
            desk.posts["/answer"]({**here, "label": label, "answer": 1})
            clicks += 1
        shown, clicks = desk.posts["/finish"](here), clicks + 1
        if (count + 1) % EVERY == 0:
            learner.update()
    store.close()


def _precision(found: csr_matrix, truth: csr_matrix) -> list[float]:
    overall, *_ = measure(truth, found, ks=[1, 3, 5])
    return [round(100 * overall.at("P", k), 2) for k in (1, 3, 5)]


if __name__ == "__main__":
    main()
