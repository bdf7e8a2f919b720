"""MMoE (Ma et al. 2018): synthetic tasks and UCI Census-Income."""
