"""Experiments about theta: many replicates of small runs."""
