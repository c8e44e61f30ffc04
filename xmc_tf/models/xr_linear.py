"""The whole linear model, from raw text or features to label names, in one folder.

params.json   all parameters, versions, shapes, seed
labels.txt    label names, where given
tree/         the label tree
features/     the fitted TF-IDF, where it was trained on text
ranker/       the rankers, in PECOS's XLinear format
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.folders.placing import placed_folder
from xmc_tf.common.process.versions import package_versions
from xmc_tf.data import Features, TextFile, as_features
from xmc_tf.linear.fit import train_rankers
from xmc_tf.linear.modes import trained_levels, whole_chain
from xmc_tf.linear.xlinear import XLinear
from xmc_tf.models.folder import (
    MODEL,
    check_parts,
    load_tfidf,
    nr_dense,
    read_facts,
    read_names,
    write_facts,
    write_names,
)
from xmc_tf.models.results import named
from xmc_tf.params import (
    HierarchicalKMeansParams,
    RankerParams,
    RankerPredParams,
    TfidfParams,
    override_levels,
)
from xmc_tf.tree import LabelTree, load_chain, save_chain

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf
    from xmc_tf.serving.export import ModelParts

Texts: TypeAlias = TextFile | Sequence[str] | Sequence[bytes]


@dataclass(eq=False)
class XRLinear:
    """XR-Linear with its vectorizer, label tree and label names.

    Example:
        >>> model = XRLinear.load("model")
        >>> model.best(["gradient of a sparse matrix"], k=3)
        [[('scipy.sparse', 0.71), …]]

    Args:
        ranker: the trained rankers.
        tree: the label tree.
        names: label names, or None.
        facts: the model metadata of ``params.json``.
        folder: where it was loaded from.
    """

    ranker: XLinear
    tree: LabelTree
    names: list[str] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    given_tfidf: "Tfidf | None" = None

    def __repr__(self) -> str:
        of = f" of {self.folder}" if self.folder else ""
        reads = "text" if self.reads_text else "features"
        return f"XRLinear({self.ranker.nr_labels:,} labels, {self.ranker.depth} levels, reads {reads}{of})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the whole model with its vectorizer, so that its folder is not needed."""
        state = {name: value for name, value in vars(self).items() if name != "tfidf"}
        return state | {"given_tfidf": self.tfidf if self.reads_text else None}

    @property
    def reads_text(self) -> bool:
        """Whether the model contains a vectorizer and can read texts."""
        return self.given_tfidf is not None or (self.folder is not None and (self.folder / "features").is_dir())

    @cached_property
    def tfidf(self) -> "Tfidf":
        """The vectorizer. It is loaded on first use, because it loads TensorFlow."""
        if self.given_tfidf is not None:
            return self.given_tfidf
        return load_tfidf(self.folder / "features" if self.folder else None, self.facts)

    def features(self, texts: Texts, threads: int = -1) -> Features:
        """Return the TF-IDF features of texts."""
        return as_features(self.tfidf.transform(texts, threads=threads))

    def predict(
        self,
        documents: Features | Texts,
        *,
        beam_size: int | None = None,
        only_topk: int | None = None,
        post_processor: str | None = None,
        threads: int = -1,
    ) -> csr_matrix:
        """Return the scores of the best labels of texts or features.

        Args:
            documents: texts, for a model that was trained on texts; else features.
            beam_size: number of nodes kept at each level above the labels; larger is slower and more exact. None, here
                and below: the model's default.
            only_topk: number of labels per document.
            post_processor: function applied to the scores of each level.
            threads: number of threads; -1: one per core.

        Returns:
            (documents × labels) scores, descending within a row.
        """
        if not isinstance(documents, Features):
            documents = self.features(documents, threads=threads)
        return self.ranker.predict(
            documents, beam_size=beam_size, only_topk=only_topk, post_processor=post_processor, threads=threads
        )

    def best(
        self,
        documents: Features | Texts,
        k: int = 5,
        *,
        beam_size: int | None = None,
        post_processor: str | None = None,
        threads: int = -1,
    ) -> list[list[tuple[str, float]]]:
        """Return the names and scores of the k best labels of each document, best first.

        A label without a name goes by its number. For the other arguments see :meth:`predict`.
        """
        predicted = self.predict(
            documents, beam_size=beam_size, only_topk=k, post_processor=post_processor, threads=threads
        )
        return list(named(predicted, self.names))

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder, completely or not at all; an older model there is replaced."""
        write_model(
            folder, self.tree, self.names, self.facts, self.ranker.save,
            self.tfidf.save if self.reads_text else None,
        )  # fmt: skip

    def export(self, folder: str | Path, **settings: Any) -> Any:
        """Export the model as a SavedModel, from text to label names, which a stock TensorFlow Serving loads.

        Example:
            >>> print(model.export("served/1", only_topk=10, beam_size=20).table())

        Args:
            folder: where to; for a server its name is the version.
            **settings: of :class:`xmc_tf.serving.export.ExportSettings`.

        Returns:
            The :class:`~xmc_tf.serving.export.Exported`.
        """
        from xmc_tf.serving.export import ExportSettings, export_model  # they need TensorFlow

        return export_model(self.export_parts(), folder, ExportSettings(**settings))

    def export_parts(self) -> "ModelParts":
        """Return what a SavedModel of this model is made of."""
        from xmc_tf.serving.export import ModelParts

        return ModelParts(self.ranker, self.names, self.tfidf if self.reads_text else None)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a model, or rankers that PECOS trained, from a folder."""
        folder = Path(folder)
        if not (folder / "params.json").exists() and (folder / "param.json").exists():
            ranker = XLinear.load(folder)
            clusters = [level.clusters for level in ranker.levels]
            return cls(ranker, LabelTree.from_chain(whole_chain(clusters, ranker.nr_labels, RankerParams())))
        facts = read_facts(folder)
        if facts.get("model") == "XTransformer":
            raise InputError(
                f"{folder} is an XR-Transformer model",
                expected="a linear model, as xmc_tf.linear.train writes it",
                fix="use python -m xmc_tf.predict (in Python: XTransformer.load); its linear rankers alone are in "
                f"{folder / 'ranker'}",
            )
        ranker, tree = XLinear.load(folder / "ranker", nr_dense=nr_dense(facts, folder)), load_chain(folder / "tree")
        found = (
            ("ranker", "nr_labels", ranker.nr_labels),
            ("ranker", "nr_features", ranker.nr_features),
            ("tree", "nr_labels", tree.nr_labels),
        )
        check_parts(folder, facts, found)
        return cls(ranker, tree, read_names(folder, ranker.nr_labels), facts, folder)

    @classmethod
    def train(
        cls,
        X: Features,
        Y: spmatrix,
        tree: LabelTree,
        *,
        params: RankerParams,
        pred_params: RankerPredParams,
        names: list[str] | None = None,
        tfidf: "Tfidf | None" = None,
        R: spmatrix | None = None,
        user_negatives: Mapping[int, spmatrix] | None = None,
        recorded: Mapping[str, Any] | None = None,
        wishes: Mapping[str, Any] | None = None,
        threads: int = -1,
        seed: int = 0,
    ) -> Self:
        """Trains the rankers of a tree and keeps what belongs to them.

        Args:
            X: features of the training documents.
            Y: (documents × labels).
            tree: over the labels.
            params: how the rankers are trained.
            pred_params: how they predict where prediction is not told otherwise.
            names: of the labels.
            tfidf: what made the sparse features from text, where something did.
            R: relevance of the positives.
            user_negatives: matching for negatives, by levels above the labels.
            recorded: more for ``params.json``: the other parts' parameters.
            wishes: beam_size, only_topk, post_processor to predict with, over ``pred_params``.
            threads: how many; -1: one per core.
            seed: of the solvers' visiting orders.
        """
        pred_params = level_predictions(tree, params, pred_params, wishes)
        ranker = train_rankers(
            X, Y, tree.to_chain(), R=R, params=params, pred_params=pred_params, user_negatives=user_negatives,
            threads=threads, seed=seed,
        )  # fmt: skip
        tree, names = what_is_predicted(tree, names, params)
        facts = model_facts(X, ranker, params, pred_params, recorded, seed)
        return cls(ranker, tree, names, facts, given_tfidf=tfidf)


def write_model(
    folder: str | Path,
    tree: LabelTree,
    names: list[str] | None,
    facts: Mapping[str, Any],
    write_ranker: Callable[[Path], object],
    write_tfidf: Callable[[Path], object] | None,
) -> None:
    """Writes a model's folder from its parts, completely or not at all; an older model there is replaced.

    Files in the folder that are not part of a model stay.

    Args:
        folder: the model's.
        tree: the label tree.
        names: of the labels, where they have any.
        facts: for ``params.json``.
        write_ranker: makes the folder of rankers at a path.
        write_tfidf: makes that of the vectorizer, where there is one.
    """
    with placed_folder(folder, MODEL) as part:
        save_chain(part / "tree", tree.to_chain())
        write_ranker(part / "ranker")
        if write_tfidf:
            write_tfidf(part / "features")
        write_names(part, names)
        write_facts(part, facts)


def level_predictions(
    tree: LabelTree, params: RankerParams, pred_params: RankerPredParams, wishes: Mapping[str, Any] | None
) -> RankerPredParams:
    """Return the prediction options of each level that is trained; ``wishes`` override the parameters."""
    depth = len(range(tree.depth)[trained_levels(params, tree.depth)])
    levels = override_levels(pred_params.hlm_args.model_chain, depth, **(wishes or {}))
    return RankerPredParams.from_json({"hlm_args": {"model_chain": [level.to_json() for level in levels]}})


def what_is_predicted(
    tree: LabelTree, names: list[str] | None, params: RankerParams
) -> tuple[LabelTree, list[str] | None]:
    """Tree and names of what the model predicts: of a matcher, nodes of the tree, which have no names."""
    if params.mode != "matcher":
        return tree, names
    chain = tree.to_chain()
    return LabelTree.from_chain(chain[trained_levels(params, len(chain))]), None


def model_facts(
    X: Features,
    ranker: XLinear,
    params: RankerParams,
    pred_params: RankerPredParams,
    recorded: Mapping[str, Any] | None,
    seed: int,
) -> dict[str, Any]:
    """Return the metadata in ``params.json``: parameters, shapes, seed, versions."""
    return {
        "model": "XLinear",
        "train_params": params.to_json(),
        "pred_params": pred_params.to_json(),
        **(recorded or {}),
        "nr_documents": X.nr_rows,
        "nr_features": X.nr_features,
        "nr_dense": X.nr_dense,
        "nr_labels": ranker.nr_labels,
        "nr_weights": ranker.nr_weights,
        "seed": seed,
        "versions": package_versions(),
    }


def train_on_text(
    texts: Sequence[str] | Sequence[bytes],
    Y: spmatrix,
    *,
    tfidf_params: TfidfParams | None = None,
    tree_params: HierarchicalKMeansParams | None = None,
    params: RankerParams | None = None,
    names: list[str] | None = None,
    threads: int = -1,
) -> XRLinear:
    """Train a model on texts and labels, with defaults for all other options.

    Example:
        >>> train_on_text(texts, Y, names=names).save("model")
    """
    from xmc_tf.features import Tfidf
    from xmc_tf.tree import build_tree, label_embedding

    tfidf = Tfidf.fit(texts, tfidf_params or TfidfParams(), threads=threads)
    X = as_features(tfidf.transform(texts, threads=threads))
    tree = build_tree(label_embedding("pifa", X, Y), tree_params or HierarchicalKMeansParams())
    return XRLinear.train(
        X, Y, tree, params=params or RankerParams(), pred_params=RankerPredParams(), names=names, tfidf=tfidf,
        threads=threads,
    )  # fmt: skip
