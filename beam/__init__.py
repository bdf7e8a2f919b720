"""Logs to data-set folders with Apache Beam: `tfr_moe.beam.pipeline.build`."""
