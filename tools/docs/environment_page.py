"""The reference of the environment variables that the package reads or sets."""

from tools.docs.markdown import code, plain, table

# Group -> variable -> meaning. tests/docs/test_site.py finds variables that the code reads and this list lacks.
VARIABLES: dict[str, dict[str, str]] = {
    "Options of xmc_tf": {
        "XMC_TF_CACHE": "folder of compiled kernels and dictionaries (default: $XDG_CACHE_HOME/xmc_tf or "
        "~/.cache/xmc_tf). It has code, so others must not be able to write there",
        "XMC_TF_CHATTER": "any value: show the start-up messages of TensorFlow, transformers and the hub's client, "
        "which are hidden by default",
        "XMC_TF_COMMUNICATOR": "how ranks communicate, in training steps too: solo, horovod or mpi (default: horovod "
        "under horovodrun over Gloo, and over MPI if all ranks have GPUs and Horovod has NCCL; otherwise mpi under "
        "horovodrun over MPI, mpiexec and srun)",
        "XMC_TF_CONNECT_TIMEOUT": "maximum seconds in which a rank must reach the others, after which it is ended; set "
        "by xmc-tf launch to four times --timeout",
        "XMC_TF_STALL_TIMEOUT": "maximum seconds without progress in one collective, after which the run is aborted; "
        "overrides --stall-timeout and the argument of CollectiveStrategy; 0: no watch, no report",
    },
    "Other programs' options that xmc_tf reads": {
        "HF_HUB_OFFLINE": "1: never contact the Hugging Face hub",
        "TRANSFORMERS_OFFLINE": "1: as HF_HUB_OFFLINE",
        "HOROVOD_GLOO_IFACE": "network interface of the stall watch and of the ranks' own connections; set by "
        "horovodrun --network-interfaces",
        "HOROVOD_IFACE": "the same, with lower priority",
        "OMP_NUM_THREADS": "number of threads of OpenMP; xmc-tf launch sets it for each rank, unless it is set",
        "NUMBA_NUM_THREADS": "number of threads of the compiled kernels; set by xmc-tf launch like OMP_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS": "number of threads within one operation of TensorFlow; set by xmc-tf launch likewise",
        "TF_NUM_INTEROP_THREADS": "number of operations of TensorFlow at a time; set by xmc-tf launch likewise",
        "ONEDNN_MAX_CPU_ISA": "instructions that matrix products may use; without AMX, fine-tuning is in float32",
        "DNNL_MAX_CPU_ISA": "the same, with lower priority",
        "TF_ENABLE_ONEDNN_OPTS": "0: matrix products without oneDNN; fine-tuning is then in float32",
        "NO_COLOR": "any value: no colours in the output of xmc-tf demo",
        "TERM": "dumb: no colours in the output of xmc-tf demo",
        "CUDA_VISIBLE_DEVICES": "the GPUs from which xmc-tf launch chooses; set for its ranks",
        "PYTHONPATH": "passed on to other hosts by xmc-tf launch",
        "XDG_CACHE_HOME": "parent of the default cache folder",
        "PATH": "begins with the folder of this Python for ranks of xmc-tf launch",
    },
    "Set by import xmc_tf, unless you set them": {
        "TF_CPP_MIN_LOG_LEVEL": "3: TensorFlow's C++ code logs fatal errors only",
    },
    "Set by launchers, and read to find a process's rank": {
        "HOROVOD_RANK": "rank, under horovodrun",
        "HOROVOD_SIZE": "number of ranks, under horovodrun",
        "HOROVOD_LOCAL_RANK": "rank within the host, under horovodrun",
        "HOROVOD_LOCAL_SIZE": "number of ranks of the host, under horovodrun",
        "HOROVOD_HOSTNAME": "name of the host, under horovodrun",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "identifies the run",
        "OMPI_COMM_WORLD_RANK": "rank, under Open MPI",
        "OMPI_COMM_WORLD_SIZE": "number of ranks, under Open MPI",
        "OMPI_COMM_WORLD_LOCAL_RANK": "rank within the host, under Open MPI",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "number of ranks of the host, under Open MPI",
        "OMPI_MCA_mpi_yield_when_idle": "set to 0 unless it is set: a rank that waits pauses for a short time instead",
        "PMI_RANK": "rank, under MPICH and Intel MPI",
        "PMI_SIZE": "number of ranks, under MPICH and Intel MPI",
        "PMIX_RANK": "rank, under PMIx",
        "PMIX_SIZE": "number of ranks, under PMIx",
        "SLURM_JOB_NODELIST": "hosts of xmc-tf launch, under Slurm",
        "SLURM_TASKS_PER_NODE": "numbers of ranks of these hosts",
        "OMPI_MCA_orte_tag_output": "with NCCL_SOCKET_IFNAME, shows that horovodrun has started the ranks over MPI",
        "OMPI_MCA_orte_default_hostfile": "hostfile of xmc-tf launch, under Kubernetes' MPI operator",
    },
    "Internal: set by xmc_tf for the processes it starts": {
        "XMC_TF_LAUNCH_NODE": "socket of the node process of this host",
        "XMC_TF_LAUNCH_SOCKET": "socket of the launcher",
        "HOROVOD_CONTROLLER": "gloo for ranks of xmc-tf launch over Gloo",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "30 s more than the stall timeout, unless it is set",
        "HOROVOD_CPU_OPERATIONS": "gloo for ranks of xmc-tf launch over Gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "address of the launcher, for ranks of xmc-tf launch over Gloo",
        "NCCL_SOCKET_IFNAME": "network interface of NCCL, for each rank of xmc-tf launch on several hosts",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "set by xmc-tf launch --stall-timeout",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "set by xmc-tf launch --stall-timeout",
        "PYTHONFAULTHANDLER": "1 for each rank of xmc-tf launch",
        "PYTHONUNBUFFERED": "1 for each rank of xmc-tf launch",
    },
}


def page() -> str:
    """Return the page of all environment variables."""
    parts = [
        "# Environment variables",
        "Reference: the variables that xmc_tf reads or sets. A test compares the list with the code.",
    ]
    for title, variables in VARIABLES.items():
        rows = ([code(name), plain(meaning)] for name, meaning in variables.items())
        parts += [f"## {title}", table(["variable", "meaning"], rows)]
    return "\n\n".join(parts) + "\n"
