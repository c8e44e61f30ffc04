"""Authenticated TCP connections between the processes of a run. The launcher and the stall watch use them."""
