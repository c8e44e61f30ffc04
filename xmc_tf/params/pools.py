"""The number of a document's labels that each stage of a prediction keeps.

The beam search of a tree finds ``LABELS_OF_TREE``; their mean over the trees is the rankers' answer. With an encoder,
an ensemble takes ``LABELS_OF_PART`` from the label head and from the rankers. The best ``FUSED_LABELS`` of what comes
out are candidates of the fusion, which adds the labels whose names are in the text and computes probabilities; further
labels follow in the order of their scores. A stage that is asked for more labels takes as many as it is asked for.
"""

LABELS_OF_TREE = 30  # a label that a tree does not find counts as 0 in the mean
FUSED_LABELS = 30  # not more than each stage before it finds
LABELS_OF_PART = 100  # of label head and rankers each; a label that a part does not find counts as 0 there
