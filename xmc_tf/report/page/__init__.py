"""The report as one HTML page that needs no network, and JavaScript only for sorting and searching."""
