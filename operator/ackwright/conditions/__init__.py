"""What the operator reports about a pipeline: findings out of facts, conditions out of findings, and the status.

Pure.
"""
