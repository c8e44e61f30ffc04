"""Parsers of numbers on command lines, for the ``type`` of an argument."""

import argparse

LARGEST_INT32 = 2**31 - 1
LARGEST_SEED = 2**32 - 1  # of numpy's generators
MOST_THREADS = 1024
MOST_TREES = 100
_LARGEST = 2**63 - 1


def whole(text: str) -> int:
    """Parse an integer of at most 64 bits. Plain ``int`` would accept thousands of digits."""
    try:
        number = int(text) if len(text) <= 40 else None
    except ValueError:
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise argparse.ArgumentTypeError(f"expected a whole number, received {shown!r}") from None
    if number is None or abs(number) > _LARGEST:
        raise argparse.ArgumentTypeError(f"expected a number of at most 64 bits, received {text[:37]}...")
    return number


def positive(text: str) -> int:
    if (number := whole(text)) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, received {number}")
    return number


def thread_number(text: str) -> int:
    if (number := whole(text)) != -1 and not 1 <= number <= MOST_THREADS:
        raise argparse.ArgumentTypeError(f"expected -1, or 1 to {MOST_THREADS:,}, received {number}")
    return number


def share(text: str) -> float:
    """Parse a fraction from 0 to 1, or a percentage such as ``15%``."""
    try:
        number = float(text.rstrip().removesuffix("%")) / (100 if text.rstrip().endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        meant = f"; did you mean {number / 100:g} ({number:g}%)?" if 1 < number <= 100 and "%" not in text else ""
        expected = "expected a share from 0 to 1, or from 0% to 100%"
        raise argparse.ArgumentTypeError(f"{expected}, received {text[:40]!r}{meant}")
    return number
