"""Campaigns: many hostile commands and kills, counted. ``python -m tests.campaigns.NAME`` runs one in full."""
