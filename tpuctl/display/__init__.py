"""Shows records in notebooks as HTML and SVG, and in a plain Python as short text; needs no IPython."""
