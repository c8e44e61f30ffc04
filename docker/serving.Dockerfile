# A stock TensorFlow Serving with the settings of launch/serving. The model is mounted at /models/xmc, or baked in by
# an image that begins FROM this one and copies the folder of versions there.
#
# The minor version follows the TensorFlow that models are exported with: a server of the same or a later one has all
# operations that they use.
FROM tensorflow/serving:2.18.0

COPY launch/serving/models.config launch/serving/batching.config launch/serving/monitoring.config /config/
COPY launch/serving/session.config /config/
COPY --chmod=755 launch/serving/serve.sh /usr/bin/serve
COPY --chmod=755 launch/serving/healthy.sh /usr/bin/healthy

USER 65534:65534
EXPOSE 8500 8501
ENTRYPOINT ["/usr/bin/serve"]
