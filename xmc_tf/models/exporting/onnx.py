"""Export of a model for ONNX Runtime: a model's folder with the encoder as an ONNX graph."""

from functools import partial
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.folders.model_kind import pecos_class
from xmc_tf.common.folders.model_parts import ENCODER, TRAINING
from xmc_tf.models.folder import link_part, write_model_folder
from xmc_tf.models.parts import Parts


def export_onnx(model: Parts, folder: str | Path, precision: str = "fp32") -> None:
    """Write a model whose encoder ONNX Runtime computes."""
    from xmc_tf.encoder.onnx.encoder import GRAPH, write_encoder

    if pecos_class(model.folder) or (model.parts[ENCODER] / GRAPH).is_file():
        raise InputError(
            f"{model.folder} cannot be exported for ONNX Runtime", expected="a model that xmc_tf has trained",
            received="a folder of PECOS" if pecos_class(model.folder) else "a model that was exported already",
            fix="xmc_tf.load(folder).save(new folder) converts a model of PECOS",
        )  # fmt: skip

    def write(place: Path) -> None:
        write_encoder(model.parts[ENCODER], place, pooling=model.metadata.pooling, precision=precision)
        model.tokenizer.save(place)

    parts: dict[str, Any] = {name: partial(link_part, source) for name, source in model.parts.items()}
    parts.pop(TRAINING, None)  # a server trains nothing
    write_model_folder(folder, parts | {ENCODER: write}, model.names, model.metadata)
