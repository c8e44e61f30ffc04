"""Label names and fusion of a fine-tuned model."""
