"""The stages of training: features, trees, fine-tuned encoder, embeddings, rankers."""
