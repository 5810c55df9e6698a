"""The smooth part and the model."""
