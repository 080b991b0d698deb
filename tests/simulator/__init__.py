"""The reference model of the delivery simulator: the TypeScript of the page (simulator/) must agree with it.

state.py: what a state is; step.py: the transitions; counts.py: what is lost, duplicated or out of order; scenarios.py:
named successions with their ends, each of which tests/integration/brokers/test_simulator.py replays on real brokers;
export.py: the files that the page and its tests read. See docs/simulator.md.
"""
