"""Growing a trained linear model: further documents, and labels that are added, removed or merged."""
