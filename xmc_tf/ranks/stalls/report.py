from collections.abc import Sequence

from xmc_tf.ranks.stalls.state import State

_MOST_RANKS, _MOST_WAITS = 16, 3


def describe(states: Sequence[State], seconds: float) -> list[str]:
    """Return the report's lines: a headline, the rank that has waited longest, the ranks elsewhere, and the others."""
    first = max(states, key=lambda state: (round(state.longest), -state.rank))
    name = next(iter(first.waits), "")
    elsewhere = [state for state in states if name not in state.waits]
    others = [state for state in states if name in state.waits and state.rank != first.rank]
    head = f"stall: rank {first.rank} has waited {seconds:g} s for "
    if elsewhere:
        numbers = ", ".join(str(state.rank) for state in elsewhere[:_MOST_RANKS])
        more = ", …" if len(elsewhere) > _MOST_RANKS else ""
        head += f"rank {numbers}{more}, which {'are' if len(elsewhere) > 1 else 'is'} elsewhere"
    else:
        head += "an answer, and all ranks are in the same call: check the network between them"
    shown = [first, *elsewhere, *others][:_MOST_RANKS]
    lines = [head, *(f"  {_line(state)}" for state in shown)]
    if len(states) > len(shown):
        lines.append(f"  and {len(states) - len(shown)} more ranks")
    return lines


def _line(state: State) -> str:
    who = f"rank {state.rank} (pid {state.pid} on {state.host})"
    if state.silence:
        return f"{who} {state.silence}"
    waits = [f"{name} for {seconds:.0f} s" for name, seconds in state.waits.items()]
    if len(waits) > _MOST_WAITS:
        waits[_MOST_WAITS:] = [f"{len(waits) - _MOST_WAITS} more"]
    what = f"waits in {', '.join(waits)}" if waits else "is in no collective"
    return f"{who} {what}" + (f"; {state.place}" if state.place else "")
