"""Adv & HSC-MoE (Xiao et al. 2020): its tables and figures."""
