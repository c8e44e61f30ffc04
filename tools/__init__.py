"""Scripts for the work on xmc_tf; they are not installed."""
