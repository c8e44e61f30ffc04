"""The stages of a training: features, trees, fine-tuned encoder, embeddings, rankers, each made once."""
