"""The settings for a server are read by the server's own definitions."""

import re
import shlex
import subprocess
from pathlib import Path

from google.protobuf import text_format
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow_serving.config import model_server_config_pb2

SETTINGS = Path(__file__).parents[2] / "launch" / "serving"


def test_the_list_of_models():
    models = text_format.Parse(
        (SETTINGS / "models.config").read_text(), model_server_config_pb2.ModelServerConfig()
    ).model_config_list.config
    assert [(one.name, one.base_path, one.model_platform) for one in models] == [("xmc", "/models/xmc", "tensorflow")]
    assert models[0].model_version_policy.latest.num_versions == 2


def test_batching_and_monitoring():
    # tensorflow-serving-api lacks these messages: the names of their fields are those of the server's source.
    known = {
        "max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads",
        "pad_variable_length_inputs",
    }  # fmt: skip
    lines = [line for line in (SETTINGS / "batching.config").read_text().splitlines() if line and line[0] != "#"]
    fields = dict(re.fullmatch(r"(\w+)(?:: | { value: )(\w+)(?: })?", line).groups() for line in lines)
    assert fields.keys() <= known
    assert 0 < int(fields["batch_timeout_micros"]) < 5000
    assert fields["pad_variable_length_inputs"] == "true"  # the signature `features` needs it
    monitoring = re.search(r'enable: true\s+path: "(.*)"', (SETTINGS / "monitoring.config").read_text())
    assert monitoring[1] in (SETTINGS / "prometheus.yml").read_text()


def test_the_session():
    session = text_format.Parse((SETTINGS / "session.config").read_text(), ConfigProto())
    assert session.intra_op_parallelism_threads == 1
    assert session.inter_op_parallelism_threads == -1  # all in the thread of the request
    assert session.experimental.executor_type == "SINGLE_THREADED_EXECUTOR"


def test_the_command_line_names_files_that_are_there(tmp_path):
    # A stand-in that tells its flags.
    server = tmp_path / "tensorflow_model_server"
    server.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    server.chmod(0o755)
    run = subprocess.run(
        [SETTINGS / "serve.sh", "--rest_api_port=9999"], capture_output=True, text=True, check=True, timeout=120,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "CONFIG": str(SETTINGS)},
    )  # fmt: skip
    flags = dict(re.fullmatch(r"--(\w+)(?:=(.*))?", line).groups() for line in run.stdout.splitlines())
    for name in (
        "model_config_file", "batching_parameters_file", "monitoring_config_file", "tensorflow_session_config_file",
    ):  # fmt: skip
        assert Path(flags[name]).is_file()
    session = text_format.Parse((SETTINGS / "session.config").read_text(), ConfigProto())
    assert int(flags["tensorflow_intra_op_parallelism"]) == session.intra_op_parallelism_threads
    assert int(flags["tensorflow_inter_op_parallelism"]) == session.inter_op_parallelism_threads
    assert flags["rest_api_port"] == "9999"  # the last one counts
    assert flags["enable_batching"] is None


def test_the_image_copies_files_that_are_there():
    lines = (SETTINGS.parents[1] / "docker" / "serving.Dockerfile").read_text().splitlines()
    copied = [shlex.split(line)[1:-1] for line in lines if line.startswith("COPY")]
    assert copied
    for name in (name for names in copied for name in names if not name.startswith("--")):
        assert (SETTINGS.parents[1] / name).is_file(), name
