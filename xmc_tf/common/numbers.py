"""Numbers from command lines, within the range that the code can hold."""

import argparse

LARGEST_INT32 = 2**31 - 1
LARGEST_SEED = 2**32 - 1  # of numpy's generators
MOST_THREADS = 1024
MOST_TREES = 100
_LARGEST = 2**63 - 1


def whole(text: str) -> int:
    """Return a whole number of at most 64 bits; for ``type=`` of an argument parser.

    Python itself accepts numbers of thousands of digits, and refuses longer ones with an error that does not name the
    flag.
    """
    try:
        number = int(text) if len(text) <= 40 else None
    except ValueError:
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise argparse.ArgumentTypeError(f"expected a whole number, received {shown!r}") from None
    if number is None or abs(number) > _LARGEST:
        raise argparse.ArgumentTypeError(f"expected a number of at most 64 bits, received {text[:37]}...")
    return number
