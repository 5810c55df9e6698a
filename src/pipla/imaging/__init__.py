"""Images: files in and out, quality measures, restoration."""
