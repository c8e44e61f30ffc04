"""The summary that a training on a table prints: data, settings and their reasons, results, next commands."""

import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.sparse import csr_matrix

from xmc_tf.common.process.invocation import as_called
from xmc_tf.common.process.terminal import printable
from xmc_tf.metrics import Measures, format_table, percent
from xmc_tf.metrics.category_paths import level_sentence
from xmc_tf.metrics.single_label import SingleLabelMeasures
from xmc_tf.tables.columns import TrainedColumns

_WIDTH, _LEFT = 100, 11
_EXAMPLES, _EXAMPLE_LABELS = 3, 5
_SHOWN = ("P", "R", "nDCG", "PSP")


@dataclass(frozen=True)
class Results:
    """The measures of the test documents."""

    overall: Measures
    names: Sequence[str]
    single: SingleLabelMeasures | None = None
    baseline: float = 0.0  # P@1 of always predicting the most frequent label
    unseen: float = 0.0  # share of the test documents' labels that no other document has
    levels: Sequence[float] = ()  # of category paths: share of documents whose best label is right, by level

    def metrics(self) -> dict[str, float]:
        """Return all measures by name, for the record of the run."""
        found = {
            f"{name}@{k}": self.overall.at(name, k)
            for name in self.overall.values
            for k in self.overall.ks
            if self.overall.at(name, k) == self.overall.at(name, k)
        }
        if self.single is not None:
            found |= self.single.to_json()
        return found | {f"level {level}": share for level, share in enumerate(self.levels, 1)}

    def lines(self) -> list[str]:
        out = [f"measured on {self.overall.documents:,} test documents, which were not used in training", ""]
        levels = ["", *wrapped([level_sentence(self.levels)])] if self.levels else []
        if self.single is not None:
            return [*out, *self.single.lines(self.names, self.baseline), *levels]
        ks = [f"@{k}" for k in self.overall.ks]
        rows = [[name, *map(percent, self.overall.values[name])] for name in _SHOWN if name in self.overall.values]
        out += format_table(["%", *ks], rows, indent="  ").splitlines()
        out += ["", "P: share of the first k labels that are right; R: share of a document's labels that they hold;"]
        out += ["nDCG: both, the first ranks count most; PSP: P with rare labels weighing more"]
        out.append(f"always predicting the most frequent label: P@1 {percent(self.baseline)}")
        if self.unseen:
            out.append(f"{percent(self.unseen)} % of the test documents' labels occur in no other document")
        return [*out, *levels]


def summary_text(parts: dict[str, Sequence[str]]) -> str:
    """Return the summary of a training for a terminal: the lines of each part, with its title."""
    out = []
    for title, (first, *others) in ((title, lines) for title, lines in parts.items() if lines):
        rest = [f"{'':<{_LEFT}}{line}".rstrip() for line in others]
        out.append("\n".join([f"{title:<{_LEFT}}{first}".rstrip(), *rest]))
    return "\n" + "\n\n".join(out)


def next_commands(columns: TrainedColumns | None, database: Path, model: Path) -> list[str]:
    """Return lines with commands to use a new model with; a table of features has no columns."""
    model_flag = f"-m {shlex.quote(str(model))}"
    commands = {
        "label another table": f"predict NEW.csv {model_flag} -o labels.csv",
        "measure it on one": f"evaluate NEW.csv {model_flag}",
        "label one text": f'predict {model_flag} -q "a text"',
        "compare all runs": f"runs {shlex.quote(str(database))}",
        "serve it": f"export {model_flag} -o served/1",
    }
    if columns is None:
        commands = {"compare all runs": commands["compare all runs"]}
    called = {about: as_called(f"python -m xmc_tf.{command}") for about, command in commands.items()}
    # As a module of its own, predict is only for linear models.
    return [
        line
        for about, command in called.items()
        for line in (f"{about}:", f"  {command.replace('python -m xmc_tf.predict', 'python -m xmc_tf predict')}")
    ]


def examples_of(texts: Sequence[str], predicted: csr_matrix, names: Sequence[str]) -> list[str]:
    """Return lines with the first documents and their best labels."""
    lines = []
    for text, a, b in zip(texts, predicted.indptr, predicted.indptr[1:], strict=False):
        best = zip(predicted.indices[a:b][:_EXAMPLE_LABELS], predicted.data[a:b], strict=False)
        labels = [f"{_shortened(names[at].partition(chr(9))[0])} {score:.2f}" for at, score in best]
        start = textwrap.shorten(" ".join(text.split()), _WIDTH - _LEFT - 2, placeholder="…")
        lines += [f"“{printable(start)}”", f"  {printable(', '.join(labels)) or '(no label)'}"]
        if len(lines) == 2 * _EXAMPLES:
            break
    return lines


def wrapped(sentences: Sequence[str]) -> list[str]:
    """Return sentences as lines of the summary."""
    return [
        line
        for sentence in sentences
        for line in textwrap.wrap(
            sentence, _WIDTH - _LEFT, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    ]


def _shortened(name: str, most: int = 32) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
