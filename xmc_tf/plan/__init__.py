"""Estimates of memory, bytes sent and hours of a training, before any machine is rented."""
