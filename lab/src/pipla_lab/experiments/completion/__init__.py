"""Matrix completion: the paper's checkerboard, and ratings of films."""
