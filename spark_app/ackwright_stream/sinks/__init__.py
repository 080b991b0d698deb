"""The stores that the job delivers to, one package for each kind; base.py is what they all provide."""
