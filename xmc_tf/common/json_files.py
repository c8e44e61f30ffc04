"""The reader of all JSON files, which may be malicious: it never waits for a pipe, and it limits size and nesting."""

import contextlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from xmc_tf.common.errors import InputError
from xmc_tf.common.regular import open_regular

MOST_BYTES = 64 << 20
MOST_LEVELS = 64
_LARGEST_OWN = 2**63 - 1  # of integers in numpy and TensorFlow
# Tokenizer configurations of transformers write "no limit" as 10**30.
_MOST_DIGITS = 40
_TYPE_NAMES: dict[type, str] = {
    dict: "a JSON object {...}",
    list: "a JSON array [...]",
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def read_json(path: str | Path, *, what: str = "", fix: str = "", limit: int = MOST_BYTES, **options: Any) -> Any:
    """Return the content of a JSON file. ``what`` names its purpose in errors; ``options`` go to ``parse_json``."""
    with open_regular(path, what, fix=fix) as file:
        content = file.read(limit + 1)
    return parse_json(content, of=f"{what}: {path}" if what else str(path), fix=fix, limit=limit, **options)


def read_unchanged_json(path: Path, *, expected: str = "", fix: str = "") -> Any:
    """Return the content of a JSON file, cached until the file changes. Callers must not modify the returned object."""
    with contextlib.suppress(OSError, InputError):  # the read below reports these, in the caller's words
        status = path.stat()
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return _read_once(path.absolute(), identity)
    return read_json(path, expected=expected, fix=fix)


@lru_cache(maxsize=4)
def _read_once(path: Path, identity: tuple[int, ...]) -> Any:
    return read_json(path)


def parse_json(
    text: str | bytes,
    *,
    of: str,
    expected: str = "",
    fix: str = "",
    top: type | None = dict,  # type of the outermost value; None for any
    limit: int = MOST_BYTES,
    unique_keys: bool = False,  # refuse an object that gives a key twice
    foreign: bool = False,  # of another library, which may write NaN, Infinity and very large numbers
) -> Any:
    """Parse JSON from a string or from UTF-8 bytes. ``of`` names the source in errors."""

    def refuse(problem: str, received: str = "", otherwise: str = "") -> NoReturn:
        raise InputError(problem, expected=expected or otherwise, received=received, fix=fix) from None

    if len(text) > limit:
        refuse(f"{of} is too long", f"more than {limit:,} bytes", f"at most {limit:,} bytes of JSON")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            refuse(f"{of} is not JSON: not text in UTF-8", f"byte {error.start} is not UTF-8", "JSON in UTF-8")
    if text.startswith("\ufeff"):
        refuse(f"{of} begins with a byte order mark", "U+FEFF", "JSON in UTF-8 without a byte order mark")
    options: dict[str, Any] = {"parse_int": _foreign_whole if foreign else _whole}
    if not foreign:
        options |= {"parse_float": _finite, "parse_constant": _no_constant}
    if unique_keys:
        options["object_pairs_hook"] = _no_key_twice
    try:
        value = json.loads(text, **options)
    except json.JSONDecodeError as error:
        refuse(f"{of} is not JSON", f"line {error.lineno}, column {error.colno}: {error.msg}", "JSON")
    except _FaultError as fault:
        refuse(f"{of}: {fault}")
    except RecursionError:
        refuse(f"{of} is nested too deeply", f"more than {MOST_LEVELS} levels", f"at most {MOST_LEVELS} levels")
    if _is_deeper(value, MOST_LEVELS):
        refuse(f"{of} is nested too deeply", f"more than {MOST_LEVELS} levels", f"at most {MOST_LEVELS} levels")
    if top is not None and not isinstance(value, top):
        wanted = _TYPE_NAMES.get(top, top.__name__)
        refuse(f"{of} does not hold {wanted}", _TYPE_NAMES.get(type(value), type(value).__name__), wanted)
    return value


class _FaultError(Exception):
    """A value that is valid JSON but that this reader refuses."""


def _whole(digits: str) -> int:
    # Checked first, because Python itself refuses to convert thousands of digits.
    if len(digits) > 20 or abs(number := int(digits)) > _LARGEST_OWN:
        raise _FaultError(f"the number {_shortened(digits)} is too large (at most 2^63 - 1)")
    return number


def _foreign_whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise _FaultError(f"the number {_shortened(digits)} is too large (at most {_MOST_DIGITS} digits)")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if number - number != 0:
        raise _FaultError(f"the number {_shortened(digits)} is too large for 64 bits")
    return number


def _no_constant(name: str) -> NoReturn:
    raise _FaultError(f"{name} is not a finite number")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    block = dict(pairs)
    if len(block) != len(pairs):
        # One of the two values would be lost silently.
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _FaultError(f"{_shortened(twice)} is given twice in one block; remove one")
    return block


def _is_deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        blocks = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        if not (level := [child for block in blocks for child in block if isinstance(child, dict | list)]):
            return False
    return True


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
