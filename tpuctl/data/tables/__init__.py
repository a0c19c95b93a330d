"""Tables: named columns, their types, and what a cell becomes."""
