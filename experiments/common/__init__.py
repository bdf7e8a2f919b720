"""What several studies share: the registry, settings, resumable runs, tables and plots."""
