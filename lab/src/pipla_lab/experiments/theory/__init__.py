"""The theorems against measurements: bounds, minimisers, propagation of chaos."""
