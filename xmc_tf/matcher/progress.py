"""Progress of fine-tuning: step counts, log lines, TensorBoard, and learning curves next to the checkpoints."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import tensorflow as tf
from scipy.sparse import spmatrix

from xmc_tf.collective.meters.traffic import bytes_sent
from xmc_tf.common.json_files import read_json
from xmc_tf.common.progress import duration
from xmc_tf.matcher.head import LabelHead
from xmc_tf.params import MatcherParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.store.files import atomic_file
from xmc_tf.tree import LabelTree

MOST_NODES = 10_000  # browsers are slow with more
_NAMES_OF_A_CLUSTER = 3
_FILE = "curves.json"
_LOSS = "loss"
_POINTS = 200  # maximum number of points of the loss
_TIMED_STEPS, _TIMED_S = 10, 10.0  # steps are timed until there are as many, or so long
WORTH_SAYING_S = 60.0

Points = list[tuple[int, float]]


def write_projector(
    logdir: str | Path, heads: Sequence[LabelHead], tree: LabelTree, Y: spmatrix, names: Sequence[str] | None = None,
    most: int = MOST_NODES,
) -> None:  # fmt: skip
    """Write the rows of all small levels for TensorBoard's projector. All ranks must call it; only rank 0 writes."""
    frequency = np.diff(Y.tocsc().indptr)
    config = []
    for level, head in enumerate(heads, start=1):
        if head.nr_nodes > most:
            break
        rows = head.communicator.allgather_array(head.local())
        if head.strategy.rank() != 0:
            continue
        folder = Path(logdir) / "projector"
        folder.mkdir(parents=True, exist_ok=True)
        vectors, what = f"level_{level}.vectors.tsv", f"level_{level}.nodes.tsv"
        with atomic_file(folder / vectors) as part:
            np.savetxt(part, rows[:, :-1], fmt="%.5g", delimiter="\t")
        lines = ["name\tdocuments", *_nodes(tree, level, frequency, names)]
        with atomic_file(folder / what) as part:
            part.write_text("\n".join(lines) + "\n", encoding="utf-8")
        config.append(
            f'embeddings {{\n  tensor_name: "level {level}"\n  tensor_path: "projector/{vectors}"\n'
            f'  metadata_path: "projector/{what}"\n}}\n'
        )
    if config:
        with atomic_file(Path(logdir) / "projector_config.pbtxt") as part:
            part.write_text("".join(config), encoding="utf-8")


def _nodes(tree: LabelTree, level: int, frequency: np.ndarray, names: Sequence[str] | None) -> list[str]:
    """Return a line for each node: its most frequent labels, and the sum of the document counts of its labels."""
    lines = []
    for node in range(tree.level_sizes[level]):
        labels = tree.labels_under(level, node)
        best = labels[np.argsort(-frequency[labels], kind="stable")][:_NAMES_OF_A_CLUSTER]
        name = " · ".join(" ".join(names[label].split()) if names is not None else str(label) for label in best)
        more = f" (+{len(labels) - len(best):,})" if len(labels) > len(best) else ""
        lines.append(f"{name}{more}\t{int(frequency[labels].sum())}")
    return lines


class StepStatistics(NamedTuple):
    """Statistics of several steps, over all ranks."""

    losses: list[float]  # of each step
    documents_per_second: float
    tokens_per_second: float  # without padding
    padding_share: float  # of the encoder's inputs
    wire_bytes: float  # bytes per step that the ranks sent to each other
    step_ms: float  # milliseconds per step

    def line(self, learning_rate: float, gradient_norm: float) -> str:
        """Return the statistics as text for the log."""
        loss = float(np.mean(self.losses)) if self.losses else float("nan")
        parts = [
            f"loss {loss:.5f}", f"lr {learning_rate:.2e}", f"gradient norm {gradient_norm:.3f}",
            f"{self.documents_per_second:,.0f} documents/s", f"{self.tokens_per_second:,.0f} tokens/s",
            f"padding {self.padding_share:.1%}",
        ]  # fmt: skip
        if self.wire_bytes:
            parts.append(f"{self.wire_bytes / 2**20:.2f} MiB sent per step, {self.step_ms:.1f} ms per step")
        return ", ".join(parts)


class StepMeter:
    """A meter that collects the counts of steps without waiting for the steps to finish."""

    def __init__(self, communicator: Communicator, documents_per_window: float = 1.0) -> None:
        self._communicator, self._documents_per_window = communicator, documents_per_window
        self._counts: list[tf.Tensor] = []
        self._since, self._sent = time.monotonic(), _sent()
        self._tokens = self._cells = 0.0

    def add(self, counts: tf.Tensor) -> None:
        """Add the counts of a batch on this rank: [loss, windows, tokens, tokens with padding]."""
        self._counts.append(counts)

    def take(self, batches_per_step: int) -> StepStatistics:
        """Return the statistics since the last call, summed over the ranks. All ranks must call it."""
        counts = np.array([one.numpy() for one in self._counts], np.float64).reshape(-1, 4)
        self._counts.clear()
        now, sent = time.monotonic(), _sent()
        own = np.concatenate([counts[:, 0], counts[:, 1:].sum(axis=0), [sent - self._sent]])
        sums = self._communicator.allreduce_array(own)
        losses, (windows, tokens, cells, wire) = sums[:-4], sums[-4:]
        documents = windows * self._documents_per_window
        seconds = max(now - self._since, 1e-9)
        self._since, self._sent = now, sent
        self._tokens, self._cells = self._tokens + tokens, self._cells + cells
        steps = losses.reshape(-1, batches_per_step).mean(axis=1) if len(losses) else losses
        return StepStatistics(
            [float(loss) for loss in steps], documents / seconds, tokens / seconds,
            1.0 - tokens / cells if cells else 0.0, wire / max(len(steps), 1), 1000 * seconds / max(len(steps), 1),
        )  # fmt: skip

    def restart_clock(self) -> None:
        """Exclude the time since the last ``take``, such as that of a validation, from the statistics."""
        self._since, self._sent = time.monotonic(), _sent()

    @property
    def padding_share(self) -> float:
        """Share of padding in the encoder's inputs since the start."""
        return 1.0 - self._tokens / self._cells if self._cells else 0.0


class TimeEstimate:
    """The time that the steps of a level, and ``later`` steps of other levels, will take. It is said once: when a few
    steps have been timed. The first step is not timed, because it builds the graph.
    """

    def __init__(self, later: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._later, self._clock, self._steps, self._since, self._said = later, clock, 0, 0.0, False

    def after_step(self, left: int, counts: tf.Tensor) -> str | None:
        """Return a sentence about the ``left`` steps if it is time for it and they take long.

        ``counts`` is what the step returned: a device may still compute it.
        """
        if self._said:
            return None
        counts.numpy()
        if not self._steps:
            self._since = self._clock()
        self._steps += 1
        timed, seconds = self._steps - 1, self._clock() - self._since
        if timed < _TIMED_STEPS and (not timed or seconds < _TIMED_S):
            return None
        self._said = True
        total = (left + self._later) * seconds / timed
        if total < WORTH_SAYING_S:
            return None
        later = f" and the {self._later:,} steps of later levels" if self._later else ""
        return f"about {duration(total)} for the other {left:,} steps{later}, at {seconds / timed:.2g} s each"


class LevelSummaries:
    """The TensorBoard curves of a level, under ``level_<number>/``. Only rank 0 writes them."""

    def __init__(self, writer: tf.summary.SummaryWriter, level: int) -> None:
        self._writer, self._prefix = writer, f"level_{level}"

    def write(self, step: int, course: StepStatistics, learning_rate: float, gradient_norm: float) -> None:
        """Write each loss at its own step, and the other statistics at ``step``, the last of these steps."""
        first = step - len(course.losses) + 1
        for offset, loss in enumerate(course.losses):
            self._scalar("loss", loss, first + offset)
        figures = {"learning_rate": learning_rate, "gradient_norm": gradient_norm, **course._asdict()}
        figures["wire_bytes_per_step"] = figures.pop("wire_bytes")
        for name, value in figures.items():
            if name != "losses":
                self._scalar(name, value, step)
        self._writer.flush()

    def write_validation(self, step: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._scalar(f"validation/{name}", value, step)
        self._writer.flush()

    def _scalar(self, name: str, value: float, step: int) -> None:
        with self._writer.as_default():
            tf.summary.scalar(f"{self._prefix}/{name}", value, step=step)


def write_texts(writer: tf.summary.SummaryWriter, tree: LabelTree, params: Sequence[MatcherParams]) -> None:
    """Write the sizes of the tree and the parameters of each level to TensorBoard as text."""
    sizes = [f"| {level} | {size:,} |" for level, size in enumerate(tree.level_sizes)]
    with writer.as_default():
        tf.summary.text("tree", "\n".join(["| level | nodes |", "| --- | --- |", *sizes]), step=0)
        for level, one in enumerate(params, start=1):
            rows = [f"| {name} | {value} |" for name, value in one.to_json().items() if name != "__meta__"]
            table = "\n".join(["| parameter | value |", "| --- | --- |", *rows])
            tf.summary.text(f"level_{level}/parameters", table, step=0)
    writer.flush()


def _sent() -> float:
    return float(sum(bytes_sent().values()))


class LevelCurves:
    """The learning curves of a level since its first step, including the steps before an interruption."""

    def __init__(self, curves: Mapping[str, Points] | None = None) -> None:
        self.by_name: dict[str, Points] = dict(curves or {})

    @classmethod
    def load(cls, folder: Path, steps: int) -> Self:
        """Load the curves up to the checkpoint's step; the result is empty if the file is missing."""
        found = read_json(folder / _FILE, foreign=True) if (folder / _FILE).exists() else {}
        return cls({name: [(at, y) for at, y in points if at <= steps] for name, points in found.items()})

    def save(self, folder: Path) -> None:
        with atomic_file(folder / _FILE) as part:
            part.write_text(json.dumps(self.by_name), encoding="utf-8")

    def add_losses(self, step: int, losses: Sequence[float], total: int) -> None:
        """Add the losses of the latest steps, of which ``step`` is the last, as means over neighboring steps."""
        if not losses:
            return
        first, points = step - len(losses), self.by_name.setdefault(_LOSS, [])
        parts = min(len(losses), math.ceil(len(losses) / max(1, math.ceil(total / _POINTS))))
        for part in np.array_split(np.asarray(losses), parts):
            first += len(part)
            points.append((first, round(float(part.mean()), 6)))

    def add_measures(self, step: int, measures: Mapping[str, float]) -> None:
        """Add metrics on the validation documents, in percent."""
        for name, value in measures.items():
            self.by_name.setdefault(name, []).append((step, round(value, 4)))


def named_curves(levels: Sequence[LevelCurves]) -> dict[str, Points]:
    """Return the curves of all levels by titles such as "training loss, level 2"."""
    out: dict[str, Points] = {}
    for number, level in enumerate(levels, 1):
        for name, points in level.by_name.items():
            title = "training loss" if name == _LOSS else "validation precision in %"
            out[f"{title}, level {number}" + ("" if name == _LOSS else f": {name}")] = points
    return out
