"""Benchmarks of the delivery engine: `python -m bench`, see __main__."""
