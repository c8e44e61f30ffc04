from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.store.kinds import FolderKind
from xmc_tf.store.publishing import claimed_folder, folder_lock


@contextmanager
def claimed_by_all(
    communicator: Communicator, folder: Path, kind: FolderKind, *work_folders: Path, fix: str = "use another folder"
) -> Iterator[None]:
    """Lock a run's output folder and work folders on rank 0. All ranks must call this; an error is raised on all."""
    with ExitStack() as locks:

        def claim() -> None:
            if communicator.rank == 0:
                locks.enter_context(claimed_folder(folder, kind, fix))
                for work in work_folders:
                    locks.enter_context(folder_lock(work))

        run_on_all_ranks(communicator, claim)
        yield
