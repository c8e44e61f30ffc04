# Image for training on NVIDIA GPUs, one rank per GPU, with NCCL:
#
#   docker build -f docker/train-gpu.Dockerfile -t xmc_tf:gpu .
#   docker run --rm --gpus all --shm-size 8g -v $PWD:/data xmc_tf:gpu horovodrun -np 4 -H localhost:4 python -m xmc_tf.train …
#
# The first line of rank 0 names the engine: Horovod, if all ranks have GPUs; else mpi4py, which exchanges through main memory.
#
# TensorFlow 2.21 is built for CUDA 12.5 and cuDNN 9. The development image has the compiler and NCCL's headers.
FROM nvidia/cuda:12.6.3-cudnn-devel-ubuntu22.04
ENV DEBIAN_FRONTEND=noninteractive
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends software-properties-common \
    && add-apt-repository -y ppa:deadsnakes/ppa \
    && apt-get install -y --no-install-recommends g++ make python3.11 python3.11-venv python3.11-dev \
       openssh-client openssh-server \
    && rm -rf /var/lib/apt/lists/* && mkdir -p /run/sshd && useradd --create-home --uid 1000 mpiuser
COPY docker/ssh.sh /tmp/ssh.sh
RUN sh /tmp/ssh.sh mpiuser && rm /tmp/ssh.sh
WORKDIR /opt/xmc_tf
COPY setup.cfg pyproject.toml constraints.txt Makefile README.md LICENSE ./
COPY tools tools
# tools/install_horovod.py reads these; without them it compiles Horovod for CPUs.
ENV HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_CUDA_HOME=/usr/local/cuda HOROVOD_NCCL_LINK=SHARED
RUN mkdir -p xmc_tf/common && echo '__version__ = "0"' > xmc_tf/common/version.py \
    && ln -s /usr/local/cuda/lib64/stubs/libcuda.so /usr/local/cuda/lib64/stubs/libcuda.so.1 \
    && LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs:$LD_LIBRARY_PATH make setup && rm -rf xmc_tf
COPY xmc_tf xmc_tf
ENV PATH=/opt/xmc_tf/.venv/bin:$PATH
# mpiuser, by number: a host without this name can check that it is not root.
USER 1000
WORKDIR /data
CMD ["python", "-m", "xmc_tf.train", "--help"]
