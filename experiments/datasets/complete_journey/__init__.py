"""The Complete Journey: purchases of households."""
