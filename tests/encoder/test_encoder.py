"""Encoders against transformers' own classes, on tiny random ones of every architecture."""

import resource

import numpy as np
import pytest
import tensorflow as tf
import transformers

from tests.encoder.tiny import ARCHITECTURES, documents, shared_encoder, tiny_config, tiny_encoder
from xmc_tf.common.errors import InputError
from xmc_tf.encoder import Encoder

every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)


def own_inputs(architecture, ids, mask):
    """Return ids and mask as transformers' own tokenizer would for these documents."""
    if architecture != "xlnet":
        return {"input_ids": ids, "attention_mask": mask}
    # Padded on the left, the classification token last, with segments of their own: 3 and 2.
    pad_id = tiny_config("xlnet").pad_token_id
    turned = np.full_like(ids, pad_id)
    segments = np.full_like(ids, 3)
    for row, length in enumerate(mask.sum(axis=1)):
        turned[row, ids.shape[1] - length :] = ids[row, :length]
        segments[row, ids.shape[1] - length : -1] = 0
        segments[row, -1] = 2
    return {"input_ids": turned, "attention_mask": mask[:, ::-1], "token_type_ids": segments}


def own_embeddings(architecture, model, ids, mask):
    """Return the embeddings of transformers' own class by pooling, computed in numpy."""
    output = model(**{name: tf.constant(value) for name, value in own_inputs(architecture, ids, mask).items()})
    states = output.last_hidden_state.numpy()
    if architecture == "xlnet":
        documents_states = [row[len(row) - length :] for row, length in zip(states, mask.sum(axis=1), strict=True)]
    else:
        documents_states = [row[:length] for row, length in zip(states, mask.sum(axis=1), strict=True)]
    embeddings = {
        "mean": [row.mean(axis=0) for row in documents_states],
        "max": [row.max(axis=0) for row in documents_states],
        "last": [row[-1] for row in documents_states],
        "cls": [row[-1 if architecture == "xlnet" else 0] for row in documents_states],
    }
    if getattr(output, "pooler_output", None) is not None:
        embeddings["pooler"] = list(output.pooler_output.numpy())
    return {pooling: np.stack(rows) for pooling, rows in embeddings.items()}


@every_architecture
def test_embeddings_are_those_of_transformers(architecture, tmp_path):
    encoder = shared_encoder(architecture)
    encoder.save(tmp_path)
    model = getattr(transformers, type(encoder.model).__name__).from_pretrained(tmp_path)
    ids, mask = documents(architecture)
    expected = own_embeddings(architecture, model, ids, mask)
    assert encoder.pooling in expected
    assert encoder.dim == 16
    for pooling, embeddings in expected.items():
        again = Encoder(encoder.model, pooling)
        found = again(tf.constant(ids), tf.constant(mask))
        assert found.dtype == tf.float32
        assert found.shape == (len(ids), 16)
        np.testing.assert_allclose(found, embeddings, atol=1e-5, err_msg=pooling)
        assert np.abs(np.diff(embeddings, axis=0)).max() > 1e-3, "different documents have different embeddings"


@every_architecture
def test_embeddings_do_not_depend_on_padding(architecture):
    encoder = shared_encoder(architecture, pooling="mean")
    ids, mask = documents(architecture, (5, 9))
    wide = np.pad(ids, ((0, 0), (0, 6)), constant_values=33)
    wide_mask = np.pad(mask, ((0, 0), (0, 6)))
    expected = encoder(tf.constant(ids), tf.constant(mask)).numpy()
    np.testing.assert_allclose(encoder(tf.constant(wide), tf.constant(wide_mask)), expected, atol=1e-5)
    np.testing.assert_allclose(encoder(tf.constant(wide), tf.constant(wide_mask > 0)), expected, atol=1e-5)
    alone = encoder(tf.constant(ids[:1, :5]), tf.ones([1, 5], tf.int32))
    np.testing.assert_allclose(alone, expected[:1], atol=1e-5)


@every_architecture
def test_what_is_saved_loads_bit_for_bit(architecture, tmp_path):
    encoder = tiny_encoder(architecture, pooling="max", seed=3)
    encoder.save(tmp_path)
    loaded = Encoder.load(tmp_path)
    assert (loaded.architecture, loaded.pooling, loaded.max_length) == (architecture, "max", encoder.max_length)
    assert len(loaded.variables) == len(encoder.variables) > 10
    for before, after in zip(encoder.variables, loaded.variables, strict=True):
        assert before.shape == after.shape
        assert np.array_equal(before, after), before.name
    ids, mask = documents(architecture)
    assert np.array_equal(loaded(ids, mask), encoder(ids, mask))


@every_architecture
def test_gradients_reach_what_is_listed_as_trainable(architecture):
    encoder = shared_encoder(architecture, pooling="mean")
    trainable = encoder.trainable_variables
    assert len({id(one) for one in trainable}) == len(trainable)
    unused = [one.name for one in encoder.variables if all(one is not other for other in trainable)]
    assert all("pooler" in name or "mask_emb" in name for name in unused), unused
    ids, mask = documents(architecture)

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder(ids, mask, training=True) ** 2)
    found = tape.gradient(loss, list(trainable))
    assert all(gradient is not None for gradient in found)
    reached = [float(tf.reduce_sum(tf.abs(tf.convert_to_tensor(gradient)))) for gradient in found]
    assert np.isfinite(reached).all()
    # A shift that is the same for all keys drops out of the softmax.
    still = [one.name for one, size in zip(trainable, reached, strict=True) if size == 0]
    assert all("bias" in name or "emb" in name for name in still), still


@every_architecture
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_gives_float32(architecture, policy):
    import tf_keras

    ids, mask = documents(architecture)
    expected = shared_encoder(architecture, pooling="mean")(ids, mask).numpy()
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(policy)
    try:
        encoder = tiny_encoder(architecture, pooling="mean")
        embeddings = encoder(ids, mask)
    finally:
        tf_keras.mixed_precision.set_global_policy(before)
    assert embeddings.dtype == tf.float32
    assert all(one.dtype == tf.float32 for one in encoder.trainable_variables)
    # The class for XLNet mixes types under these policies; it computes in float32.
    assert np.array_equal(embeddings, expected) == (architecture == "xlnet")
    np.testing.assert_allclose(embeddings, expected, atol=0.1)


@pytest.mark.parametrize("architecture", ["deberta-v2", "xlnet"])
def test_traced_for_all_sizes_it_is_the_same_and_has_gradients(architecture):
    encoder = shared_encoder(architecture)
    sizes = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[sizes, sizes], autograph=False)
    def gradients(ids, mask):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(encoder(ids, mask) ** 2)
        return loss, tape.gradient(loss, list(encoder.trainable_variables))

    for lengths in ((7, 3), (2, 9, 4)):
        ids, mask = documents(architecture, lengths)
        embeddings = encoder(ids, mask)
        loss, found = gradients(tf.constant(ids), tf.constant(mask))
        np.testing.assert_allclose(loss, tf.reduce_sum(embeddings**2), rtol=1e-5)
        assert all(gradient is not None for gradient in found)


def test_the_seed_decides_the_weights():
    first, same, other = (tiny_encoder("bert", seed=seed) for seed in (1, 1, 2))
    weights = [[one.numpy() for one in encoder.variables] for encoder in (first, same, other)]
    assert all(np.array_equal(a, b) for a, b in zip(weights[0], weights[1], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(weights[0], weights[2], strict=True))


def test_dropout_only_in_training():
    encoder = shared_encoder("bert")
    ids, mask = documents("bert")
    assert np.array_equal(encoder(ids, mask), encoder(ids, mask))
    assert not np.array_equal(encoder(ids, mask, training=True), encoder(ids, mask, training=True))


@every_architecture
def test_dropout_can_be_switched_off(architecture, tmp_path):
    shared_encoder(architecture).save(tmp_path)
    encoder = Encoder.load(tmp_path, hidden_dropout_prob=0.0)
    ids, mask = documents(architecture)
    np.testing.assert_allclose(encoder(ids, mask, training=True), encoder(ids, mask), atol=1e-6)


def test_too_long_documents_are_refused():
    encoder = shared_encoder("roberta")
    assert encoder.max_length == 32
    ids, mask = documents("roberta", (32,))
    assert np.isfinite(encoder(ids, mask)).all()
    ids, mask = documents("roberta", (33,))
    with pytest.raises(InputError, match="33 tokens are too long"):
        encoder(ids, mask)


def test_a_document_of_padding_alone_has_a_finite_vector():
    for pooling in ("mean", "max", "last", "cls"):
        encoder = shared_encoder("xlnet", pooling)
        assert np.isfinite(encoder(tf.zeros([2, 4], tf.int32), tf.zeros([2, 4], tf.int32))).all()


def test_a_tokenizer_with_more_tokens_is_refused():
    encoder = shared_encoder("bert")
    encoder.check_tokenizer(60)
    with pytest.raises(InputError, match="does not belong to the encoder"):
        encoder.check_tokenizer(61)


def test_a_full_disk_raises_an_error(tmp_path):
    encoder = shared_encoder("bert")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match=r"the weights could not be written: .*File too large"):
            encoder.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
