"""Files of ``torch.save``: read without PyTorch, and without executing anything that is in them."""

import base64
import io
import os
import pickle
import struct
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.torch_writer import Claim, Obj, Writer, torch_zip
from tests.refusals import refused, tried
from xmc_tf.common.errors import InputError
from xmc_tf.data.torch_file import read_torch

# Written by PyTorch 2.13: a state dictionary with a view, a transposed view, bfloat16, a scalar, booleans, a Parameter.
_ZIP = (
    "eNqtlktz21QUx69sR3YUAqQE6vIolELrlNaxZUm2gdSpKOKhlsZiYDzZeBRbjT0olo990xZmOmSGSYBdy7DoqsOGGb4Aw47pwCdgwWMBqy46"
    "rOAjcB+yLclJ3LRcW7Zjnd///HV0z3FWzHgCoVQKjS0JpdG1xaaN7Wz3I9fQ59HqLmsr1mh4rus0cNvr9KVLvabTc5rn2w0sAVqwQMjUBCJm"
    "Q6yBvV6jla1v4rbbl+o9Z22z7Tbr2On0vV79iixBPJOpJUlwn0Ta6w4kOCIZrmfj9/mXEkwxwRyItTh5b3Q3IWmKGFJVE5kxM74D02bcFHZA"
    "+rJFDcxgeMSCWQatwaMtkqSVaHGRPDzWYvDjVVMgcGwH5sgHonGIw09gmLfgSRbcgKc47LvSma28NjR2mIXJkCaaMQxHmKFteNoUtuEZrvcs"
    "hucsOMoCm/B8SO+C11kfar3AQgpwjGgJGF4kWgsLXOM4hpcseJkFOHAi7Mnz3KHGSRaiQIb7WfD9nKJ+XuFapzGcsSDLAi/D4qA4LZGXJVcl"
    "pYxvQ54iMkcKGBQLVIZcBS1UTxWKPFeJ5hJoPcukrORmvMrh1zC8bsESC+7C2T22RNfu2RsOdnoSVEL6Gixz/XP+tejU2Btc+zyGNy0wvmB/"
    "vPU5vG3BO5vX4d3aNCHrRM+mexlMdv5CjW5xuHgd3mNb7orT65MNDJdMod/vr2VXzGSqfO3i7d9jCNFjZc82mUOnSJtkL3u9DRvXfR1DP7Fr"
    "t4yvPM30wz9/fkavjx57Z5pHSzST3x11222vdzacDjb08n0m22VpCjVQuQp/k6tEsX0NzKApYmDtY+x4tM0NXUCrbhtj16Ea20t3j4gkStxX"
    "I4US/lRZzBn64NutCnlZJk9ybJHjm2WqePjGvZtpciI9QVEeKOYNPXvAUvyv+eWD579TQXdormR19S5JgBITcomDXAVDj5FcSf8M1ej+ds9L"
    "saj9NfSBhmLoZx9867AlsMw/Hv+pNnn/pMjDz6waegL59ae1r1CV+F/qvwfyrz28f37vt1j+G1Xx18n5p9E5kn/Y6EsPZ6Ag0cy/3F7/YHL9"
    "0qhEBwC79L7Ta5MJ8IlNf3fr7aahKw9kJKeVyqpcVjWlWFLlnKaqxVJOLpS0QklRtIKSL+bKpUJRpi4//fb7nzPER4a5FGLsbvg+g8NSGnM+"
    "+j8iygVH31yIORlH44M1igcH13wIv8nxsWkZVQiOrZmQwqEECo67KBicDuGb9WECDWfc/VPfjah8lApOhzCVmRpScpQKzoMw9fWIKkSpYC+H"
    "qT9GlBKlgr0bpixxSKlRKthxYerWiNKiVLBbpsMdkkSj3oxiwe2bDmFfMWz3xloxRfG0H3c0fmbIzEbe2TYkq5QaDGSRzeZj/qbiv+1TImdm"
    "WTyP/Q80dFON"
)


def written(path, raw):
    path.write_bytes(raw)
    return read_torch(path)


def test_what_pytorch_itself_wrote(tmp_path):
    found = written(tmp_path / "x.bin", zlib.decompress(base64.b64decode(_ZIP)))
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = {"a": a, "b": a.T[1:], "c": [1.5, -2], "d": 7, "e": [True, False], "f": a[1], "w": [[0.5, 0.5]]}
    assert list(found) == [*expected, "p"]
    for name, one in expected.items():
        assert np.array_equal(found[name], one), name
    assert np.array_equal(found["p"], [1, 1])
    assert found["c"].dtype == np.float32
    assert found["d"].dtype == np.int64


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i8", "i4", "i2", "i1", "u1", "?"])
def test_types_and_strides(dtype, tmp_path):
    whole = np.arange(24).astype(dtype).reshape(2, 3, 4)
    content = {"whole": whole, "turned": whole.transpose(2, 0, 1), "none": np.zeros((0, 3), dtype)}
    found = written(tmp_path / "x.bin", torch_zip(content))
    for name, one in content.items():
        assert found[name].dtype == one.dtype
        assert np.array_equal(found[name], one)
    assert not found["whole"].flags.writeable


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=4))
def test_any_dictionary_comes_back(tmp_path_factory, shapes):
    content = {f"t{n}": np.random.default_rng(n).random(shape).astype(np.float32) for n, shape in enumerate(shapes)}
    found = written(tmp_path_factory.mktemp("t") / "x.bin", torch_zip(content))
    assert list(found) == list(content)
    assert all(np.array_equal(found[name], one) for name, one in content.items())


class Hostile:
    """What a pickle executes when it is loaded in the usual way."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def _long(opcode, size, content=b""):
    return opcode + size + content


# Each a pickle that does something, or wants more memory than the file justifies.
PROGRAMS = {
    "inst": b"(X\x04\x00\x00\x00trueios\nsystem\n.",
    "obj": b"(cos\nsystem\nX\x04\x00\x00\x00trueo.",
    "names in two strings": b"\x8c\x02os\x8c\x06system\x93X\x04\x00\x00\x00true\x85R.",
    "a name of the module of builtins": b"c__builtin__\neval\n(X\x01\x00\x00\x001tR.",
    "a name behind a known one": b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n.",
    "a module behind a known name": b"ctorch\nload\n.",
    "extension registry": b"\x82\x01.",
    "a reference to another file": b"Psomething\n.",
    "a storage with a name in place of a type": b"\x80\x02(X\x06\x00\x00\x00modulecos\nsystem\ntQ.",
    "a call of a string": b"X\x01\x00\x00\x00a)R.",
    "a call of a storage type": b"ctorch\nFloatStorage\n)R.",
    "an object of a function": b"ctorch._utils\n_rebuild_tensor_v2\n)\x81.",
    "a state of a name": b"ctorch.nn.modules.sparse\nEmbedding\n}b.",
    "a state of a list": b"]}b.",
    "a state that is no dictionary": b"ctorch.nn.modules.sparse\nEmbedding\n)\x81]b.",
    "a dictionary from pairs": b"ccollections\nOrderedDict\n]\x85R.",
    "a parameter of no tensor": b"ctorch._utils\n_rebuild_parameter\n(cos\nsystem\ntR.",
    "a tensor without a storage": b"ctorch._utils\n_rebuild_tensor_v2\n(K\x00K\x00))tR.",
    "a key that is a tuple": b"})K\x01s.",
    "a deep key": b"})" + b"\x85" * 200_000 + b"K\x01s.",
    "an odd number of items": b"}(K\x01u.",
    "items of a number": b"K\x01(K\x02e.",
    "a mark in place of an object": b"(\x85.",
    "nothing at all": b".",
    "no end": b"K\x01",
    "an unknown instruction": b"\xff.",
    "a string longer than the file": _long(b"X", struct.pack("<I", 2**32 - 1), b"abc"),
    "bytes of 16 EiB": _long(b"\x8e", struct.pack("<Q", 2**63 - 1)),
    "a number of 2 GiB": _long(b"\x8b", struct.pack("<i", 2**31 - 1)),
    "a number of negative length": _long(b"\x8b", struct.pack("<i", -5)),
    "a number of 5,000 digits": b"I" + b"9" * 5000 + b"\n.",
    "a memory that is empty": b"h\x05.",
    "a buffer from outside": b"\x97.",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_is_refused(program, tmp_path):
    refused("is damaged or contains", written, tmp_path / "x.bin", torch_zip(None, pickled=program))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_executed(protocol, tmp_path):
    mark = tmp_path / "executed"
    calls = [Hostile(os.system, f"touch {mark}"), Hostile(mark.touch), Hostile(exec, f"open({str(mark)!r}, 'w')")]
    for number, hostile in enumerate(calls):
        raw = pickle.dumps({"weight": hostile}, protocol)
        for kind, content in (("zip", torch_zip(None, pickled=raw)), ("raw", raw)):
            refused("is damaged or contains", written, tmp_path / f"{number}.{kind}", content)
    assert not mark.exists()


def test_the_message_names_what_was_refused(tmp_path):
    with pytest.raises(InputError) as caught:
        written(tmp_path / "x.bin", torch_zip(None, pickled=b"cos\nsystem\n."))
    assert "x.bin is damaged or contains something other than tensors" in str(caught.value)
    assert caught.value.received == "the name os.system"
    caught = refused((), written, tmp_path / "x.bin", torch_zip(None, pickled=b"c\x1b[2J" + b"x" * 500 + b"\ny\n."))
    assert len(caught.received) < 100
    assert "\x1b" not in str(caught)


def test_bombs_stay_small(tmp_path):
    """What would grow without bounds if it were copied or walked through."""
    doubled = b"]" + b"".join(b"q%c(h%ch%ce" % (n, n, n) for n in range(100)) + b"."
    nested = b")" + b"\x85" * 1_000_000 + b"."
    itself = b"]q\x00h\x00a."
    doubling = b")" + b"".join(b"q%ch%c\x86" % (n, n) for n in range(60)) + b"."
    for program in (doubled, nested, itself, doubling):
        assert isinstance(written(tmp_path / "x.bin", torch_zip(None, pickled=program)), list | tuple)


def claims():
    ten = np.arange(10, dtype=np.float32)
    return {
        "more numbers than there are": Claim(ten, shape=(11,), strides=(1,)),
        "far more": Claim(ten, shape=(1 << 40, 1 << 20), strides=(1, 1)),
        "one number repeated": Claim(ten, shape=(1 << 30,), strides=(0,)),
        "steps that lead out": Claim(ten, shape=(2, 5), strides=(9, 1)),
        "an offset that leads out": Claim(ten, offset=5, shape=(6,), strides=(1,)),
        "a negative offset": Claim(ten, offset=-1, shape=(2,), strides=(1,)),
        "a negative length": Claim(ten, shape=(-1,), strides=(1,)),
        "a negative step": Claim(ten, shape=(2,), strides=(-1,)),
        "a fraction": Claim(ten, shape=(2.0,), strides=(1,)),
        "other numbers of lengths and steps": Claim(ten, shape=(2, 5), strides=(1,)),
        "hundreds of dimensions": Claim(ten, shape=(1,) * 300, strides=(1,) * 300),
        "a storage larger than its entry": Claim(ten, shape=(40,), strides=(1,), count=40),
        "an astronomic count": Claim(ten, shape=(1 << 80,), strides=(1,), count=1 << 90),
        "wider numbers than are there": Claim(ten, kind="Double"),
        "an unknown type": Claim(ten, kind="ComplexFloat"),
    }


@pytest.mark.parametrize("claim", claims().values(), ids=claims())
def test_a_tensor_that_claims_too_much(claim, tmp_path):
    refused("is damaged or contains", written, tmp_path / "x.bin", torch_zip({"a": claim}))


def test_damaged_archives(tmp_path):
    raw = torch_zip({"a": np.arange(10, dtype=np.float32)})
    path = tmp_path / "x.bin"
    for kept in range(0, len(raw), 7):
        with pytest.raises(InputError):
            written(path, raw[:kept])
    refused("since PyTorch 1.6", written, path, b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.")
    refused("no item named", written, path, torch_zip({"a": np.ones(3, np.float32)}, storages=[]))
    refused("big-endian", written, path, torch_zip({}, byteorder=b"big"))
    assert written(path, torch_zip({}, byteorder=b"little")) == {}
    squeezed = io.BytesIO()
    with zipfile.ZipFile(squeezed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        archive.writestr("archive/data/0", bytes(10_000_000))
    refused("compressed", written, path, squeezed.getvalue())
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"N.")
        archive.writestr("b/data.pkl", b"N.")
    refused("too many values", read_torch, path)
    refused("Is a directory", read_torch, tmp_path)


_SAMPLE = torch_zip({"a": np.arange(6, dtype=np.float32), "b": {"c": np.ones((2, 2), np.float32)}})


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_flipped_bytes(tmp_path_factory, outcomes, changes):
    """Every byte may be wrong: there is an error for people, or a value without any code in it."""
    damaged = bytearray(_SAMPLE)
    for where, value in changes:
        damaged[int(where * (len(_SAMPLE) - 1))] = value
    tried(outcomes, "x.bin", written, tmp_path_factory.mktemp("t") / "x.bin", bytes(damaged))


@given(st.binary(max_size=60) | st.sampled_from([b"N", b"]", b"K\x01", b"X\x01\x00\x00\x00a"]))
def test_any_program(tmp_path_factory, outcomes, program):
    content = torch_zip(None, pickled=program + b".")
    tried(outcomes, "program.bin", written, tmp_path_factory.mktemp("t") / "program.bin", content)


def test_an_object_keeps_its_attributes_and_nothing_else(tmp_path):
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    layer = Obj("torch.nn.modules.sparse", "Embedding", {"_parameters": {"weight": weight}, "forward": 1})
    found = written(tmp_path / "x", torch_zip(layer))
    assert np.array_equal(found["_parameters"]["weight"], weight)
    assert not hasattr(found, "forward")
    assert Writer().storages == []
