"""Topics and their routes, as a name server gives them."""
