from dataclasses import dataclass


@dataclass(frozen=True)
class StageEstimate:
    """The estimate of one stage of a training."""

    name: str
    memory: float  # bytes per rank
    on_device: bool  # the memory is the GPU's
    sent: float  # bytes that each rank sends
    seconds: float
    detail: str
    wire_share: float = 0.0  # share of the time that ranks wait for the network
    disk: float = 0.0  # bytes that all ranks write to the model's disk


def size(number: float) -> str:
    """Return bytes in a readable unit."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= scale:
            return f"{number / scale:,.1f} {unit}"
    return f"{number / 1e3:,.0f} KB"


def duration(seconds: float) -> str:
    """Return seconds in a readable unit."""
    if seconds >= 48 * 3600:
        return f"{seconds / 86400:,.1f} days"
    if seconds >= 5400:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:,.0f} min" if seconds >= 120 else f"{max(seconds, 1):,.0f} s"
