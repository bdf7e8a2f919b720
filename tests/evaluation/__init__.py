"""Tests of tfr_moe.evaluation."""
