"""Calls that are refused with an error of the user's input."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from xmc_tf.common.errors import InputError


def refused(said: str | Iterable[str], call: Callable[..., Any], *arguments: Any, **options: Any) -> InputError:
    """Check that a call raises an InputError, and return the error.

    Args:
        said: a pattern that the message matches, or texts that it all contains.
        call: what is called, with the other arguments.
    """
    with pytest.raises(InputError, match=said if isinstance(said, str) else None) as caught:
        call(*arguments, **options)
    missing = [] if isinstance(said, str) else [text for text in said if text not in str(caught.value)]
    assert not missing, str(caught.value)
    return caught.value


def tried(
    outcomes: Counter[tuple[str, bool]], name: str, call: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    """Return the result of a call, or None where it raises an InputError with a name in its message; count which."""
    message = ""
    try:
        result = call(*arguments, **options)
    except InputError as error:
        result, message = None, str(error)
    assert name in message or not message
    outcomes[name, bool(message)] += 1
    return result
