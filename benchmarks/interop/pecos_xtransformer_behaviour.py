"""PECOS's own tests of XR-Transformer, applied to ours: which behaviour holds, which differs, and why.

    python -m benchmarks.interop.pecos_xtransformer_behaviour

PECOS's tests (``test/pecos/xmc/xtransformer``) train on three product titles with a BERT of eight numbers, predict,
encode and evaluate. The same is done here on data of the same kind, with PECOS's flags: only the names of the modules
change. One JSON line per behaviour: "holds", or "differs" with the reason. The exit status is 1 where one neither holds
nor is known to differ. PECOS is not needed.
"""

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from tests.data.torch_writer import torch_zip
from tests.encoder.test_sources import save_as_torch_does
from tests.encoder.tiny import tiny_encoder
from xmc_tf import encode, predict, train
from xmc_tf.data import TextFile, load_matrix, save_matrix
from xmc_tf.linear import evaluate
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.params import XTransformerParams, XTransformerPredParams

TITLES = ["blue android tablet mini cover", "blue windows laptop cover", "trail hiking boots"]
LABELS_OF = [[0, 1], [0, 2], [3, 4, 5, 6]]
# What PECOS's tests expect: all labels of the two best places are right.
PERFECT = (
    "==== evaluation results ====\n"
    "prec   = 100.00 100.00 66.67 50.00 40.00 33.33 28.57 25.00 22.22 20.00\n"
    "recall = 41.67 83.33 83.33 83.33 83.33 83.33 83.33 83.33 83.33 83.33\n"
)


class Workplace:
    """The data, the encoder's folder, and command lines run on them in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.texts, self.labels = folder / "train.txt", folder / "train_label.npz"
        self.sparse, self.dense, self.codes = (folder / name for name in ("feat.npz", "feat.npy", "clusters.npz"))
        self.texts.write_text("".join(f"{title}\n" for title in TITLES))
        Y = np.zeros((3, 7), np.float32)
        for row, labels in enumerate(LABELS_OF):
            Y[row, labels] = 1
        save_matrix(self.labels, csr_matrix(Y))
        words = sorted({word for title in TITLES for word in title.split()})
        X = np.array([[float(word in title.split()) for word in words] for title in TITLES], np.float32)
        save_matrix(self.sparse, csr_matrix(X))
        save_matrix(self.dense, X)
        save_matrix(self.codes, csc_matrix(np.repeat(np.eye(2, dtype=np.float32), [3, 4], axis=0)))
        self.encoder = folder / "saved_model"
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
        inner = self.encoder / "text_encoder"
        inner.mkdir(parents=True)
        tiny = tiny_encoder(
            "bert",
            vocab_size=len(pieces),
            hidden_size=8,
            num_attention_heads=1,
            num_hidden_layers=1,
            max_position_embeddings=256,
        )
        save_as_torch_does(tiny, inner, write=lambda found: (inner / "pytorch_model.bin").write_bytes(torch_zip(found)))
        (self.encoder / "text_tokenizer").mkdir()
        (self.encoder / "text_tokenizer" / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))

    def run(self, main: Callable[[list[str]], Any], flags: dict[str, Any]) -> str:
        """Run a command line and return what it prints."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            main([str(part) for flag, value in flags.items() for part in ((flag,) if value is None else (flag, value))])
        return printed.getvalue()

    def train(self, model: str, **more: Any) -> Path:
        """Train with the flags of PECOS's tests; ``more`` are flags with underscores, None to leave one out."""
        flags = {
            "trn_text_path": self.texts, "trn_feat_path": self.sparse, "trn_label_path": self.labels,
            "model_dir": self.folder / model, "init_model_dir": self.encoder, "batch_size": 1, "num_train_epochs": 1,
            "save_steps": 2, "only_topk": 2, "batch_gen_workers": 2,
        }  # fmt: skip
        flags |= more
        self.run(train.main, {_flag(name): value for name, value in flags.items() if value is not None})
        return self.folder / model

    def predict(self, model: Path, name: str, **more: Any) -> csr_matrix:
        """Predict the training documents with PECOS's flags."""
        flags = {"feat_path": self.sparse, "text_path": self.texts, "model_folder": model, "batch_size": 1}
        flags |= {"save_pred_path": self.folder / name, **more}
        self.run(predict.main, {_flag(key): value for key, value in flags.items() if value is not None})
        return load_matrix(self.folder / name).tocsr()

    def evaluation(self, name: str) -> str:
        """Return what PECOS's evaluate would print for a prediction."""
        return self.run(evaluate.main, {"-y": self.labels, "-p": self.folder / name})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def train_with_codes(place: Workplace) -> None:
    """Training on sparse features and a given tree."""
    place.train("sparse", code_path=place.codes)


def train_again(place: Workplace) -> None:
    """Training into the same folder without a tree: it is built, and the model replaced."""
    before = (place.folder / "sparse" / "params.json").stat().st_ino
    place.train("sparse")
    assert (place.folder / "sparse" / "params.json").stat().st_ino != before


def train_on_dense_features(place: Workplace) -> None:
    """Training and prediction with dense features, with a given tree and without."""
    place.train("dense", trn_feat_path=place.dense, code_path=place.codes)
    model = place.train("dense", trn_feat_path=place.dense)
    place.predict(model, "P.dense.npz", feat_path=place.dense)
    assert place.evaluation("P.dense.npz") == PERFECT


def predict_and_evaluate(place: Workplace) -> None:
    """The labels of the training documents, and the very text that PECOS's evaluate prints."""
    place.predict(place.folder / "sparse", "P.npz")
    assert place.evaluation("P.npz") == PERFECT, place.evaluation("P.npz")


def predict_in_chunks(place: Workplace) -> None:
    """One document at a time (--max-pred-chunk 1) gives the same matrix as all at once."""
    first = load_matrix(place.folder / "P.npz").tocsr()
    second = place.predict(place.folder / "sparse", "P2.npz", max_pred_chunk=1)
    for part in ("indptr", "indices", "data"):
        assert np.allclose(getattr(first, part), getattr(second, part))


def predict_with_one_worker(place: Workplace) -> None:
    """--batch-gen-workers changes nothing."""
    second = place.predict(place.folder / "sparse", "P3.npz", batch_gen_workers=1)
    assert np.allclose(load_matrix(place.folder / "P.npz").toarray(), second.toarray())


def encode_without_rankers(place: Workplace) -> None:
    """--only-encoder true, then embeddings; one document at a time gives the same to 1e-6."""
    model = place.train("only_encoder", only_encoder="true")
    found = []
    for name, more in (("E.npy", {}), ("E1.npy", {"--max-pred-chunk": 1})):
        flags = {"--text-path": place.texts, "--model-folder": model, "--save-emb-path": place.folder / name}
        place.run(encode.main, {**flags, "--batch-size": 1, "--batch-gen-workers": 1, **more})
        found.append(np.load(place.folder / name))
    assert found[0].shape == (3, 8)
    np.testing.assert_allclose(*found, atol=1e-6)


def python_interface(place: Workplace) -> None:
    """Training and prediction by calls, with parameters from an empty dictionary."""
    level = {"init_model_dir": str(place.encoder), "batch_size": 1, "num_train_epochs": 1, "save_steps": 2}
    params = XTransformerParams.from_json({"matcher_params_chain": {**level, "batch_gen_workers": 2}})
    two = {"only_topk": 2}
    pred = XTransformerPredParams.from_json(
        {"matcher_params_chain": two, "ranker_params": {"hlm_args": {"model_chain": two}}}
    )
    Y = load_matrix(place.labels).tocsr()
    texts, X = TextFile(place.texts), load_matrix(place.sparse)
    model = XTransformer.train(texts, Y, X=X, params=params, pred_params=pred)
    save_matrix(place.folder / "P.api.npz", model.predict(texts, X))
    assert place.evaluation("P.api.npz") == PERFECT


def parameter_file(place: Workplace) -> None:
    """--generate-params-skeleton prints a file that, edited, trains the model (--params-path)."""
    params = json.loads(place.run(train.main, {"--generate-params-skeleton": None}))
    params["train_params"]["matcher_params_chain"] |= {
        "init_model_dir": str(place.encoder), "batch_size": 1, "num_train_epochs": 1, "save_steps": 2,
    }  # fmt: skip
    params["pred_params"]["matcher_params_chain"]["only_topk"] = 2
    params["pred_params"]["ranker_params"]["hlm_args"]["model_chain"]["only_topk"] = 2
    (place.folder / "params.json").write_text(json.dumps(params))
    model = place.folder / "skeleton"
    flags = {"--trn-text-path": place.texts, "--trn-feat-path": place.sparse, "--trn-label-path": place.labels}
    place.run(train.main, {**flags, "--model-dir": model, "--params-path": place.folder / "params.json"})
    place.predict(model, "P.skeleton.npz")
    assert place.evaluation("P.skeleton.npz") == PERFECT


def train_on_texts_alone(place: Workplace) -> None:
    """Without -x, with a tree: rankers on the embedding alone."""
    model = place.train("no_feat", trn_feat_path=None, code_path=place.codes)
    place.predict(model, "P.nofeat.npz", feat_path=None)
    assert not (model / "features").exists(), "features/"


def train_on_texts_alone_by_flag(place: Workplace) -> None:
    """The same with --text-only."""
    flags = {"--trn-text-path": place.texts, "--trn-label-path": place.labels, "--model-dir": place.folder / "text"}
    flags |= {"--code-path": place.codes, "--init-model-dir": place.encoder}
    place.run(train.main, {**flags, "--text-only": None, "--only-topk": 2, "--num-train-epochs": 1})
    found = place.predict(place.folder / "text", "P.text.npz", feat_path=None)
    assert np.diff(found.indptr).tolist() == [2, 2, 2]


def names_of_classes(place: Workplace) -> None:
    """``BertForXMC`` and ``TransformerMatcher`` can be imported."""
    import xmc_tf.matcher.matcher as ours

    assert hasattr(ours, "Matcher")
    assert hasattr(ours, "BertForXMC"), "BertForXMC"


BEHAVIOURS: list[Callable[[Workplace], None]] = [
    train_with_codes, train_again, train_on_dense_features, predict_and_evaluate, predict_in_chunks,
    predict_with_one_worker, encode_without_rankers, python_interface, parameter_file, train_on_texts_alone,
    train_on_texts_alone_by_flag, names_of_classes,
]  # fmt: skip
# What differs on purpose.
DIFFERS = {
    "train_on_texts_alone": "without -x we compute TF-IDF features from the texts; --text-only trains as PECOS does",
    "names_of_classes": "the classes are our own: xmc_tf.matcher.Matcher, and one Encoder for all architectures",
}


def main() -> None:
    """Check all behaviours in order: some use the models of earlier ones."""
    surprises = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Workplace(Path(folder))
        for behaviour in BEHAVIOURS:
            name = behaviour.__name__
            result: dict[str, str] = {"behaviour": name, "what": (behaviour.__doc__ or "").strip()}
            try:
                behaviour(place)
                result["result"] = "holds"
            except (Exception, SystemExit) as error:  # noqa: BLE001  whatever goes wrong is the result
                result["result"] = "differs" if name in DIFFERS else "fails"
                result["reason"] = DIFFERS.get(name, f"{type(error).__name__}: {error}"[:500])
            surprises += (result["result"] == "differs") != (name in DIFFERS) or result["result"] == "fails"
            print(json.dumps(result), flush=True)
    sys.exit(1 if surprises else 0)


if __name__ == "__main__":
    main()
