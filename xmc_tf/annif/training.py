import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from annif.util import boolean
from scipy.sparse import csr_matrix

from xmc_tf.data import TextFile
from xmc_tf.label_names import have_letters
from xmc_tf.models.training_run import TrainingRun
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.params import (
    MatcherParams,
    MatcherPredParams,
    TfidfParams,
    XRLinearParams,
    XTransformerParams,
    XTransformerPredParams,
)
from xmc_tf.params.tfidf import AS_WRITTEN

# Annif ignores files with "-train" in their names when it looks for a model.
_WORK = "xmc_tf-train-work"


def train_model(
    documents: tuple[TextFile, csr_matrix], names: Sequence[str], project: Any, params: dict[str, Any], jobs: int
) -> Callable[[Path], None]:
    """Train a model, with or without an encoder, and return the function that saves it to a folder."""
    if params["encoder"]:
        return _with_encoder(documents, names, project, params, jobs)
    texts, labels = documents
    return XRLinear.train(
        texts,
        labels,
        names=names,
        params=XRLinearParams(tfidf=tfidf_params(project, params)),
        probabilities=_probabilities(params),
        label_names=_uses_names(names, params),
        threads=jobs or -1,
        seed=int(params["seed"]),
        effort=str(params["effort"]),
        keep_training_data=boolean(params["keep_training_data"]),
    ).save


def _with_encoder(
    documents: tuple[TextFile, csr_matrix], names: Sequence[str], project: Any, params: dict[str, Any], jobs: int
) -> Callable[[Path], None]:
    texts, labels = documents
    work = Path(project.datadir) / _WORK  # an interrupted training resumes
    model = XTransformer.train(
        texts,
        labels,
        names=names,
        params=XTransformerParams(
            matcher_params_chain=MatcherParams(
                model_shortcut=str(params["encoder"]), num_train_epochs=int(params["epochs"])
            ),
            probabilities=_probabilities(params),
            label_names=_uses_names(names, params),
        ),
        pred_params=XTransformerPredParams(
            matcher_params_chain=MatcherPredParams(truncate_length=int(params["truncate_length"]))
        ),
        tfidf=tfidf_params(project, params),
        run=TrainingRun(work_dir=work, threads=jobs or -1, seed=int(params["seed"]), effort=str(params["effort"])),
    )

    def save(folder: Path) -> None:
        model.save(folder)
        shutil.rmtree(work)

    return save


def tfidf_params(project: Any, params: dict[str, Any]) -> TfidfParams:
    return TfidfParams(
        ngram_max=int(params["ngram"]),
        min_df=int(params["min_df"]),
        pieces=int(params["pieces"]),
        language=AS_WRITTEN if project.analyzer_spec else str(project.language),
    )


def _uses_names(names: Sequence[str], params: dict[str, Any]) -> bool:
    # Names are evidence for probabilities only.
    return boolean(params["label_names"]) and boolean(params["probabilities"]) and have_letters(names)


def _probabilities(params: dict[str, Any]) -> bool | None:
    """Return False for the rankers' scores, or None for probabilities if there are enough documents."""
    return None if boolean(params["probabilities"]) else False
