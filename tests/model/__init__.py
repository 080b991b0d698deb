"""A model of the protocol for a lane, searched exhaustively; see README.md."""
