"""What the audit reads of each kind of sink, one module for each; base.py is what they all provide."""
