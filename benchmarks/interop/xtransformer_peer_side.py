"""Trains small XR-Transformer models with PECOS and predicts with them; run by the Python of PECOS's environment.

    xtransformer_peer_side.py FOLDER ARCHITECTURE...

FOLDER holds X.trn.txt, X.tst.txt, X.trn.npz, X.tst.npz and Y.trn.npz. For each architecture and kind of model it gets
``<case>/model`` as PECOS saves it, ``<case>/P.npz`` (PECOS's predictions), ``<case>/E.npy`` (its embeddings) and, where
the label head scores labels, ``<case>/H.npz`` (the predictions of PECOS's transformer alone). The last line that is
printed is a JSON list of the cases.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as smat
import tokenizers
import torch
import transformers
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.base import HierarchicalKMeans, HierarchicalMLModel, MLModel
from pecos.xmc.xlinear.model import XLinearModel
from pecos.xmc.xtransformer.matcher import TransformerMatcher
from pecos.xmc.xtransformer.model import XTransformer
from pecos.xmc.xtransformer.module import MLProblemWithText

LENGTH = 24
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
BEHIND_PADDING = {"max_position_embeddings": 66, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}


def encoder_folder(folder: Path, architecture: str, texts: list[str]) -> None:
    """A tiny encoder with random weights whose tokenizer is trained on the texts."""
    tokenizer = TOKENIZERS[architecture](folder, texts)
    size = len(tokenizer)
    torch.manual_seed(0)
    configs = {
        "bert": lambda: transformers.BertConfig(vocab_size=size, max_position_embeddings=64, **SMALL),
        "roberta": lambda: transformers.RobertaConfig(vocab_size=size, **BEHIND_PADDING, **SMALL),
        "xlm-roberta": lambda: transformers.XLMRobertaConfig(vocab_size=size, **BEHIND_PADDING, **SMALL),
        "distilbert": lambda: transformers.DistilBertConfig(
            vocab_size=size, max_position_embeddings=64, dim=32, n_layers=2, n_heads=2, hidden_dim=48
        ),
        "xlnet": lambda: transformers.XLNetConfig(
            vocab_size=size, d_model=32, n_layer=2, n_head=2, d_inner=48, pad_token_id=tokenizer.pad_token_id
        ),
    }
    config = configs[architecture]()
    config.initializer_range = 0.2  # or all texts would look alike
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def word_pieces(folder, texts, kind):
    trained = tokenizers.BertWordPieceTokenizer(lowercase=True)
    trained.train_from_iterator(texts, vocab_size=400, min_frequency=1, show_progress=False)
    folder.mkdir(parents=True, exist_ok=True)
    trained.save_model(str(folder))
    return getattr(transformers, kind)(vocab_file=str(folder / "vocab.txt"))


def byte_pairs(folder, texts):
    trained = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(texts, vocab_size=400, min_frequency=1, special_tokens=special, show_progress=False)
    folder.mkdir(parents=True, exist_ok=True)
    trained.save_model(str(folder))
    return transformers.RobertaTokenizerFast(str(folder / "vocab.json"), str(folder / "merges.txt"))


def unigrams(folder, texts, kind, special, template):
    trained = tokenizers.Tokenizer(tokenizers.models.Unigram())
    trained.normalizer = tokenizers.normalizers.NFKC()
    trained.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    trained.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=400, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    trained.train_from_iterator(texts, trainer)
    pairs = [(one, trained.token_to_id(one)) for one in special]
    trained.post_processor = tokenizers.processors.TemplateProcessing(
        single=template, pair=template.replace("$A:0", "$A:0 $B:0"), special_tokens=pairs
    )
    return getattr(transformers, kind)(tokenizer_object=trained)


TOKENIZERS = {
    "bert": lambda folder, texts: word_pieces(folder, texts, "BertTokenizerFast"),
    "distilbert": lambda folder, texts: word_pieces(folder, texts, "DistilBertTokenizerFast"),
    "roberta": byte_pairs,
    "xlm-roberta": lambda folder, texts: unigrams(
        folder, texts, "XLMRobertaTokenizerFast", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "<s> $A:0 </s>"
    ),
    "xlnet": lambda folder, texts: unigrams(
        folder, texts, "XLNetTokenizerFast", ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"],
        "$A:0 <sep>:0 <cls>:2",
    ),
}  # fmt: skip


def train(texts, X, Y, encoder, tree, *, only_encoder=False, most=32768):
    """Return parameters with a few steps per level, otherwise PECOS's defaults."""
    linear = MLModel.TrainParams(threshold=0.001, threads=1)
    indexer = HierarchicalKMeans.TrainParams(nr_splits=4, max_leaf_size=6, threads=1)
    params = XTransformer.TrainParams(
        preliminary_indexer_params=indexer,
        refined_indexer_params=indexer,
        matcher_params_chain=TransformerMatcher.TrainParams(
            model_shortcut=str(encoder), negative_sampling="tfn+man", max_steps=4, batch_size=16, save_steps=1000,
            learning_rate=1e-3, use_gpu=False, batch_gen_workers=1,
        ),
        ranker_params=XLinearModel.TrainParams(hlm_args=HierarchicalMLModel.TrainParams(model_chain=linear)),
        only_encoder=only_encoder, max_match_clusters=most,
    )  # fmt: skip
    pred = XTransformer.PredParams(
        matcher_params_chain=TransformerMatcher.PredParams(
            only_topk=8, truncate_length=LENGTH, post_processor="sigmoid"
        ),
        ranker_params=XLinearModel.PredParams(
            hlm_args=HierarchicalMLModel.PredParams(
                model_chain=MLModel.PredParams(only_topk=8, post_processor="l3-hinge")
            )
        ),
    )  # fmt: skip
    problem = MLProblemWithText(texts, Y, X_feat=X)
    return XTransformer.train(problem, clustering=tree, train_params=params, pred_params=pred, beam_size=8)


def main() -> None:
    folder, architectures = Path(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    texts = {part: (folder / f"X.{part}.txt").read_text(encoding="utf-8").splitlines() for part in ("trn", "tst")}
    X = {part: smat.load_npz(folder / f"X.{part}.npz").tocsr().astype(np.float32) for part in ("trn", "tst")}
    Y = smat.load_npz(folder / "Y.trn.npz").tocsr().astype(np.float32)
    indexer = HierarchicalKMeans.TrainParams(nr_splits=4, max_leaf_size=6, threads=1)
    tree = Indexer.gen(LabelEmbeddingFactory.create(Y, X["trn"], method="pifa"), train_params=indexer)
    features = {
        "sparse": X,
        "dense": {part: np.ascontiguousarray(one.toarray()[:, :40]) for part, one in X.items()},
        "text": {"trn": None, "tst": None},
    }
    kinds = {
        "sparse": {},
        "bin": {},
        "clusters": {"most": tree[-1].shape[1]},
        "dense": {},
        "text": {},
        "only-encoder": {"only_encoder": True},
    }
    cases = []
    for number, architecture in enumerate(architectures):
        encoder = folder / "encoders" / architecture
        encoder_folder(encoder, architecture, texts["trn"])
        for kind, options in kinds.items():
            if number and kind not in ("sparse", "bin"):
                continue  # what does not depend on the architecture is compared for the first one
            given = features.get(kind, X)
            case = f"{architecture}-{kind}"
            model = train(texts["trn"], given["trn"], Y, encoder, tree, **options)
            place = folder / case
            shutil.rmtree(place, ignore_errors=True)
            model.save(str(place / "model"))
            if kind == "bin":  # as earlier versions of transformers saved it
                inner = place / "model" / "text_encoder" / "text_encoder"
                (inner / "model.safetensors").unlink()
                model.text_encoder.text_encoder.save_pretrained(str(inner), safe_serialization=False)
            predict = {"use_gpu": False, "batch_gen_workers": 1}
            loaded = XTransformer.load(str(place / "model"))
            np.save(place / "E.npy", loaded.encode(texts["tst"], **predict))
            if loaded.concat_model is not None:
                smat.save_npz(place / "P.npz", loaded.predict(texts["tst"], X_feat=given["tst"], **predict).tocsr())
            if loaded.text_encoder.nr_labels == Y.shape[1]:
                found, _ = loaded.text_encoder.predict(texts["tst"], batch_gen_workers=1)
                smat.save_npz(place / "H.npz", found.tocsr())
            if given["tst"] is not None:
                if isinstance(given["tst"], np.ndarray):
                    np.save(place / "X.npy", given["tst"])
                else:
                    smat.save_npz(place / "X.npz", given["tst"])
            cases.append(case)
            print(f"{case}: trained", file=sys.stderr, flush=True)
    print(json.dumps(cases))


if __name__ == "__main__":
    main()
