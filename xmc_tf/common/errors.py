class InputError(ValueError):
    """An error in the user's input: a file, a flag or an argument.

    Example:
        >>> raise InputError("row 3 of Y.npz holds NaN", expected="finite numbers", fix="drop the row")
        Traceback (most recent call last):
        xmc_tf.common.errors.InputError: row 3 of Y.npz holds NaN
          expected: finite numbers
          fix:      drop the row

    Args:
        problem: a description of the error that begins with the file, row or flag.
        expected: the input that would be valid.
        received: the input that was found.
        fix: how the user can correct the error.
    """

    # Whether all ranks raise it, so that one of them shows it.
    on_all_ranks = False

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

    def found_in(self, place: object) -> "InputError":
        """Return a copy of this error whose message begins with the file or key in which the problem was found.

        Args:
            place: the file or key.
        """
        return InputError(f"{place}: {self.problem}", expected=self.expected, received=self.received, fix=self.fix)
