# A stock TensorFlow Serving with the settings of launch/serving. Mount the model at /models/xmc, or build an image FROM this
# one that copies the folder of versions there.
#
# The minor version is that of the TensorFlow that exports models: a server of the same or a later version has all
# operations.
FROM tensorflow/serving:2.21.0

COPY launch/serving/models.config launch/serving/batching.config launch/serving/monitoring.config /config/
COPY launch/serving/session.config /config/
COPY --chmod=755 launch/serving/serve.sh /usr/bin/serve
COPY --chmod=755 launch/serving/healthy.sh /usr/bin/healthy

USER 65534:65534
EXPOSE 8500 8501
ENTRYPOINT ["/usr/bin/serve"]
