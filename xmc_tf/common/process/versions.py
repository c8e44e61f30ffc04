import platform
from importlib.metadata import version

from xmc_tf.common.version import __version__


def package_versions(*more: str) -> dict[str, str]:
    """Return the versions of Python, of the packages that every model needs, and of the packages in ``more``."""
    # Our own may be imported from a checkout that is not installed.
    own = {"python": platform.python_version(), "xmc_tf": __version__}
    return own | {package: version(package) for package in ("numpy", "scipy", "numba", *more)}
