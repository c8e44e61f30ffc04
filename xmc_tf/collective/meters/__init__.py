"""Bytes and seconds spent in collectives."""
