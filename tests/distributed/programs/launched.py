"""A rank under the launcher that behaves as asked: place|raise|exit|wait|deaf."""

import json
import os
import subprocess
import sys
import time

how = sys.argv[1]
rank = int(os.environ.get("HOROVOD_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")

if how == "place":
    threads = {os.environ[name] for name in names}
    left = subprocess.Popen(["sleep", "600"])
    cores = sorted(os.sched_getaffinity(0))
    print(json.dumps({"rank": rank, "cores": cores, "threads": sorted(threads), "left": left.pid}))
    print("to the errors", sys.argv[2:], file=sys.stderr)
    os.write(1, b"no end, \xff no UTF-8")
elif how == "raise" and rank == 1:
    print("\n".join(f"line {number}" for number in range(100)))
    raise RuntimeError("rank 1 has had enough")
elif how == "exit" and rank == 1:
    sys.exit(7)
else:
    if how == "deaf":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(f"pid {os.getpid()} waits")
    time.sleep(600)
