"""The papers' mathematics made visible: topics with tables and figures, and the errata."""
