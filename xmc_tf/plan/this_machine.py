import logging
import shutil
from pathlib import Path

from xmc_tf.plan.fine_tuning import FineTuningOptions
from xmc_tf.plan.rankers import rankers, tree
from xmc_tf.plan.sizes import DataSizes, Machines
from xmc_tf.plan.stage import duration, size

_LOG = logging.getLogger(__name__)
_WORTH_SAYING_S = 120.0


def warn_of_needs(
    data: DataSizes, folder: Path, threads: int, *, trees: int, shape: FineTuningOptions, streamed: bool | None = None
) -> None:
    """Log what a training of linear models in this process needs, if it is long; warn if the machine has less."""
    machine = Machines(1, 1, threads)
    stages = [
        tree(data, machine, shape.max_leaf_size),
        rankers(
            data, 0, machine, trees=trees, nr_splits=shape.nr_splits, max_leaf_size=shape.max_leaf_size,
            streamed=streamed,
        ),
    ]  # fmt: skip
    most = max(stages, key=lambda stage: stage.memory)
    disk, seconds = sum(stage.disk for stage in stages), sum(stage.seconds for stage in stages)
    if seconds > _WORTH_SAYING_S:
        _LOG.info(
            "estimate: at most %s of memory, %s on the disk, %s", size(most.memory), size(disk), duration(seconds)
        )  # fmt: skip
    fix = "--layout search, a higher --threshold, or -z; see docs/how-to/memory.md"
    if (memory := available_memory()) is not None and most.memory > memory:
        _LOG.warning(
            "the stage %s needs about %s of memory, but only %s are available, so it may be killed; fix: %s",
            most.name, size(most.memory), size(memory), fix,
        )  # fmt: skip
    free = shutil.disk_usage(next(place for place in folder.absolute().parents if place.exists())).free
    if disk > free:
        _LOG.warning(
            "the model needs about %s on the disk, but only %s are free at %s; fix: free space, or use another folder",
            size(disk), size(free), folder.absolute().parent,
        )  # fmt: skip


def available_memory() -> float | None:
    """Return the bytes that this process can still use, of the machine or its control group; None if unknown."""
    found = []
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        found.append(1024.0 * int(lines["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):
        return None
    limit, used = (_number(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        found.append(max(limit - used, 0.0))
    return min(found)


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
