"""The collective operations of training steps, over Horovod or MPI."""
