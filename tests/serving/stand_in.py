"""A stand-in for tensorflow_model_server: its REST and its gRPC interface before an exported model in this process."""

import base64
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def answered(model, signature, inputs):
    """Return the result of a signature, or TensorFlow's own error message."""
    found = model.signatures[signature]
    return found(**{name: tf.constant(value) for name, value in inputs.items()})


@contextmanager
def rest(folder, name="xmc"):
    """Yield the address of a REST server."""
    model = tf.saved_model.load(str(folder))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != f"/v1/models/{name}:predict":
                return self.reply(404, {"error": f"Servable not found for request: Latest({self.path})"})
            inputs = {
                key: [base64.b64decode(one["b64"]) if isinstance(one, dict) else one for one in values]
                for key, values in question["inputs"].items()
            }
            try:
                outputs = answered(model, question.get("signature_name", "serving_default"), inputs)
            except (tf.errors.InvalidArgumentError, KeyError) as error:
                return self.reply(400, {"error": str(error)})
            return self.reply(200, {"outputs": {key: plain(value.numpy()) for key, value in outputs.items()}})

        def reply(self, status, content):
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def plain(array):
    """Return values in the form of JSON; valid UTF-8 stays text."""
    if array.dtype == object:
        return [plain(one) if isinstance(one, np.ndarray) else one.decode() for one in array]
    return array.tolist()


@contextmanager
def over_grpc(folder, name="xmc"):
    """Yield the address of a gRPC server."""
    model = tf.saved_model.load(str(folder))

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):  # noqa: N802  the protocol's name
            if request.model_spec.name != name:
                context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found: {request.model_spec.name}")
            inputs = {key: tf.make_ndarray(tensor) for key, tensor in request.inputs.items()}
            try:
                outputs = answered(model, request.model_spec.signature_name, inputs)
            except tf.errors.InvalidArgumentError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)
            reply = predict_pb2.PredictResponse()
            for key, value in outputs.items():
                reply.outputs[key].CopyFrom(tf.make_tensor_proto(value.numpy()))
            return reply

    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.max_receive_message_length", 1 << 30)])
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
