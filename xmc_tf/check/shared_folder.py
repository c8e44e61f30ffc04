import secrets
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.this_host import appears

PATIENCE_S = 5.0  # network file systems show new files with a delay


def ranks_without(world: Communicator, folder: Path) -> list[int]:
    """Return the ranks that do not see rank 0's file in ``folder`` or cannot write there; collective."""
    token, problem = world.broadcast(secrets.token_hex(16)), ""
    mark = folder / f".xmc_tf-check-{token}"
    if world.rank == 0:
        try:
            mark.write_text(token)
        except OSError as error:
            problem = f"{error.strerror}: {folder}"
    if problem := world.broadcast(problem):
        raise InputError("rank 0 cannot write to the shared folder", received=problem)
    try:
        seen = world.rank == 0 or (appears(mark, token, PATIENCE_S) and _writable(mark, world.rank))
        return [rank for rank, fine in enumerate(world.allgather(seen)) if not fine]
    finally:
        if world.rank == 0:
            mark.unlink(missing_ok=True)


def _writable(mark: Path, rank: int) -> bool:
    own = mark.with_name(f"{mark.name}-{rank}")
    try:
        own.write_text("")
        own.unlink()
    except OSError:
        return False
    return True
