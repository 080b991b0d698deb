"""One file per guarantee: where the advance stands relative to the processing, and nothing else."""
