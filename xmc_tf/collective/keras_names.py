"""The names of Keras that are not public and that this package uses, and why. A test finds those that are missing."""

KERAS_NAMES = {
    "keras.Model._flatten_layers": "all layers of a model; ``layers`` lacks those inside layers",
    "keras.Model._flatten_metrics_in_order": "train_on_batch: the list that Keras makes of logs",
    "keras.Model._get_metrics_result_or_logs": "where fit and evaluate read the metrics at the end of an epoch",
    "keras.Variable._initialize_with_initializer": "the rows of a table are a variable that exists already",
    "keras.Variable._value": "the variable of TensorFlow; ``value`` is cast under mixed precision",
    "keras.callbacks.BackupAndRestore._save_model": "only rank 0 writes; nothing public happens before it writes",
    "keras.layers.BatchNormalization._moments": "mean and variance over all ranks, not those of a replica",
    "keras.layers.Embedding._embeddings": "the variable of all rows, which Keras's own methods save and load",
    "keras.optimizers.Optimizer._clip_gradients": "exact=True: norms over all shards, after Keras has accumulated",
    "keras.optimizers.Optimizer._learning_rate": "the schedule; ``learning_rate`` is its present number",
    "keras.optimizers.Optimizer._use_weight_decay": "exclude_from_weight_decay has no public question",
    "keras.src.backend.common.masking._keras_mask": "the mask of a tensor, by which losses weight its elements",
    "keras.src.backend.tensorflow.trainer.TFEpochIterator.data_adapter": "the number of batches; its epochs",
    "keras.metrics.MeanMetricWrapper._fn_kwargs": "axis=0, which compares examples; losses have it too",
}
