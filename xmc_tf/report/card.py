"""The model card: ``README.md`` in the folder of a model, in the format of the Hugging Face hub."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xmc_tf.models.folder import CARD, MARK, is_foreign
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.model import Model
from xmc_tf.report.report import Report
from xmc_tf.store.files import atomic_file

_LOG = logging.getLogger(__name__)
_SHOWN = ("P", "R", "nDCG", "PSP")
_KINDS = {
    "XLinear": "XR-Linear: TF-IDF features, label trees and linear rankers",
    "XTransformer": "XR-Transformer: a fine-tuned encoder, TF-IDF features, label trees and linear rankers",
}


def write_card(folder: str | Path, model: Model, report: Report, data: str) -> Path | None:
    """Write a model card and return its path. Keep a ``README.md`` that xmc_tf did not write, and return None."""
    path = Path(folder) / CARD
    if is_foreign(path):
        _LOG.warning("%s was not written by xmc_tf and is kept; no model card is written", path)
        return None
    with atomic_file(path) as part:
        part.write_text(card_of(Path(folder).resolve().name, model.metadata, report, data), encoding="utf-8")
    return path


def card_of(title: str, metadata: ModelMetadata, report: Report, data: str) -> str:
    comparison = report.comparison
    measures = comparison.systems[0].overall
    shown = [name for name in _SHOWN if name in measures.values]
    measured = {f"{name}@{k}": measures.at(name, k) for name in shown for k in measures.ks}
    measured = {name: value for name, value in measured.items() if value == value}
    encoder = _encoder(metadata)
    header = _header(title, metadata, measured, data, encoder)
    table = [f"| | {' | '.join(f'@{k}' for k in measures.ks)} |", f"|---|{'---:|' * len(measures.ks)}"]
    for name in shown:
        table.append(f"| {name} | {' | '.join(f'{100 * measures.at(name, k):.2f}' for k in measures.ks)} |")
    return "\n".join([
        # JSON is YAML, and safe for any text.
        "---", *(f"{key}: {json.dumps(value)}" for key, value in header.items()), "---",
        MARK, "", f"# {_inline(title)}", "",
        f"{_KINDS.get(metadata.model, metadata.model)}. It chooses the best of {metadata.nr_labels:,} labels.",
        "", "## Use", "", "```python", "import xmc_tf", "",
        f"model = xmc_tf.load({json.dumps(title)})", 'model.best(["a text"], k=5)', "```", "",
        "## Data", "", *_data(metadata, report, data), "", "## Measures", "",
        f"Measured on {comparison.documents:,} documents that were not used in training, in percent.", "",
        *table, "",
        "P: share of the first k labels that are right. R: share of a document's labels that are among them.",
        "nDCG: like P, but the first ranks count more. PSP: like P, but rare labels count more.", "",
        "## Settings", "", f"- trained with xmc_tf {metadata.versions.get('xmc_tf', '')}, seed {metadata.seed}",
        *(f"- {_inline(str(key))}: {_inline(str(value))}" for key, value in report.inputs.settings.items()),
        "- all parameters: `params.json`", "", "## Limits", "", *_limits(report, encoder), "",
    ])  # fmt: skip


def _header(
    title: str, metadata: ModelMetadata, measured: Mapping[str, float], data: str, encoder: str
) -> dict[str, Any]:
    """Return the metadata that the Hugging Face hub reads."""
    tfidf = metadata.content.get("tfidf_params")
    language = str((tfidf or {}).get("language", "")) if isinstance(tfidf, dict) else ""
    languages = [one for one in language.split(",") if len(one) == 2]
    metrics = [{"type": name, "name": name, "value": round(value, 4)} for name, value in measured.items()]
    task = {"type": "text-classification", "name": "Extreme multi-label classification"}
    return {
        "library_name": "xmc_tf", "pipeline_tag": "text-classification",
        "tags": ["xmc_tf", "extreme-multi-label-classification"],
        **({"language": languages} if languages else {}),
        **({"base_model": encoder} if encoder.count("/") == 1 and not Path(encoder).is_absolute() else {}),
        "model-index": [
            {"name": title, "results": [{"task": task, "dataset": {"type": "table", "name": data}, "metrics": metrics}]}
        ],
    }  # fmt: skip


def _data(metadata: ModelMetadata, report: Report, data: str) -> list[str]:
    documents = metadata.content.get("nr_documents")
    lines = [f"- trained on {documents:,} documents"] if isinstance(documents, int) else []
    lines.append(f"- measured on: {_inline(data)}")
    if columns := metadata.columns:
        lines.append(f"- text columns: {', '.join(map(_inline, columns.texts))}; label column: {columns.labels}")
    lines.append(f"- {report.comparison.labels_per_document:.1f} labels per document")
    return lines


def _limits(report: Report, encoder: str) -> list[str]:
    lines = ["- It finds only the labels that it was trained with. Other kinds of texts or languages get worse labels."]
    if (coverage := report.coverage) is not None and coverage.unseen_labels:
        lines.append(f"- {coverage.unseen_labels:,} labels of the measured documents had no training document.")
    lines.append("- Features contain words of the training texts. Do not publish a model of confidential texts.")
    if encoder:
        lines.append(f"- The encoder, {_inline(encoder)}, has its own licence, which its publisher states.")
    return lines


def _encoder(metadata: ModelMetadata) -> str:
    """Return the name of the fine-tuned encoder, or "" if there is none."""
    if metadata.model != "XTransformer":
        return ""
    chain = metadata.content.get("train_params", {}).get("matcher_params_chain", {})
    first = chain[0] if isinstance(chain, list) and chain else chain
    return str(first.get("model_shortcut") or first.get("init_model_dir") or "") if isinstance(first, dict) else ""


def _inline(text: str) -> str:
    """Return the text on one line, escaped for Markdown."""
    shown = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in shown)
