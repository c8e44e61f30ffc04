"""Names of `typing` that Python 3.10 does not have."""

import sys

if sys.version_info >= (3, 11):
    from typing import Self, Unpack
else:
    from typing import Any as Self
    from typing import TypeVar

    _T = TypeVar("_T")

    class Unpack:
        """Stand for the keyword arguments of a typed dictionary; only type checkers read more."""

        def __class_getitem__(cls, item: _T) -> _T:
            return item


__all__ = ["Self", "Unpack"]
