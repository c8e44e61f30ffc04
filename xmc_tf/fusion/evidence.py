"""The part of a model that turns the rankers' scores and, if available, label names into one probability."""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix, spmatrix, vstack

from xmc_tf.common.errors import InputError
from xmc_tf.data import Texts
from xmc_tf.fusion.centers import EmbedLabels, HeldOutCenters
from xmc_tf.fusion.fusion import Fusion
from xmc_tf.fusion.short_texts import HeldOutScores, ShortTexts, cut_rows, cut_texts
from xmc_tf.fusion.similarity import KNOWN, Embed, EmbeddedNames, Similarity
from xmc_tf.fusion.thresholds import CONFIDENCE
from xmc_tf.label_names import LabelNames, Mentions, label_vocabulary
from xmc_tf.params import PredictionOptions
from xmc_tf.params.tfidf import AS_WRITTEN
from xmc_tf.store.checksums import verify
from xmc_tf.store.models import FUSION, NAMES

_LOG = logging.getLogger(__name__)
_UNKNOWN_LANGUAGE = (
    "the encoder does not seem to know the language of the texts and label names, and may make predictions worse: "
    "labels that a text mentions are more similar to it than %.0f%% of all labels on average (chance: 50%%; expected: "
    "%.0f%%); try an encoder for this language, or none"
)

HIDDEN = 10  # in each fold, one in ten labels is treated as if it had no documents
ScoreHeldOut = Callable[[np.ndarray, np.ndarray, np.ndarray, Sequence[str] | None], HeldOutScores]
"""Train rankers on some documents (rows, ascending) without some of their labels (bool [labels]), and score others.

The last argument are further texts to score: held-out documents that were cut to a few words.
"""


class WordSources(NamedTuple):
    """Where the words of names are read: the language, and texts without labels."""

    language: str = AS_WRITTEN
    unlabelled: Texts = ()  # show how rare words are


@dataclass(eq=False)
class ProbabilityModel:
    """Turns the rankers' scores into probabilities; label names can be additional evidence."""

    fusion: Fusion
    names: LabelNames | None = None  # None: names are not evidence
    allowed: np.ndarray | None = None  # labels that may be predicted, ascending; None: all

    @classmethod
    def learn(
        cls,
        names: Sequence[str] | None,  # of each label; alternatives after tabs
        texts: Texts | None,
        Y: spmatrix,
        score: ScoreHeldOut,
        *,
        folds: Sequence[np.ndarray],  # documents to hold out in each training, ascending
        threads: int = -1,
        embed: Embed | None = None,
        held_out_vectors: Callable[[], np.ndarray] | None = None,  # called after scoring; of unit norm
        embeddings: np.ndarray | None = None,  # of all documents, of one length; None: do not use label centers
        words: "WordSources | None" = None,
    ) -> Self:
        """Learn on held-out documents to turn the rankers' scores and the evidence of names into probabilities."""
        Y, words = csr_matrix(Y), words or WordSources()
        label_names, mentions, known = None, None, np.bincount(Y.indices, minlength=Y.shape[1]) > 0
        hidden = [hidden_labels(known if names else known & False, fold) for fold in range(len(folds))]
        if names is not None:
            assert texts is not None
            label_names, mentions = LabelNames.learn(
                names, texts, Y, threads, folds=folds, hidden=hidden, language=words.language,
                unlabelled=words.unlabelled,
            )  # fmt: skip
        every = np.arange(Y.shape[0])
        cuts = [held_out[cut_rows(len(held_out))] for held_out in folds]
        cut = [None if texts is None else cut_texts(texts, rows, fold) for fold, rows in enumerate(cuts)]
        found = [
            score(np.setdiff1d(every, held_out, assume_unique=True), held_out, without, short)
            for held_out, without, short in zip(folds, hidden, cut, strict=True)
        ]
        if not found:
            empty = csr_matrix((0, Y.shape[1]), dtype=np.float32)
            return cls(Fusion.learn(empty, mentions, empty, Y), label_names)
        rows = np.concatenate(folds)
        embedded, centers = None, None
        if held_out_vectors is not None:
            vectors = held_out_vectors()
            of_names = None if names is None or embed is None else _names_once(label_vocabulary(names).preferred, embed)
            if embeddings is not None:
                centers = HeldOutCenters.of(Y, embeddings, rows, vectors, of_names)
            read_as_new = ~known | np.logical_or.reduce(hidden)
            if of_names is not None and mentions is not None:
                embedded = EmbeddedNames.of(~known, read_as_new, of_names, vectors, mentions)
                if embedded.rank_of_mentions < KNOWN:  # not if it is NaN
                    _LOG.warning(_UNKNOWN_LANGUAGE, 100 * embedded.rank_of_mentions, 100 * KNOWN)
        information = [one.information for one in found if one.information is not None]
        fusion = Fusion.learn(
            vstack([one.scores for one in found], format="csr"), mentions, Y[rows], Y, hidden, embedded,
            fold_sizes=[len(fold) for fold in folds], centers=centers,
            information=np.concatenate(information) if len(information) == len(found) else None,
            short=_short_texts(found, cut, [len(fold) for fold in folds], label_names, threads),
        )  # fmt: skip
        return cls(fusion, label_names)

    @classmethod
    def of_names(
        cls, names: Sequence[str], texts: Texts, *, information: np.ndarray, threads: int = -1,
        language: str = AS_WRITTEN, similarity: Similarity | None = None,
    ) -> Self:  # fmt: skip
        """Return what names of labels say if no document is labelled, as names of other vocabularies did.

        ``texts`` are unlabelled, or the names themselves; ``information`` is how much of each of them is known.
        """
        unlabelled = csr_matrix((len(texts), len(names)), dtype=np.float32)
        label_names, _ = LabelNames.learn(names, texts, unlabelled, threads, language=language)
        return cls(Fusion.of_names(len(names), information, similarity), label_names)

    @property
    def nr_labels(self) -> int:
        """The number of labels, including those added after training."""
        return self.fusion.nr_labels

    @property
    def parts(self) -> dict[str, Callable[[Path], object]]:
        """The functions that write the parts of a model folder, by the name of the part."""
        named = {} if self.names is None else {NAMES: self.names.save}
        return {FUSION: self.fusion.save, **named}

    def mentions(self, texts: Texts | None, threads: int) -> Mentions | None:
        """Return the labels that texts mention, or None if names are not evidence."""
        return None if self.names is None or texts is None else self.names.mentions(texts, threads)

    def with_added(self, lines: Sequence[str], embed: Embed | None = None) -> Self:
        """Return a copy with labels added after training; ``lines`` has the names of each new label."""
        needed = embed is not None and self.fusion.similarity is not None
        vectors = embed(label_vocabulary(lines).preferred) if needed and embed is not None else None
        names = None if self.names is None else self.names.with_added(lines)
        return dataclasses.replace(self, names=names, fusion=self.fusion.with_added(len(lines), vectors))

    def save(self, folder: Path) -> None:
        for name, save in self.parts.items():
            save(folder / name)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Load the parts from a model folder; return None if the model does not have them."""
        there = {name for name in (NAMES, FUSION) if (folder / name).is_dir()}
        if not there:
            return None
        if FUSION not in there:
            raise _incomplete(folder, FUSION)
        verify(folder / FUSION)
        fusion = Fusion.load(folder / FUSION)
        if not fusion.names:
            return cls(fusion)
        if NAMES not in there:
            raise _incomplete(folder, NAMES)
        verify(folder / NAMES)
        names = LabelNames.load(folder / NAMES)
        if names.nr_labels != fusion.nr_labels:
            raise InputError(
                f"{folder / NAMES} does not belong to {folder / FUSION}",
                expected=f"names of {fusion.nr_labels:,} labels", received=f"{names.nr_labels:,}",
                fix="copy the model again",
            )  # fmt: skip
        return cls(fusion, names)


def _short_texts(
    found: Sequence[HeldOutScores], cut: Sequence[Sequence[str] | None], sizes: Sequence[int],
    names: LabelNames | None, threads: int,
) -> ShortTexts | None:  # fmt: skip
    """Join the cut documents of all folds; None if they were not scored."""
    some = [(one.short, one.short_information, texts) for one, texts in zip(found, cut, strict=True)]
    scores, information, texts = ([one for one in column if one is not None] for column in zip(*some, strict=True))
    if not len(scores) == len(information) == len(texts) == len(found):
        return None
    begins = np.cumsum([0, *sizes[:-1]])
    vectors = [one.short_vectors for one in found if one.short_vectors is not None]
    return ShortTexts(
        np.concatenate([begin + cut_rows(size) for begin, size in zip(begins, sizes, strict=True)]),
        vstack(scores, format="csr"), np.concatenate(information),
        None if names is None else names.mentions([text for some in texts for text in some], threads),
        np.concatenate(vectors) if vectors else None,
    )  # fmt: skip


def hidden_labels(known: np.ndarray, fold: int) -> np.ndarray:
    """Return which labels a fold's training run treats as if they had no documents: bool [labels]."""
    labels = np.flatnonzero(known)
    out = np.zeros(len(known), bool)
    out[np.random.default_rng([fold, 0x68696465]).permutation(labels)[: len(labels) // HIDDEN]] = True
    return out


def _names_once(names: Sequence[str], embed: Embed) -> EmbedLabels:
    """Return a function that embeds label names and caches the embeddings."""
    vectors: dict[int, np.ndarray] = {}

    def of_labels(labels: np.ndarray) -> np.ndarray:
        missing = [label for label in labels.tolist() if label not in vectors]
        if missing:
            vectors.update(zip(missing, embed([names[label] for label in missing]), strict=True))
        return np.stack([vectors[label] for label in labels.tolist()])

    return of_labels


def _incomplete(folder: Path, missing: str) -> InputError:
    return InputError(
        f"{folder}: {missing}/ is missing",
        expected=f"{FUSION}/, and {NAMES}/ if label names are evidence",
        fix="the folder is incomplete: copy it again",
    )


def bounded_post_processor(name: str) -> str | None:
    """Return the post-processor that replaces ``name`` so that scores are from 0 to 1, or None to keep ``name``."""
    return "sigmoid" if name == "noop" else name.removeprefix("log-") if name.startswith("log-") else None


@dataclass(frozen=True)
class Decision:
    """The decision whether to return probabilities, and the threshold for labels."""

    probable: bool  # whether the scores are probabilities; else they are the rankers'
    threshold: float | None


def decide(options: PredictionOptions, fusion: Fusion | None) -> Decision:
    """Decide from the options what to predict. If a post-processor is set, scores are those of the rankers."""
    if options.scores == "probability" and fusion is None:
        raise InputError(
            "this model has no probabilities",
            expected="a model trained with probabilities",
            fix="train it with --probabilities true, or use the rankers' scores (--scores ranker)",
        )
    if options.scores == "ranker" or options.post_processor is not None:
        fusion = None
    if options.min_precision is None:
        return Decision(fusion is not None, options.threshold)
    if fusion is None:
        raise InputError(
            "--min-precision needs probabilities, but these scores are not probabilities",
            expected="a model trained with probabilities, and neither --scores ranker nor a post-processor",
            fix="train it with --probabilities true, or set a score threshold that you have measured",
        )
    return Decision(True, promised_threshold(fusion, options.min_precision))


def promised_threshold(fusion: Fusion, min_precision: float) -> float:
    """Return the lowest threshold that keeps a required precision; log the evidence for it."""
    threshold, precision, count = fusion.curve.for_precision(min_precision)
    on = f"{precision:.1%} of {count:,} held-out labels were right"
    sure = f"at least {min_precision:.1%} with a confidence of {CONFIDENCE:.0%}"
    _LOG.info("labels with a probability of at least %.3f: %s, %s", threshold, on, sure)
    return threshold
