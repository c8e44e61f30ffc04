"""Train a sharded variable in a session of TensorFlow 1, as in DeepRec's documentation of CollectiveStrategy.

python examples/collective/deeprec_session.py
xmc-tf launch --np 2 examples/collective/deeprec_session.py

Of DeepRec's program, the imports are changed: tensorflow.compat.v1, and the strategy. The steps are repeated here.
"""

import tensorflow.compat.v1 as tf

from xmc_tf import CollectiveStrategy

# STEP1: initialize a collective strategy
strategy = CollectiveStrategy()
# STEP2: define the data parallel scope
with strategy.scope(), tf.Graph().as_default():
    # STEP3: define the model parallel scope
    with strategy.embedding_scope():
        var = tf.get_variable(
            "var_1",
            shape=(1000, 3),
            initializer=tf.ones_initializer(tf.float32),
            partitioner=tf.fixed_size_partitioner(num_shards=strategy.world_size()),
        )
    emb = tf.nn.embedding_lookup(var, tf.cast([0, 1, 2, 5, 6, 7], tf.int64))
    fun = tf.multiply(emb, 2.0, name="multiply")
    loss = tf.reduce_sum(fun, name="reduce_sum")
    opt = tf.train.FtrlOptimizer(0.1, l1_regularization_strength=2.0, l2_regularization_strength=0.00001)
    g_v = opt.compute_gradients(loss)
    train_op = opt.apply_gradients(g_v)
    losses = []
    with tf.train.MonitoredTrainingSession("") as sess:
        for _ in range(5):
            emb_result, loss_result, _ = sess.run([emb, loss, train_op])
            losses.append(float(loss_result))
        predictions = sess.run(emb)

if strategy.rank() == 0:
    print("losses:", ", ".join(f"{loss:.4f}" for loss in losses))
    print(predictions)
