class InputError(ValueError):
    """An error in the user's input: a file, a flag or an argument.

    Example:
        >>> raise InputError("row 3 of Y.npz holds NaN", expected="finite numbers", fix="drop the row")
        Traceback (most recent call last):
        xmc_tf.common.errors.InputError: row 3 of Y.npz holds NaN
          expected: finite numbers
          fix:      drop the row

    Args:
        problem: what is wrong, beginning with the file, row or flag.
        expected: the expected input.
        received: the received input.
        fix: what the user can do.
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
        """Return an error that names first the file or key with the problem.

        Args:
            place: the file or key.
        """
        return InputError(f"{place}: {self.problem}", expected=self.expected, received=self.received, fix=self.fix)
