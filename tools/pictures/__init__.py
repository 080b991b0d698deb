"""The pictures of the documentation, as SVG that code draws. `tools/draw_pictures.py` writes them."""
