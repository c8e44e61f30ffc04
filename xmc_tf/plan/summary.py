"""The estimate of a whole training: its stages, what does not fit, and fixes."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from xmc_tf.metrics.table import format_table
from xmc_tf.plan.fine_tuning import FineTuningOptions, embeddings, fine_tuning
from xmc_tf.plan.rankers import features, rankers, tree
from xmc_tf.plan.sizes import DataSizes, Device, EncoderSize, Machines
from xmc_tf.plan.stage import StageEstimate, duration, size

_SLOW_WIRE = 0.3
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
        """Return all figures, in bytes and seconds."""
        return {**dataclasses.asdict(self), "seconds": self.seconds, "disk": self.disk}

    def text(self) -> str:
        """Return the table, warnings and assumptions."""
        rows = [
            [
                stage.name,
                f"{size(stage.memory)} {'GPU' if stage.on_device else 'host'}",
                size(stage.sent) if stage.sent else "–",
                size(stage.disk) if stage.disk else "–",
                duration(stage.seconds),
                stage.detail,
            ]
            for stage in self.stages
        ]
        most = max(stage.sent for stage in self.stages)
        sent = size(sum(stage.sent for stage in self.stages)) if most else "–"
        rows.append(["total", "", sent, size(self.disk) if self.disk else "–", duration(self.seconds), ""])
        table = format_table(["stage", "memory per rank", "sent per rank", "disk", "time"], [row[:5] for row in rows])
        lines = [
            line if number < 2 or not rows[number - 2][5] else f"{line}  {rows[number - 2][5]}"
            for number, line in enumerate(table.splitlines())
        ]
        lines += ["", *(f"warning: {warning}" for warning in self.warnings)]
        return "\n".join([*lines, *(f"assumed: {one}" for one in self.assumptions)])


def estimate(
    data: DataSizes,
    encoder: EncoderSize | None,
    machines: Machines,
    device: Device,
    options: FineTuningOptions,
    *,
    trees: int = 1,
) -> Estimate:
    """Estimate a training of linear rankers, or of an XR-Transformer if there is an encoder."""
    stages = [features(data, machines), tree(data, machines, options.max_leaf_size)]
    if encoder is not None:
        stages.append(fine_tuning(data, encoder, machines, device, options))
        stages.append(embeddings(data, encoder, machines, device, options))
    width = encoder.width if encoder else 0
    stages.append(
        rankers(
            data, width, machines, trees=trees, nr_splits=options.nr_splits, max_leaf_size=options.max_leaf_size
        )
    )  # fmt: skip
    return Estimate(tuple(stages), tuple(_warnings(stages, machines, device)), tuple(_assumptions(encoder, options)))


def _warnings(stages: list[StageEstimate], machines: Machines, device: Device) -> list[str]:
    found = []
    for stage in stages:
        limit = device.memory if stage.on_device else machines.memory / machines.ranks_per_host
        if stage.memory > _USABLE * limit:
            fix = "--batch-size, --tokens or --half" if stage.on_device else "more hosts, or fewer ranks per host"
            where = "the GPU" if stage.on_device else "a rank's share of the host"
            found.append(f"{stage.name} needs {size(stage.memory)} per rank, {where} has {size(limit)} (fix: {fix})")
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
