"""Export for ONNX Runtime, with the loss through 8 bits in the model card."""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scipy.sparse import csr_matrix

from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.models.folder import CARD, MARK, is_foreign
from xmc_tf.models.loading import load
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.serving.agreement import Agreement, compare

_LOG = logging.getLogger(__name__)
LARGEST_LOSS = 0.2
"""The loss in percentage points of precision up to which 8 bits are the default."""


def export_measured(
    model: XTransformer, folder: Path, precision: str, texts: Any, truth: csr_matrix
) -> tuple[str, Agreement]:
    """Export a model for ONNX Runtime; return the chosen precision, and the measures of fp32 and int8."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".xmc_tf-", dir=folder.parent) as temporary:
        predictions = {}
        for one in ("fp32", "int8"):
            model.export_onnx(Path(temporary) / one, precision=one)
            predictions[one] = load(Path(temporary) / one).predict(texts)
    measured = compare(truth, predictions["fp32"], predictions["int8"])
    if precision == "auto":
        losses = [100 * (a - b) for a, b in zip(measured.model, measured.exported, strict=True)]
        precision = "int8" if max(losses) < LARGEST_LOSS else "fp32"
    model.export_onnx(folder, precision=precision)
    _write_card(model.folder, folder, precision, measured, truth.shape[0])
    return precision, measured


def _write_card(source: Path, folder: Path, precision: str, measured: Agreement, documents: int) -> None:
    """Write the model card: that of the model, if xmc_tf has written it, and the loss through 8 bits."""
    card = source / CARD
    ours = card.is_file() and not is_foreign(card)
    text = card.read_text(encoding="utf-8") if ours else f"{MARK}\n\n# {folder.name}\n"
    rows = [("float32", measured.model), ("8 bits", measured.exported)]
    lines = [
        "", "## Export for ONNX Runtime", "",
        f"The encoder's matrices have {'8 bits' if precision == 'int8' else 'float32'}. Precision in percent on "
        f"{documents:,} documents:", "",
        f"| | {' | '.join(f'P@{k}' for k in measured.ks)} |", f"|---|{'---:|' * len(measured.ks)}",
        *(f"| {name} | {' | '.join(f'{100 * value:.2f}' for value in values)} |" for name, values in rows),
    ]  # fmt: skip
    if is_foreign(folder / CARD):
        _LOG.warning("%s was not written by xmc_tf and stays as it is: there is no model card", folder / CARD)
        return
    with atomic_file(folder / CARD) as part:
        part.write_text(text.rstrip("\n") + "\n" + "\n".join(lines) + "\n", encoding="utf-8")
