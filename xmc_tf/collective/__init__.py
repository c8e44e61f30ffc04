"""Who runs where: communicator, partition, and tables of embeddings sharded over the ranks."""
