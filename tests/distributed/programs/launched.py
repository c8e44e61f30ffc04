"""A rank under the launcher that behaves as asked: place|raise|exit|wait|deaf|orphan|both."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

how = sys.argv[1]
rank = int(os.environ.get("HOROVOD_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")

if how == "place":
    threads = {os.environ[name] for name in names}
    print(json.dumps({"rank": rank, "cores": sorted(os.sched_getaffinity(0)), "threads": sorted(threads)}))
    print("to the errors", sys.argv[2:], file=sys.stderr)
    os.write(1, b"no end, \xff no UTF-8")
elif how == "raise" and rank == 1:
    print("\n".join(f"line {number}" for number in range(100)))
    raise RuntimeError("rank 1 has had enough")
elif how == "exit" and rank == 1:
    sys.exit(7)
elif how == "both":
    # The rank that reports its error first is the cause, even if it ends later. Ranks may start far apart.
    complained = [Path(sys.argv[2], str(number)) for number in range(2)]
    while rank == 0 and not complained[1].exists():
        time.sleep(0.05)
    time.sleep(0.4 * (rank == 0))
    print(f"rank {rank} complains", file=sys.stderr)
    complained[rank].touch()
    while rank == 1 and not complained[0].exists():
        time.sleep(0.05)
    time.sleep(0.2 * (rank == 1))
    os._exit(5 + rank)
else:
    if how == "deaf":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "orphan":
        subprocess.Popen(["sleep", "600"], start_new_session=False)
    print(f"pid {os.getpid()} waits")
    time.sleep(600 if how != "orphan" else 3)
