"""THE MOVERS: weights from one framework to the other. Names, layouts, values; checkpoint files; certificates."""
