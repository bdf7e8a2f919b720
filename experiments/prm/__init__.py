"""Personalized re-ranking (Pei et al. 2019): Tables 3 to 5."""
