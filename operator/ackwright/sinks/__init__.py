"""Where the output of a pipeline goes: one module for each sink, with all that the operator knows about it.

A new sink is a module with a subclass of `base.Sink`, and a field of `registry.SinkSpec`.
The modules know neither the whole pipeline nor its plan: they get the few values that they need.
"""
