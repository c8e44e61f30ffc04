"""A folder that all ranks of a run write together: rank 0 holds its lock for all."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xmc_tf.common.folders.kinds import FolderKind
from xmc_tf.common.folders.locks import folder_lock
from xmc_tf.common.folders.placing import claimed_folder
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks


@contextmanager
def claimed_by_all(
    communicator: Communicator, folder: Path, kind: FolderKind, *work_folders: Path, fix: str = "use another folder"
) -> Iterator[None]:
    """Claims a folder for a run, and the folders it works in; all ranks call it together.

    Args:
        communicator: the ranks.
        folder: where the run will put its result.
        kind: what kind of folder that will be.
        *work_folders: where it keeps unfinished work.
        fix: what to do when the folder cannot be used.

    Raises:
        InputError: on all ranks, where a folder is in use or holds files that would be replaced.
    """
    with ExitStack() as locks:

        def claim() -> None:
            if communicator.rank == 0:
                locks.enter_context(claimed_folder(folder, kind, fix))
                for work in work_folders:
                    locks.enter_context(folder_lock(work))

        run_on_all_ranks(communicator, claim)
        yield
