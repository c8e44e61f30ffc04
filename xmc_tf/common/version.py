"""The version of xmc_tf."""

__version__ = "0.3.0"
