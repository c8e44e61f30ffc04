"""Complete jobs on a table of texts and labels: training, including the choice of settings, and prediction."""
