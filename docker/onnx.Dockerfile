# Image of a server of models without TensorFlow, on any processor that ONNX Runtime supports:
#
#   docker build -f docker/onnx.Dockerfile -t xmc_tf:onnx .
#   docker run --rm -p 8501:8501 -v $PWD/model:/model:ro -v kernels:/kernels xmc_tf:onnx
#
# Kernels are compiled for the host's processor at the first start, which takes half a minute; the volume keeps them.
FROM python:3.13-slim-bookworm
WORKDIR /opt/xmc_tf
COPY setup.cfg setup.py pyproject.toml constraints.txt README.md LICENSE ./
COPY xmc_tf xmc_tf
RUN pip install --no-cache-dir -c constraints.txt '.[onnx]' \
    && useradd --create-home --uid 1000 server && mkdir /kernels && chown server /kernels
ENV XMC_TF_CACHE=/kernels
VOLUME /kernels
USER 1000
WORKDIR /model
EXPOSE 8501
ENTRYPOINT ["xmc-tf", "serve", "-m", "/model", "--host", "0.0.0.0"]
