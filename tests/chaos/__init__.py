"""A seeded campaign of kills against real pipelines: `make chaos`, and twenty kills per guarantee in `make test`."""
