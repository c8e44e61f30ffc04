"""The one exception for bad input, with a message that can be acted on."""


class InputError(ValueError):
    """What the user gave cannot be used.

    Example:
        >>> raise InputError("row 3 of Y.npz holds NaN", expected="finite numbers", fix="drop the row")
        Traceback (most recent call last):
        xmc_tf.common.errors.InputError: row 3 of Y.npz holds NaN
          expected: finite numbers
          fix:      drop the row

    Args:
        problem: what is wrong and where (file, line or row).
        expected: what would have been right.
        received: what was received instead.
        fix: what the user can do about it.
    """

    def __init__(self, problem: str, *, expected: str = "", received: str = "", fix: str = "") -> None:
        self.problem, self.expected, self.received, self.fix = problem, expected, received, fix
        lines = [problem]
        if expected:
            lines.append(f"  expected: {expected}")
        if received:
            lines.append(f"  received: {received}")
        if fix:
            lines.append(f"  fix:      {fix}")
        super().__init__("\n".join(lines))
