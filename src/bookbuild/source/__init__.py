"""Files that people write, parsed: chapters, messages, symptoms, claims, words."""
