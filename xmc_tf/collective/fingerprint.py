"""The fingerprint of a SavedModel, without a random number: exports of equal models have equal files."""

from pathlib import Path

from tensorflow.core.protobuf.fingerprint_pb2 import FingerprintDef
from tensorflow.python.saved_model import fingerprinting_utils


def write_fingerprint(folder: Path) -> None:
    """Write ``fingerprint.pb``, after the last change of a SavedModel.

    Args:
        folder: folder of the SavedModel.
    """
    fingerprinting_utils.write_fingerprint(str(folder))
    path = folder / "fingerprint.pb"
    content = FingerprintDef.FromString(path.read_bytes())
    if "uuid" in FingerprintDef.DESCRIPTOR.fields_by_name:  # each call writes another one
        content.ClearField("uuid")
    path.write_bytes(content.SerializeToString(deterministic=True))
