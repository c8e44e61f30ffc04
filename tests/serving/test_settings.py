"""The settings for a server are read by the server's own definitions."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow_serving.config import model_server_config_pb2

SETTINGS = Path(__file__).parents[2] / "launch" / "serving"


def definitions():
    """Of batching and monitoring, which tensorflow-serving-api leaves out: as in the server's source."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="settings.proto", package="settings", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, (field, kind, repeated) in enumerate(fields, 1):
            one = made.field.add(name=field, number=number)
            one.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if isinstance(kind, str):
                one.type, one.type_name = kinds.TYPE_MESSAGE, kind
            else:
                one.type = kind

    number, text = ".google.protobuf.Int64Value", ".google.protobuf.StringValue"
    message(
        "BatchingParameters",
        ("max_batch_size", number, False), ("batch_timeout_micros", number, False),
        ("max_enqueued_batches", number, False), ("num_batch_threads", number, False),
        ("thread_pool_name", text, False), ("allowed_batch_sizes", kinds.TYPE_INT64, True),
        ("pad_variable_length_inputs", kinds.TYPE_BOOL, False),
    )  # fmt: skip
    message("PrometheusConfig", ("enable", kinds.TYPE_BOOL, False), ("path", kinds.TYPE_STRING, False))
    message("MonitoringConfig", ("prometheus_config", ".settings.PrometheusConfig", False))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"settings.{name}"))()


def test_the_list_of_models():
    models = text_format.Parse(
        (SETTINGS / "models.config").read_text(), model_server_config_pb2.ModelServerConfig()
    ).model_config_list.config
    assert [(one.name, one.base_path, one.model_platform) for one in models] == [("xmc", "/models/xmc", "tensorflow")]
    assert models[0].model_version_policy.latest.num_versions == 2


def test_batching_and_monitoring():
    make = definitions()
    batching = text_format.Parse((SETTINGS / "batching.config").read_text(), make("BatchingParameters"))
    assert batching.max_batch_size.value == 64
    assert 0 < batching.batch_timeout_micros.value < 5000
    assert batching.pad_variable_length_inputs  # the signature `features` needs it
    monitoring = text_format.Parse((SETTINGS / "monitoring.config").read_text(), make("MonitoringConfig"))
    assert monitoring.prometheus_config.enable
    assert monitoring.prometheus_config.path in (SETTINGS / "prometheus.yml").read_text()
    with pytest.raises(text_format.ParseError):
        text_format.Parse("max_batch_sise { value: 64 }", make("BatchingParameters"))


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
    for name in (name for names in copied for name in names if not name.startswith("--")):
        assert (SETTINGS.parents[1] / name).is_file(), name
