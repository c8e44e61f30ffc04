"""How well labels are found by their names alone, before any document is labelled, and with the first labelled ones.

    python -m benchmarks.cold_start --data DIR DIR ... [--encoder FOLDER] [--labelled 20,50,100,200,500] [--write]

Each DIR holds X.trn.txt, Y.trn.npz, labels.txt, X.tst.txt and Y.tst.npz. All labels are hidden. What names are worth is
learned on the training documents of the other sets, and measured on the test documents of each set: P@1, P@3 and P@5 of
names as documents, of names that occur in the text, the rarest first, and of the product.

``--encoder`` adds columns for models that also compare texts and names by an encoder.
``--labelled`` adds rows for models with some labelled documents, drawn several times: with names and texts without
labels, and documents alone. The stated precision is the mean probability of the best labels of the former.
``--write`` learns the numbers of ``xmc_tf/label_names/cold_start.json`` on all sets, and writes them.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_matrix, vstack

from benchmarks.sides.corpora import read_corpus
from xmc_tf.common.errors import InputError
from xmc_tf.data import load_names
from xmc_tf.fusion.candidates import NOT_MENTIONED, LabelCandidates, join_candidates
from xmc_tf.fusion.held_out import is_right
from xmc_tf.fusion.logistic import fit_logistic
from xmc_tf.fusion.similarity import Similarity
from xmc_tf.fusion.weighted_numbers import NAMES, OF_SHORT_TEXTS, weighted_numbers
from xmc_tf.label_names import cold_start, match_precision
from xmc_tf.label_names.find_mentions import find_matches
from xmc_tf.label_names.kernels import PARTIAL
from xmc_tf.label_names.label_names import LabelNames
from xmc_tf.metrics import evaluate
from xmc_tf.models.linear.names_only import train_on_names
from xmc_tf.models.linear.training import LinearOptions
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.params import MatcherParams, XTransformerParams
from xmc_tf.params.pools import FUSED_LABELS

_UNLABELLED, _LEARNED = 8000, 1500  # documents
_OF_SET = 20_000  # matches for which each set counts
_PRIOR, _PENALTY = 5.0, 5.0
_UNKNOWN = OF_SHORT_TEXTS | np.isin(NAMES, ["score above 0"])  # only with documents do the rankers' scores reach 0


@dataclass(eq=False)
class Learning:
    """The names of a set, and documents from which their worth is learned."""

    texts: list[str]
    Y: csr_matrix
    scores: csr_matrix
    names: LabelNames
    counts: match_precision.MatchCounts
    similarity: Similarity | None
    vectors: np.ndarray | None  # embeddings of the texts, of unit norm

    @classmethod
    def of(cls, texts: Sequence[str], Y: csr_matrix, lines: Sequence[str], encoder: str = "") -> "Learning":
        model = names_alone(lines, texts[:_UNLABELLED], encoder)
        some, Y = texts[-_LEARNED:], Y[-_LEARNED:]
        assert model.evidence is not None
        names = model.evidence.names
        assert names is not None
        found = find_matches(names.index, some, names.reading)
        right = match_precision.is_right(names.index, found, Y)
        elsewhere = np.full(len(lines), 2)  # each label is taken for one that has other documents, too
        counts = match_precision.count_matches(names.index, found, right, elsewhere)
        scores = model.predict(some, only_topk=FUSED_LABELS, scores="ranker")  # those that predictions begin with
        vectors = model.encode(some) if isinstance(model, XTransformer) else None
        return cls(list(some), Y, scores, names, counts, model.evidence.fusion.similarity, vectors)

    def numbers(self, priors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of all candidates, and which of them are right."""
        found = candidates(self.names, self.scores, self.texts, priors, self.similarity, self.vectors)
        numbers = np.where(_UNKNOWN, 0.0, weighted_numbers(found, np.zeros(len(found.rows))))
        return numbers, is_right(found, self.Y)


def names_alone(lines: Sequence[str], texts: Sequence[str], encoder: str = "") -> XRLinear | XTransformer:
    """Return a model of names alone, with or without an encoder."""
    if not encoder:
        return XRLinear.of(train_on_names(lines, texts, LinearOptions()))
    return XTransformer.train(texts, names=lines, params=frozen(encoder))


def frozen(encoder: str) -> XTransformerParams:
    return XTransformerParams(do_fine_tune=False, matcher_params_chain=MatcherParams(model_shortcut=encoder))


def candidates(
    names: LabelNames, scores: csr_matrix, texts: Sequence[str], priors: np.ndarray,
    similarity: Similarity | None = None, vectors: np.ndarray | None = None,
) -> LabelCandidates:  # fmt: skip
    precision = match_precision.shown(priors[match_precision.kinds_of_names(names.index)])
    learned = LabelNames(names.index, precision, names.reading, names.nr_labels, priors)
    if similarity is None or vectors is None:
        return join_candidates(scores, learned.mentions(texts))
    alike = similarity.candidates(vectors, scores.shape[1])
    found = join_candidates(scores, learned.mentions(texts), similar=alike)
    return found._replace(similarity=similarity.of_pairs(vectors, found.rows, found.labels))


def learn(sets: Sequence[Learning], encoded: Sequence[Learning] = ()) -> cold_start.ColdStart:
    """Learn what names are worth, also with an encoder; each set counts for as much as any other."""
    shares = [_OF_SET / max(one.counts.of_kind.sum(), 1) for one in sets]
    matches = np.sum([share * one.counts.of_kind for share, one in zip(shares, sets, strict=True)], axis=0)
    right = np.sum([share * one.counts.right_of_kind for share, one in zip(shares, sets, strict=True)], axis=0)
    priors = (right + _PRIOR * right.sum() / matches.sum()) / (matches + _PRIOR)
    of_encoder = weights(encoded, priors) if encoded else cold_start.cold_start().encoded
    return cold_start.ColdStart(priors, weights(sets, priors), of_encoder)


def weights(sets: Sequence[Learning], priors: np.ndarray) -> dict[str, float]:
    numbers, truth = zip(*(one.numbers(priors) for one in sets), strict=True)
    fitted = fit_logistic(np.concatenate(numbers), np.concatenate(truth), np.zeros(len(NAMES)), _PENALTY)
    return {name: weight for name, weight in zip(NAMES, fitted.tolist(), strict=True) if weight}


@contextmanager
def instead(learned: cold_start.ColdStart) -> Iterator[None]:
    """Let models begin with what was learned, instead of with the numbers of the package."""
    with NamedTemporaryFile("w", encoding="utf-8") as file, patch.object(cold_start, "FILE", Path(file.name)):
        file.write(learned.text())
        file.flush()
        cold_start.cold_start.cache_clear()
        yield
    cold_start.cold_start.cache_clear()


def _training(data: Path) -> tuple[list[str], csr_matrix, list[str]]:
    """Return the training texts in a random order, their labels, and the names of all labels."""
    texts, labels = read_corpus(data)
    order = np.random.default_rng(0).permutation(len(texts["trn"]))
    return [texts["trn"][row] for row in order], labels["trn"][order], load_names(data / "labels.txt")


def precisions(Y: csr_matrix, predicted: csr_matrix) -> str:
    overall = evaluate(Y, predicted)
    return "/".join(f"{100 * overall.at('P', k):.1f}" for k in (1, 3, 5))


def rarest_names(model: XRLinear | XTransformer, texts: Sequence[str]) -> csr_matrix:
    """Return the labels whose whole names occur in texts, the rarest first: what a lexical matcher answers."""
    assert model.evidence is not None
    assert model.evidence.names is not None
    nothing = csr_matrix((len(texts), model.nr_labels), dtype=np.float32)
    priors = np.ones((match_precision.NR_KINDS, 3))
    found = candidates(model.evidence.names, nothing, texts, priors)
    whole = (found.mention != NOT_MENTIONED) & (found.mentions.grade[found.mention] != PARTIAL)
    rarity = found.mentions.rarity[found.mention][whole].astype(np.float32)
    return csr_matrix((rarity + 1.0, (found.rows[whole], found.labels[whole])), shape=nothing.shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--encoder", default="", help="folder of an encoder")
    parser.add_argument("--labelled", default="", help="numbers of labelled documents, with commas between")
    parser.add_argument("--draws", type=int, default=3, help="of labelled documents, which do not overlap")
    parser.add_argument("--measured", type=int, default=2000, help="test documents (default: 2000)")
    parser.add_argument("--write", action="store_true")
    a = parser.parse_args()
    sets = {path: Learning.of(*_training(path)) for path in a.data}
    encoded = {}
    for path in a.data if a.encoder else ():
        try:
            encoded[path] = Learning.of(*_training(path), a.encoder)
        except InputError as error:  # the encoder does not know the language
            print(f"{path.name}: {error}", file=sys.stderr)
    for path in a.data:
        others, encoded_others = (
            [one for other, one in some.items() if other != path] or [*some.values()] for some in (sets, encoded)
        )
        every, labels, lines = _training(path)
        some_texts, some_labels = read_corpus(path)
        texts, Y = some_texts["tst"][: a.measured], some_labels["tst"][: a.measured]
        with instead(learn(others, encoded_others)):
            model = names_alone(lines, every[:_UNLABELLED])
            row = {
                "set": path.name,
                "names as documents": precisions(Y, model.predict(texts, only_topk=5, scores="ranker")),
                "names in the text, the rarest first": precisions(Y, rarest_names(model, texts)),
                "both, as learned elsewhere": precisions(Y, model.predict(texts, only_topk=5)),
            }
            if path in encoded:
                model = names_alone(lines, every[:_UNLABELLED], a.encoder)
                row["both, with the encoder"] = precisions(Y, model.predict(texts, only_topk=5))
            for count in map(int, filter(None, a.labelled.split(","))):
                named, alone, with_encoder = [], [], []
                for draw in range(a.draws):
                    rows = slice(draw * count, (draw + 1) * count)  # of documents in a random order
                    unlabelled = every[: rows.start] + every[rows.stop : _UNLABELLED]
                    model = XRLinear.train(every[rows], labels[rows], names=lines, unlabelled=unlabelled)
                    named.append(model.predict(texts, only_topk=5))
                    alone.append(XRLinear.train(every[rows], labels[rows]).predict(texts, only_topk=5))
                    if path in encoded:
                        transformer = XTransformer.train(
                            every[rows], labels[rows], names=lines, params=frozen(a.encoder), unlabelled=unlabelled
                        )  # fmt: skip
                        with_encoder.append(transformer.predict(texts, only_topk=5))
                truth = vstack([Y] * a.draws, format="csr")
                row[f"{count} documents, names and texts"] = precisions(truth, vstack(named, format="csr"))
                best = np.concatenate([one.max(axis=1).toarray().ravel() for one in named])
                row[f"{count} documents, stated P@1"] = f"{100 * best.mean():.1f}"
                if with_encoder:
                    row[f"{count} documents, names and encoder"] = precisions(truth, vstack(with_encoder, format="csr"))
                row[f"{count} documents alone"] = precisions(truth, vstack(alone, format="csr"))
        print(json.dumps(row), flush=True)
    if a.write:
        cold_start.FILE.write_text(learn([*sets.values()], [*encoded.values()]).text(), encoding="utf-8")
        print(f"wrote {cold_start.FILE}")


if __name__ == "__main__":
    main()
