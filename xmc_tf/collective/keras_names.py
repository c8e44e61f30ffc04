"""The names of Keras that are not public and that this package uses. A test finds those that a version lacks."""

KERAS_NAMES = {
    "keras.Model": "_aggregate_additional_loss _compile_config _compile_metrics _flatten_layers "
    "_flatten_metrics_in_order _get_metrics_result_or_logs",
    "keras.Sequential": "_functional",
    "keras.Variable": "_initialize _initialize_with_initializer _value",
    "keras.callbacks.BackupAndRestore": "_save_model _weights_path",
    "keras.callbacks.TensorBoard": "_log_weights",
    "keras.layers.BatchNormalization": "_moments _reduction_axes",
    "keras.layers.Embedding": "_embeddings _non_trainable_variables",
    "keras.optimizers.Optimizer": "_clip_gradients _exclude_from_weight_decay_cache _exclude_from_weight_decay_pattern "
    "_iterations _learning_rate _use_weight_decay _var_key",
    "keras.src.api_export": "REGISTERED_OBJS_TO_NAMES",
    "keras.src.backend.tensorflow.trainer.TFEpochIterator": "_distributed_dataset _enumerate_iterator _get_iterator "
    "_interrupted_warning data_adapter",
    "keras.src.losses.loss": "apply_mask backend reduce_weighted_values",
    "keras.src.metrics.reduction_metrics.MeanMetricWrapper": "_fn _fn_kwargs",
    "keras.src.saving.object_registration": "GLOBAL_CUSTOM_NAMES",
    "keras.src.trainers.compile_utils.CompileMetrics": "_user_metrics _user_weighted_metrics",
}
