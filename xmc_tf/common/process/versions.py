"""The versions of Python and of packages."""

import platform
from importlib.metadata import version


def package_versions(*more: str) -> dict[str, str]:
    """Return the versions of Python, of the packages that every model needs, and of ``more``."""
    packages = ("xmc_tf", "numpy", "scipy", "numba", *more)
    return {"python": platform.python_version()} | {package: version(package) for package in packages}
