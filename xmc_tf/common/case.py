"""Comparison of names without regard to case, the same with every Python."""

# Letters of Unicode 14, which Python 3.10 does not know. No version of 3.11 to 3.13 knows further letters with case.
_NEW_CAPITALS = [
    *range(0x10570, 0x1057B), *range(0x1057C, 0x1058B), *range(0x1058C, 0x10593), 0x10594, 0x10595,  # Vithkuqi
    0x2C2F, 0xA7C0, 0xA7D0, 0xA7D6, 0xA7D8,
]  # fmt: skip
_DISTANCE = {0x2C2F: 0x30}  # to the small letter; Latin: 1, Vithkuqi: 0x27
_SMALL = {code: code + _DISTANCE.get(code, 0x27 if code > 0xFFFF else 1) for code in _NEW_CAPITALS}


def without_case(text: str) -> str:
    """Return what texts have in common that differ by case only: ``str.casefold`` of Unicode 14."""
    return text.translate(_SMALL).casefold()
