"""An Annif backend, used with ``backend=xmc_tf`` in projects.cfg.

Annif loads it through a configuration class, which the environment variable ``ANNIF_CONFIG`` names:

    export ANNIF_CONFIG=xmc_tf.annif.ProductionConfig
"""

from xmc_tf.common.errors import InputError

try:
    import annif.backend
    from annif import default_config
except ImportError as error:
    raise InputError(
        "xmc_tf.annif needs Annif", expected="Annif 1.4", received=str(error), fix="pip install 'annif>=1.4,<1.5'"
    ) from None

from xmc_tf.annif.backend import XmcBackend


def register() -> None:
    # Annif has no entry points for backends; its registry is a dictionary of functions.
    annif.backend._backend_fns[XmcBackend.name] = lambda: XmcBackend


register()


class Config(default_config.Config):
    """Annif's default configuration, with this backend."""


class ProductionConfig(default_config.ProductionConfig):
    """Annif's configuration for servers, with this backend. All projects are loaded at the start."""


class DevelopmentConfig(default_config.DevelopmentConfig):
    """Annif's configuration for development, with this backend."""


__all__ = ["Config", "DevelopmentConfig", "ProductionConfig", "XmcBackend", "register"]
