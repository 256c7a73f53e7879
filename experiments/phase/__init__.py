"""Phase diagrams that belong to none of the papers."""
