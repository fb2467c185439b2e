"""Experiments: configuration, runs, reports and the command line."""
