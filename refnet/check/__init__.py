"""Judging other implementations: verdicts, adapters, golden vectors."""
