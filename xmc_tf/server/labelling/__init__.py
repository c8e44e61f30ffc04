"""A page to label texts with the suggestions of a model, which learns from each answer."""
