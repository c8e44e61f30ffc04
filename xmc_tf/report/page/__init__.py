"""The report as one HTML page without external resources. JavaScript is used only for sorting and searching."""
