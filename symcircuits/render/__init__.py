"""Results as text, JSON, HTML and figures."""
