"""The console: pipelines as JSON views, and the HTTP server on loopback that serves them with one page."""
