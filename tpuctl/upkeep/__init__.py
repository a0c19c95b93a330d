"""Records of what people do with runs after their end: tags, notes, removal."""
