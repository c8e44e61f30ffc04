"""The estimate of one stage of a training."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StageEstimate:
    """The needs of a stage.

    Args:
        name: name of the stage.
        memory: bytes per rank.
        on_device: the memory is the GPU's, not the host's.
        sent: bytes that each rank sends to other ranks.
        seconds: duration.
        detail: what the estimate consists of.
        wire_share: share of the duration in which ranks wait for the network.
        disk: bytes of files that the stage writes to the model's disk, all ranks together.
    """

    name: str
    memory: float
    on_device: bool
    sent: float
    seconds: float
    detail: str
    wire_share: float = 0.0
    disk: float = 0.0


def size(number: float) -> str:
    """Return bytes in a unit that people read."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= scale:
            return f"{number / scale:,.1f} {unit}"
    return f"{number / 1e3:,.0f} KB"


def duration(seconds: float) -> str:
    """Return seconds in a unit that people read."""
    if seconds >= 48 * 3600:
        return f"{seconds / 86400:,.1f} days"
    if seconds >= 5400:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:,.0f} min" if seconds >= 120 else f"{max(seconds, 1):,.0f} s"
