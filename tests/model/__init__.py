"""A model of lanes, searched exhaustively: see README.md."""
