"""Growing trained rankers: add documents and labels without training everything again."""

from xmc_tf.rankers.growing.rankers import (
    Growth,
    adjusted,
    changed_clusters,
    place_labels,
    regrouped,
    solved_again,
    with_documents_from,
)

__all__ = ["Growth", "adjusted", "changed_clusters", "place_labels", "regrouped", "solved_again", "with_documents_from"]
