"""The estimate for a whole training run, and its comparison with this machine."""

import dataclasses
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmc_tf.common.progress import duration
from xmc_tf.metrics.table import format_table
from xmc_tf.plan.formulas import (
    DataSizes,
    Device,
    EncoderSize,
    FineTuningOptions,
    Machines,
    StageEstimate,
    embeddings,
    features,
    fine_tuning,
    frozen_layers,
    rankers,
    size,
    tree,
)

_LOG = logging.getLogger(__name__)
_WORTH_SAYING_S = 120.0
_SLOW_WIRE = 0.3  # share of the time
_USABLE = 0.9  # share of the memory; the framework and fragments take the rest


@dataclass(frozen=True)
class Estimate:
    stages: tuple[StageEstimate, ...]
    warnings: tuple[str, ...]  # each with a fix
    assumptions: tuple[str, ...]

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    @property
    def disk(self) -> float:
        return sum(stage.disk for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        """Return all figures as a dictionary, in bytes and seconds."""
        return {**dataclasses.asdict(self), "seconds": self.seconds, "disk": self.disk}

    def text(self) -> str:
        """Return the estimate as a table, followed by warnings and assumptions."""
        rows = [
            [
                stage.name, f"{size(stage.memory)} {'GPU' if stage.on_device else 'host'}",
                *(size(number) if number else "–" for number in (stage.sent, stage.disk)), duration(stage.seconds),
            ]
            for stage in self.stages
        ]  # fmt: skip
        sent = sum(stage.sent for stage in self.stages)
        total = [size(number) if number else "–" for number in (sent, self.disk)]
        rows.append(["total", "", *total, duration(self.seconds)])
        lines = format_table(["stage", "memory per rank", "sent per rank", "disk", "time"], rows).splitlines()
        for number, stage in enumerate(self.stages, 2):  # below the header and its line
            lines[number] += f"  {stage.detail}"
        lines += ["", *(f"warning: {warning}" for warning in self.warnings)]
        return "\n".join([*lines, *(f"assumed: {one}" for one in self.assumptions)])


def estimate(
    data: DataSizes, encoder: EncoderSize | None, machines: Machines, device: Device, options: FineTuningOptions, *,
    trees: int = 1,
) -> Estimate:  # fmt: skip
    """Estimate a training run of linear rankers, or of an XR-Transformer if ``encoder`` is given."""
    stages = [features(data, machines), tree(data, machines, options.max_leaf_size)]
    if encoder is not None:
        if encoder.frozen is not None:
            stages.append(frozen_layers(data, encoder, machines, device, options))
        stages.append(fine_tuning(data, encoder, machines, device, options))
        stages.append(embeddings(data, encoder, machines, device, options))
    stages.append(rankers(
        data, encoder.dim if encoder else 0, machines, trees=trees, nr_splits=options.nr_splits,
        max_leaf_size=options.max_leaf_size,
    ))  # fmt: skip
    return Estimate(tuple(stages), tuple(_warnings(stages, machines, device)), tuple(_assumptions(encoder, options)))


def _warnings(stages: list[StageEstimate], machines: Machines, device: Device) -> list[str]:
    found = []
    for stage in stages:
        limit = device.memory if stage.on_device else machines.memory / machines.ranks_per_host
        if stage.memory > _USABLE * limit:
            fix = "--batch-size, --tokens or --half" if stage.on_device else "more hosts, or fewer ranks per host"
            where = "the GPU" if stage.on_device else "a rank's share of the host"
            found.append(f"{stage.name} needs {size(stage.memory)} per rank; {where} has {size(limit)} (fix: {fix})")
        if stage.wire_share > _SLOW_WIRE:
            found.append(
                f"{stage.name} waits {100 * stage.wire_share:.0f} % of its time for the network (fix: a larger "
                "--batch-size, --gradient-accumulation-steps in the training, a faster --network, or fewer hosts)"
            )
    return found


def _assumptions(encoder: EncoderSize | None, options: FineTuningOptions) -> list[str]:
    found = ["label frequencies as in library catalogues; rankers may take between a third and twice this time"]
    if encoder is not None and options.docs_per_second is None:
        found.append(
            "the device's usual speed; measure yours with `xmc-tf train … --max-steps 20` and pass its documents per "
            "second and rank as --docs-per-second"
        )
    return found


def warn_of_needs(
    data: DataSizes, folder: Path, threads: int, *, trees: int, shape: FineTuningOptions, streamed: bool | None = None
) -> None:
    """Log the estimated needs of a linear training run if it takes long. Warn if memory or disk space is too small."""
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
            "the stage %s needs about %s of memory, but only %s is available, so training may be killed; fix: %s",
            most.name, size(most.memory), size(memory), fix,
        )  # fmt: skip
    free = shutil.disk_usage(next(place for place in folder.absolute().parents if place.exists())).free
    if disk > free:
        _LOG.warning(
            "the model needs about %s on the disk, but only %s is free at %s; fix: free space, or use another folder",
            size(disk), size(free), folder.absolute().parent,
        )  # fmt: skip


def available_memory() -> float | None:
    """Return the bytes of memory that this process can still use (machine and control group), or None if unknown."""
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
