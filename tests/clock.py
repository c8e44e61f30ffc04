"""A clock that a test moves, so that what it asserts does not depend on how busy the machine is."""


class Clock:
    """Stand in for the module ``time`` in a module under test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Return the seconds that the clock shows."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Move the clock."""
        self.now += seconds
