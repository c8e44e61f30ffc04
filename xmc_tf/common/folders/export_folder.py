"""The folder of an exported SavedModel, and the files that xmc_tf writes in it."""

from xmc_tf.common.folders.kinds import FolderKind

ABOUT = "assets.extra/xmc_tf.json"  # what was exported, and how
SERVING, PLAIN = "xmc_tf.serving", "xmc_tf.saved_model"  # a model of ours, and any other

EXPORT = FolderKind(
    "an export of xmc_tf",
    header=ABOUT,
    recognises=lambda about: about.get("format") in (SERVING, PLAIN),
    parts={
        r"saved_model\.pb|fingerprint\.pb|keras_metadata\.pb": None,
        r"variables|assets|assets\.extra": ".+",
    },
)
