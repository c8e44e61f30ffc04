"""The hint that an interrupted command prints: the point from which a rerun resumes."""

_POINT = {"text": ""}


def resumes_from(point: str) -> None:
    """Record what is saved, such as ``fine-tuning, level 2, step 200``; an interruption then names it in its hint."""
    _POINT["text"] = f"Rerun the command to resume from {point}."


def nothing_to_resume(reason: str) -> None:
    _POINT["text"] = f"Nothing was saved: {reason}. Rerun the command to start again."


def finished() -> None:
    _POINT["text"] = ""


def resume_hint() -> str:
    return _POINT["text"]
