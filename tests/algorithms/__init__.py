"""Tests of the algorithms: a table of them, and the contracts that every row must keep."""
