"""Parse the files that people write: chapters, messages, symptoms, claims, words."""
