"""The steps of the pipeline, one idea per file."""
