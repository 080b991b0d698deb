"""A seeded campaign of kills and faults against real pipelines: `make chaos`; twenty kills are in `make test`."""
