"""The parts of a model, each loaded when it is first used."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.models.folder import check_parts, further_trees, load_tfidf, nr_dense
from xmc_tf.models.incremental.training_data import TrainedDocuments
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.params.choices import ONNX, TENSORFLOW
from xmc_tf.rankers.ensemble import Rankers, rankers_of, trees_of
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.store.checksums import verify
from xmc_tf.store.models import (
    DOCUMENTS,
    ENCODER,
    ENSEMBLE,
    FEATURES,
    FOLDERS,
    FUSION,
    HEAD,
    HIERARCHY,
    LINEAR,
    NAMES,
    RANKER,
    TREE,
)
from xmc_tf.tree import LabelTree, load_chain

if TYPE_CHECKING:
    from xmc_tf.encoder import Encoder, TextTokenizer
    from xmc_tf.encoder.embeddings import TextEncoder
    from xmc_tf.features import Tfidf
    from xmc_tf.matcher.label_search import LabelSearch


class LazyModelFolder:
    """The parts of a model, each loaded when it is first used. Encoding texts, for example, loads no rankers."""

    asked_runtime = "auto"

    def __init__(
        self, parts: Mapping[str, Path], metadata: ModelMetadata, names: Sequence[str] | None = None, *, where: Path,
        temp_dir: Any = None,
    ) -> None:  # fmt: skip
        self.parts, self.metadata = dict(parts), metadata
        self.names = list(names) if names else None
        self.folder, self._temp_dir = where, temp_dir
        self.told_of_truncation = False
        self.output_labels: np.ndarray | None = None  # labels that may be predicted; None: all

    @classmethod
    def at(cls, folder: Path, metadata: ModelMetadata) -> Self:
        """Return the parts in a model folder, without loading any.

        Args:
            folder: the model folder.
            metadata: the content of its ``params.json``.
        """
        return cls({name: folder / name for name in FOLDERS if (folder / name).is_dir()}, metadata, where=folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.nr_labels:,} labels, {', '.join(self.parts)}; {self.folder})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the paths of the parts instead of the parts, because an encoder alone can take gigabytes."""
        if self._temp_dir is not None:
            raise TypeError(
                f"{self!r} is in a temporary folder and cannot be pickled; fix: save it, and pickle the loaded model"
            )
        loaded = {name for name in vars(self) if isinstance(getattr(type(self), name, None), cached_property)}
        state = {name: value for name, value in vars(self).items() if name not in loaded}
        return state | {
            "parts": {name: path.absolute() for name, path in self.parts.items()}, "folder": self.folder.absolute()
        }  # fmt: skip

    def with_shared_parts(self) -> Self:
        """Return a copy that shares the parts of this object; encoder, vectorizer and label heads are loaded first."""
        loaded = {"encoder": ENCODER, "tokenizer": ENCODER, "tfidf": FEATURES}
        if self.metadata.content.get("ensemble_method") != "concat-only":
            loaded["matcher"] = HEAD
        for name, part in loaded.items():
            if part in self.parts:
                getattr(self, name)
        out = object.__new__(type(self))
        vars(out).update(vars(self))
        return out

    @property
    def nr_labels(self) -> int:
        """Number of labels, including those that were added after training."""
        return self.metadata.nr_labels

    @property
    def only_topk(self) -> int:
        """Default number of labels to predict per document."""
        return self.metadata.only_topk

    @property
    def post_processor(self) -> str:
        """Name of the function that turns the rankers' raw scores into final scores."""
        return trees_of(self.ranker)[0].levels[-1].pred_params.post_processor

    @property
    def makes_features(self) -> bool:
        """Whether texts are enough as input: the model has a vectorizer, or its rankers read only the embedding."""
        return FEATURES in self.parts or self.nr_given_features == 0

    @property
    def nr_given_features(self) -> int:
        """Number of features besides the embedding; the caller must pass them unless the model has a vectorizer."""
        return self.metadata.nr_features - self.metadata.embedding_dim

    @cached_property
    def ranker(self) -> Rankers:
        """The rankers; with several trees, an ensemble."""
        if RANKER not in self.parts and self.metadata.model != LINEAR:
            raise InputError(
                f"{self.folder} has no rankers: it was trained with only_encoder",
                fix="train it without --only-encoder, or predict with the label head: ensemble method transformer-only",
            )
        rankers = []
        for place in [self.parts.get(RANKER, self.folder / RANKER), *(tree / RANKER for tree in self._further_trees)]:
            ranker = XLinear.load(place, nr_dense=nr_dense(self.metadata, self.folder))
            found = ((RANKER, "nr_labels", ranker.nr_labels), (RANKER, "nr_features", ranker.nr_features))
            check_parts(place.parent, self.metadata, found)
            rankers.append(ranker)
        return rankers_of(rankers)

    @cached_property
    def evidence(self) -> ProbabilityModel | None:
        """The fusion into probabilities, and the label names that it uses as evidence; None if the model has none."""
        places = [self.parts[name].parent for name in (FUSION, NAMES) if name in self.parts]
        evidence = ProbabilityModel.load(places[0]) if places else None
        if evidence is not None:
            evidence.allowed = self.output_labels
        return evidence

    @cached_property
    def new_to_head(self) -> np.ndarray | None:
        """The labels without documents, which the label head does not score: bool [labels]; None: it scores all."""
        if self.evidence is None:
            return None
        new = self.evidence.fusion.log_documents[: self.ranker.nr_labels] == 0
        return new if new.any() else None

    @cached_property
    def hierarchy(self) -> LabelHierarchy | None:
        """The broader terms of the labels, or None if the model has none."""
        place = self.parts.get(HIERARCHY)
        if place is None:
            return None
        verify(place)
        return LabelHierarchy.load(place)

    @property
    def trained_documents(self) -> TrainedDocuments | None:
        """The documents that the model was trained on, if they were texts."""
        return TrainedDocuments.load(self.parts[DOCUMENTS]) if DOCUMENTS in self.parts else None

    @cached_property
    def tree(self) -> LabelTree:
        """The first label tree of the rankers."""
        return self._tree(self.parts.get(TREE, self.folder / TREE))

    @property
    def more_trees(self) -> list[LabelTree]:
        """All label trees of the rankers except the first."""
        return [self._tree(place / TREE) for place in self._further_trees]

    def _tree(self, place: Path) -> LabelTree:
        tree = load_chain(place)
        check_parts(place.parent, self.metadata, ((TREE, "nr_labels", tree.nr_labels),))
        return tree

    @property
    def _further_trees(self) -> list[Path]:
        return further_trees(self.parts.get(ENSEMBLE, self.folder / ENSEMBLE), self.metadata)

    @cached_property
    def tfidf(self) -> "Tfidf":
        """The vectorizer."""
        return load_tfidf(self.parts.get(FEATURES), self.metadata)

    @property
    def runtime(self) -> str:
        """The runtime of the encoder: "tensorflow" or "onnx"."""
        from xmc_tf.encoder.onnx.encoder import choose_runtime

        return choose_runtime(self.asked_runtime, self.parts[ENCODER])

    @cached_property
    def encoder(self) -> "TextEncoder":
        """The encoder, loaded in the model's runtime: TensorFlow or ONNX Runtime."""
        if self.runtime == ONNX:
            from xmc_tf.encoder.onnx.encoder import OnnxEncoder

            return OnnxEncoder.load(self.parts[ENCODER], pooling=self.metadata.pooling)
        return self.tensorflow_encoder

    @cached_property
    def tensorflow_encoder(self) -> "Encoder":
        """The encoder as a TensorFlow model, which can be trained, saved, and exported as a SavedModel."""
        from xmc_tf.encoder import Encoder
        from xmc_tf.encoder.onnx.encoder import choose_runtime

        choose_runtime(TENSORFLOW, self.parts[ENCODER])
        return Encoder.load(self.parts[ENCODER], pooling=self.metadata.pooling)

    @cached_property
    def tokenizer(self) -> "TextTokenizer":
        """The encoder's tokenizer."""
        from xmc_tf.encoder import TextTokenizer

        return TextTokenizer.load(self.parts[ENCODER])

    @cached_property
    def matcher(self) -> "LabelSearch":
        """The label heads of all fine-tuned levels."""
        if HEAD not in self.parts:
            raise InputError(
                f"{self.folder} has no label head: its encoder was not fine-tuned",
                fix="train it with --do-fine-tune true, or use the rankers' scores: ensemble method concat-only",
            )
        from xmc_tf.matcher.label_search import load_label_search, load_pecos_head

        # Every process loads the whole head, for its own documents; training limits its size.
        place = self.parts[HEAD]
        if place.is_file():
            return load_pecos_head(place, self.nr_labels, self.metadata.embedding_dim)
        verify(place)
        return load_label_search(place)
